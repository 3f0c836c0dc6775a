#![allow(unsafe_code, reason = "addresses of C functions")]
//! The functions that generated code may call: listed one by one, so that code from a snapshot can reach nothing else.

use std::ffi::c_void;
use std::time::Duration;

macro_rules! c_functions {
    ($($name:ident)*) => {
        mod c {
            unsafe extern "C" {
                $(pub fn $name();)*
            }
        }
        const C_FUNCTIONS: &[(&str, unsafe extern "C" fn())] = &[$((stringify!($name), c::$name)),*];
    };
}

// Memory functions that LLVM makes of loops, and what its intrinsics become where the processor has no instruction.
// Only the addresses are taken here, so the declarations give no types.
c_functions! {
    memcpy memmove memset memcmp
    sinf cosf log2f exp2f tanhf sin cos log2 exp2 tanh sincos sincosf ldexp ldexpf
    fmaf fma sqrtf sqrt floorf floor ceilf ceil truncf trunc rintf rint nearbyintf nearbyint roundf round
    fmodf fmod fminf fmin fmaxf fmax copysignf copysign
}

extern "C" fn globaltimer() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// PTX ISA, "nanosleep": at most a millisecond. Whoever waits for other threads lets them have the processor.
extern "C" fn nanosleep(nanoseconds: u32) -> u64 {
    std::thread::sleep(Duration::from_nanos(nanoseconds.min(1_000_000).into()));
    0
}

/// Names and addresses.
pub fn all() -> Vec<(&'static str, *const c_void)> {
    let mut functions: Vec<(&'static str, *const c_void)> = C_FUNCTIONS
        .iter()
        .map(|&(name, function)| (name, function as *const c_void))
        .collect();
    functions.push(("hetckpt_globaltimer", globaltimer as *const c_void));
    functions.push(("hetckpt_nanosleep", nanosleep as *const c_void));
    functions
}
