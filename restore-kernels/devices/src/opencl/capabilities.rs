//! What a device has beyond OpenCL C 1.2's core.

use hetckpt_abi::opencl_program::Requirements;
use opencl3::device as device_api;

use super::handles::{DeviceId, number};

/// `CL_DEVICE_OPENCL_C_FEATURES`: structures of a version and a name.
const OPENCL_C_FEATURES: u32 = 0x106f;
const VERSION_BYTES: usize = 4;
const NAME_BYTES: usize = 64;
/// What `atomic_work_item_fence` with device scope wants in OpenCL C 3.0; OpenCL C 2.0 has it.
const FEATURES_OF_DEVICE_FENCES: [&str; 2] = ["__opencl_c_atomic_scope_device", "__opencl_c_atomic_order_seq_cst"];
/// `CL_DEVICE_SUB_GROUP_SIZES_INTEL`
const SUB_GROUP_SIZES_INTEL: u32 = 0x4108;

/// What a device has beyond OpenCL C 1.2's core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenClCapabilities {
    /// `cl_khr_fp64`, or `double` by the language's version.
    pub fp64: bool,
    /// `cl_khr_fp16`. No kernel needs it: half precision is computed in `float`.
    pub fp16: bool,
    /// `cl_khr_int64_base_atomics`.
    pub int64_base_atomics: bool,
    /// `cl_khr_int64_extended_atomics`.
    pub int64_extended_atomics: bool,
    /// `CL_FP_DENORM` for `float`.
    pub f32_subnormals: bool,
    /// `CL_FP_DENORM` for `double`; taken for granted, as the specification does, where there is no `double` or the
    /// device does not say.
    pub f64_subnormals: bool,
    /// `-cl-fp32-correctly-rounded-divide-sqrt` has an effect.
    pub correctly_rounded_divide_sqrt: bool,
    /// Size of the largest buffer.
    pub max_allocation_bytes: u64,
    /// Sizes of sub-groups that a kernel may ask for; empty if the device does not say.
    pub sub_group_sizes: Vec<u64>,
    /// Sub-groups of 32 can be asked for and vote (`cl_khr_subgroup_ballot`), in OpenCL C, and are more than loops.
    pub votes_of_sub_groups: bool,
    /// Intermediate language that the device takes (`SPIR-V_1.2`), if any.
    pub il_version: Option<String>,
    /// `CL_DEVICE_COMPILER_AVAILABLE`: it takes OpenCL C.
    pub has_compiler: bool,
    /// Blocks of a launch that may wait for one another: OpenCL promises none. GPUs spread a few over their compute
    /// units, CPUs may run one after another.
    pub max_cooperative_blocks: u64,
    /// Option that makes its compiler take a version of OpenCL C with fences of device scope; `None` if there is none.
    pub device_fences: Option<&'static str>,
}

impl OpenClCapabilities {
    pub(super) fn of(device: DeviceId) -> Self {
        let extensions = device.text(device_api::CL_DEVICE_EXTENSIONS);
        let has = |name: &str| extensions.split_whitespace().any(|e| e == name);
        let float = device.number(device_api::CL_DEVICE_SINGLE_FP_CONFIG);
        let double = device.number(device_api::CL_DEVICE_DOUBLE_FP_CONFIG);
        let sub_group_sizes: Vec<u64> = if has("cl_intel_required_subgroup_size") {
            let sizes = device.bytes(SUB_GROUP_SIZES_INTEL);
            let sizes = sizes.chunks_exact(size_of::<usize>()).map(number);
            // PoCL 7 names 0 among them.
            sizes.filter(|&size| size > 0).collect()
        } else {
            Vec::new()
        };
        // Where a work-item alone can be one, sub-groups are loops of the compiler's, as all of a group is there:
        // nothing is won, and PoCL 5.0 fails an assertion over kernels that vote in them.
        let are_native = !sub_group_sizes.contains(&1);
        let has_compiler = device.number(device_api::CL_DEVICE_COMPILER_AVAILABLE) != 0;
        let il_version = Some(device.text(device_api::CL_DEVICE_IL_VERSION)).filter(|text| !text.is_empty());
        Self {
            fp64: has("cl_khr_fp64") || double != 0,
            fp16: has("cl_khr_fp16"),
            int64_base_atomics: has("cl_khr_int64_base_atomics"),
            int64_extended_atomics: has("cl_khr_int64_extended_atomics"),
            f32_subnormals: float & device_api::CL_FP_DENORM != 0,
            f64_subnormals: double == 0 || double & device_api::CL_FP_DENORM != 0,
            correctly_rounded_divide_sqrt: float & device_api::CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0,
            max_allocation_bytes: device.number(device_api::CL_DEVICE_MAX_MEM_ALLOC_SIZE),
            votes_of_sub_groups: has_compiler
                && are_native
                && sub_group_sizes.contains(&32)
                && has("cl_khr_subgroup_ballot"),
            sub_group_sizes,
            il_version,
            has_compiler,
            max_cooperative_blocks: match device.is_cpu() {
                true => 1,
                false => device.number(device_api::CL_DEVICE_MAX_COMPUTE_UNITS),
            },
            device_fences: device_fences(device),
        }
    }

    /// Names what of `required` the device lacks.
    #[must_use]
    pub fn missing(&self, required: &Requirements) -> Vec<&'static str> {
        let lacking = Requirements {
            fp64: required.fp64 && !self.fp64,
            int64_base_atomics: required.int64_base_atomics && !self.int64_base_atomics,
            int64_extended_atomics: required.int64_extended_atomics && !self.int64_extended_atomics,
            f32_subnormals: required.f32_subnormals && !self.f32_subnormals,
            f64_subnormals: required.f64_subnormals && !self.f64_subnormals,
            correctly_rounded_divide_sqrt: required.correctly_rounded_divide_sqrt
                && !self.correctly_rounded_divide_sqrt,
        };
        lacking.names()
    }
}

/// See [`OpenClCapabilities::device_fences`].
fn device_fences(device: DeviceId) -> Option<&'static str> {
    if device
        .text(device_api::CL_DEVICE_OPENCL_C_VERSION)
        .starts_with("OpenCL C 2.")
    {
        return Some("-cl-std=CL2.0");
    }
    let features = device.bytes(OPENCL_C_FEATURES);
    let has = |wanted: &str| {
        let mut features = features.chunks_exact(VERSION_BYTES + NAME_BYTES);
        features.any(|feature| {
            let name = &feature[VERSION_BYTES..];
            name.strip_prefix(wanted.as_bytes())
                .is_some_and(|rest| rest.first() == Some(&0))
        })
    };
    FEATURES_OF_DEVICE_FENCES
        .into_iter()
        .all(has)
        .then_some("-cl-std=CL3.0")
}
