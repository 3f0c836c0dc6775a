//! The device: what an H100 says under driver 580.

use std::ffi::c_char;

use crate::result::{INVALID_VALUE, NOT_FOUND, SUCCESS, put};

/// CUDA 13.0.
const VERSION: i32 = 13_000;
pub const TOTAL_BYTES: usize = 80 << 30;
/// Any pointer that is not NULL.
const CONTEXT: usize = 0x1000;
const NAME: &[u8] = b"NVIDIA H100 80GB HBM3 (stand-in)\0";

/// Device attributes that are not 0.
#[rustfmt::skip]
const ATTRIBUTES: &[(u32, i32)] = &[
    (1, 1024), (2, 1024), (3, 1024), (4, 64), (5, 2_147_483_647), (6, 65_535), (7, 65_535), (8, 49_152), (9, 65_536),
    (10, 32), (11, 2_147_483_647), (12, 65_536), (13, 1_980_000), (14, 512), (15, 1), (16, 132), (19, 1),
    (21, 131_072), (22, 131_072), (23, 65_536), (24, 16_384), (25, 16_384), (26, 16_384), (27, 32_768), (28, 32_768),
    (29, 2048), (30, 512), (31, 1), (32, 1), (34, 6), (36, 2_619_000), (37, 5120), (38, 52_428_800), (39, 2048),
    (40, 3), (41, 1), (42, 32_768), (43, 2048), (44, 1), (45, 32_768), (46, 32_768), (47, 8192), (48, 8192),
    (49, 32_768), (51, 32), (52, 32_768), (53, 32_768), (54, 2046), (55, 32_768), (56, 131_072), (57, 65_536),
    (58, 16_384), (59, 16_384), (60, 16_384), (61, 32_768), (62, 2048), (63, 32_768), (64, 32_768), (65, 2048),
    (66, 32_768), (67, 32_768), (68, 2046), (69, 268_435_456), (70, 131_072), (71, 65_000), (72, 2_097_120),
    (73, 32_768), (74, 32_768), (75, 9), (77, 32_768), (78, 1), (79, 1), (80, 1), (81, 233_472), (82, 65_536),
    (83, 1), (87, 2), (89, 1), (90, 1), (91, 1), (95, 1), (96, 1), (97, 232_448), (99, 1), (102, 1), (103, 1),
    (106, 32), (107, 1), (108, 32_768_000), (109, 134_217_728), (110, 1), (111, 1024), (112, 1), (113, 1), (114, 1),
    (115, 1), (116, 1), (117, 1), (118, 100), (119, 9), (120, 1), (121, 1), (122, 1), (123, 1), (124, 1), (125, 1),
    (126, 4), (127, 1), (128, 1), (129, 1), (131, -1), (139, 590_352_606), (140, 381_751_518), (141, 1), (142, 1),
    (144, 1), (145, 1),
];

driver_api! {
    fn cuInit(_flags: u32) {
        SUCCESS
    }
    fn cuDriverGetVersion(version: Option<&mut i32>) {
        put(version, VERSION)
    }
    fn cuDeviceGetCount(count: Option<&mut i32>) {
        put(count, 1)
    }
    fn cuDeviceGet(device: Option<&mut i32>, ordinal: i32) {
        if ordinal == 0 { put(device, 0) } else { INVALID_VALUE }
    }
    fn cuDeviceGetName(name: Option<&mut [c_char; NAME.len()]>, length: i32, _device: i32) {
        match name {
            Some(name) if length >= NAME.len().cast_signed() as i32 => put(Some(name), std::array::from_fn(|at| NAME[at].cast_signed())),
            _ => INVALID_VALUE,
        }
    }
    fn cuDeviceGetUuid_v2(uuid: Option<&mut [u8; 16]>, _device: i32) {
        put(uuid, *b"hetckpt-stand-in")
    }
    fn cuDeviceTotalMem_v2(bytes: Option<&mut usize>, _device: i32) {
        put(bytes, TOTAL_BYTES)
    }
    fn cuDeviceGetAttribute(value: Option<&mut i32>, attribute: u32, _device: i32) {
        let known = ATTRIBUTES.iter().find(|(number, _)| *number == attribute);
        put(value, known.map_or(0, |&(_, value)| value))
    }
    fn cuDevicePrimaryCtxRetain(context: Option<&mut usize>, _device: i32) {
        put(context, CONTEXT)
    }
    fn cuDevicePrimaryCtxRelease_v2(_device: i32) {
        SUCCESS
    }
    fn cuDevicePrimaryCtxSetFlags_v2(_device: i32, _flags: u32) {
        SUCCESS
    }
    fn cuCtxSetCurrent(_context: usize) {
        SUCCESS
    }
    fn cuCtxGetStreamPriorityRange(least: Option<&mut i32>, greatest: Option<&mut i32>) {
        put(least, 0).max(put(greatest, -5))
    }
    fn cuGetExportTable(_table: usize, _uuid: usize) {
        NOT_FOUND
    }
}
