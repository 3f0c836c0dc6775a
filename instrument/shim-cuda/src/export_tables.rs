//! The tables of `cuGetExportTable`: how the CUDA runtime reaches what is not in the public API.
//!
//! A table is an array of 8-byte slots; slot 0 holds its size in bytes, except in the storage table. The runtime calls
//! slots without looking whether they are NULL, so each has a function, most of them one that does nothing. The tables
//! are statics: their addresses go into the integrity check.
#![allow(unsafe_code, reason = "functions called by the runtime, pointers to them")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::checkpoint_tool;
use crate::handles::Handle;
use crate::integrity::Question;
use crate::library_tables;
use crate::pointers::Out;
use crate::result::CuResult;
use crate::session::{self, Session};
use crate::storage::Destructor;
use crate::table_slots::{Address, Slot, flat, or_current, size};
use crate::version::DRIVER_VERSION;

const NOTHING: Slot = Slot(do_nothing as *const c_void);

static ERROR_LOG: [Slot; 3] = [size(24), NOTHING, NOTHING];
static CUDART_INTERFACE: [Slot; 13] = {
    let mut table = [NOTHING; 13];
    table[0] = size(104);
    table[2] = Slot(primary_context as *const c_void);
    table
};
static TOOLS_CALLBACKS: [Slot; 7] = {
    let mut table = [NOTHING; 7];
    table[0] = size(56);
    table[2] = Slot(runtime_hooks as *const c_void);
    table[6] = Slot(more_hooks as *const c_void);
    table
};
static TOOLS_TLS: [Slot; 5] = [size(40), NOTHING, NOTHING, NOTHING, NOTHING];
static STORAGE: [Slot; 8] = {
    let mut table = [NOTHING; 8];
    table[0] = Slot(storage_put as *const c_void);
    table[1] = Slot(storage_delete as *const c_void);
    table[2] = Slot(storage_get as *const c_void);
    table
};
static CONTEXT_CHECKS: [Slot; 15] = {
    let mut table = [NOTHING; 15];
    table[0] = size(120);
    table[2] = Slot(context_flags as *const c_void);
    table
};
/// Of NVIDIA's `cuda-checkpoint`, which does nothing but to call it.
static CHECKPOINT: [Slot; 8] = {
    let mut table = [NOTHING; 8];
    table[0] = size(64);
    table[7] = Slot(checkpoint_tool::main as *const c_void);
    table
};
static INTEGRITY: [Slot; 3] = [size(24), Slot(integrity_answer as *const c_void), NOTHING];

static TABLES: &[(u128, &[Slot])] = &[
    (0xf8cf_f951_2146_8b4e_b9e2_fb46_9e7c_0dd9, &ERROR_LOG),
    (0x6bd5_fb6c_5bf4_e74a_8987_d939_12fd_9df9, &CUDART_INTERFACE),
    (0xa094_798c_2e74_2e74_93f2_0800_200c_0a66, &TOOLS_CALLBACKS),
    (0x42d8_5a81_23f6_cb47_8298_f6e7_8a3a_ecdc, &TOOLS_TLS),
    (0x2131_8c60_9714_3248_8ca6_41ff_7324_c8f2, &library_tables::CONTEXTS),
    (0x6e16_3fbe_b958_444d_835c_e182_aff1_991e, &library_tables::MODULES),
    (0x1734_dc26_800d_4745_8726_c0f1_e7dd_8bca, &library_tables::REFUSING),
    (0x7cb6_3f9b_9ca4_8e42_a484_beb6_6e6a_ed7f, &library_tables::PROFILING),
    (0xc693_336e_1121_df11_a8c3_68f3_55d8_9593, &STORAGE),
    (0x263e_8860_7cd2_6143_92f6_bbd5_006d_fa7e, &CONTEXT_CHECKS),
    (0x69a2_8e9f_2449_8b47_b030_c5da_330e_a4e9, &CHECKPOINT),
    (0xd408_2055_bde6_704b_8d34_ba12_3c66_e1f2, &INTEGRITY),
];

/// The table with this UUID, if it is known: tools and compilers ask for more, and do without.
pub fn find(uuid: [u8; 16]) -> Option<Address> {
    let uuid = u128::from_be_bytes(uuid);
    TABLES
        .iter()
        .find(|(of, _)| *of == uuid)
        .map(|(_, table)| Address(table.as_ptr().cast()))
}

extern "C" fn do_nothing() -> u64 {
    0
}

/// The device's primary context, without holding it.
extern "C" fn primary_context(out: Out<Handle>, device: i32) -> CuResult {
    flat(|| {
        let session = session::get()?;
        if device != 0 {
            return Err(CuResult::INVALID_DEVICE);
        }
        out.set(session.primary)
    })
}

/// Words that tools set to be called around runtime functions; they stay 0.
extern "C" fn runtime_hooks(words: Out<Address>, count: Out<usize>) {
    static HOOKS: [AtomicU32; 1024] = [const { AtomicU32::new(0) }; 1024];
    words.set_if_wanted(Address(HOOKS.as_ptr().cast()));
    count.set_if_wanted(HOOKS.len());
}

extern "C" fn more_hooks(words: Out<Address>, count: Out<usize>) {
    static HOOKS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    words.set_if_wanted(Address(HOOKS.as_ptr().cast()));
    count.set_if_wanted(HOOKS.len());
}

extern "C" fn storage_put(context: Handle, key: *mut c_void, value: *mut c_void, destructor: Destructor) -> CuResult {
    flat(|| {
        let session = session::get()?;
        session.storage.put(or_current(context)?, key, value, destructor);
        Ok(())
    })
}

extern "C" fn storage_delete(context: Handle, key: *mut c_void) -> CuResult {
    flat(|| {
        session::get()?.storage.delete(or_current(context)?, key);
        Ok(())
    })
}

extern "C" fn storage_get(value: Out<Address>, context: Handle, key: *mut c_void) -> CuResult {
    flat(|| {
        let session = session::get()?;
        value.set(Address(session.storage.get(or_current(context)?, key)?))
    })
}

extern "C" fn context_flags(_context: Handle, flags: Out<u32>, _more: *mut c_void) -> CuResult {
    flags.set_if_wanted(0);
    CuResult::SUCCESS
}

extern "C" fn integrity_answer(version: u32, unix_seconds: u64, out: Out<[u8; 16]>) -> CuResult {
    flat(|| {
        let session = session::get()?;
        out.set(question(session, version, unix_seconds).answer())
    })
}

fn question(session: &Session, version: u32, unix_seconds: u64) -> Question {
    let address = |pointer: *const c_void| pointer.addr() as u64;
    // SAFETY: no preconditions.
    let thread = unsafe { libc::pthread_self() };
    Question {
        driver_version: DRIVER_VERSION,
        version,
        pid: std::process::id(),
        thread: thread as u32,
        addresses: [
            address(CUDART_INTERFACE.as_ptr().cast()),
            address(INTEGRITY.as_ptr().cast()),
            address(INTEGRITY[1].0),
        ],
        unix_seconds,
        devices: vec![(
            session.device.description.uuid,
            [50, 33, 34].map(|number| session.device.attribute_u32(number)),
        )],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn tables_say_their_size_and_have_no_empty_slot() {
        for (uuid, table) in TABLES {
            let first = table[0].0.addr();
            // Only CUPTI looks whether there is a function.
            let is_profiling = std::ptr::eq(*table, &raw const library_tables::PROFILING);
            assert!(is_profiling || table.iter().all(|slot| !slot.0.is_null()));
            let is_storage = *uuid == 0xc693_336e_1121_df11_a8c3_68f3_55d8_9593;
            assert_eq!(first == table.len() * 8, !is_storage, "{uuid:032x}");
        }
    }

    #[test]
    fn finds_tables_by_uuid_as_it_lies_in_memory() {
        let uuid = [
            0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9,
        ];
        assert_eq!(find(uuid).unwrap().0, CUDART_INTERFACE.as_ptr().cast());
        assert_eq!(find([1; 16]), None);
    }

    #[test]
    fn hooks_are_zero_and_many() {
        let (mut words, mut count) = (Address(std::ptr::null()), 0);
        runtime_hooks(Out::to(&mut words), Out::to(&mut count));
        assert!(!words.0.is_null() && count >= 523);
    }
}
