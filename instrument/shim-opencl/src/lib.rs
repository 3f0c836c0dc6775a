//! An OpenCL ICD that runs OpenCL programs through our `libcuda.so.1`.
//!
//! The OpenCL loader opens it as it opens any vendor's. It is a client of the driver API and holds neither driver nor
//! ring: buffers are device memory, queues are streams, programs are compiled by clang to PTX and loaded as modules. So
//! what stops, keeps and restores CUDA programs does the same for OpenCL programs, and knows nothing of this library.
//!
//! An entry point is a line in the `entry_points!` list of its file; it goes through `guard`, which turns errors and
//! panics into a status. The loader finds it in `dispatch_table`.

/// Defines entry points: what they give (a status, or an object and a status by pointer), name, arguments, body.
macro_rules! entry_points {
    ($($kind:ident $name:ident ($($arg:ident: $type:ty),* $(,)?) => $body:path;)*) => {
        $(entry_points!(@$kind $name ($($arg: $type),*) $body);)*
    };
    (@status $name:ident ($($arg:ident: $type:ty),*) $body:path) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "OpenCL's name and signature")]
        pub extern "C" fn $name($($arg: $type),*) -> crate::status::Status {
            crate::guard::status(stringify!($name), || $body($($arg),*))
        }
    };
    (@object $name:ident ($($arg:ident: $type:ty),*) $body:path) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "OpenCL's name and signature")]
        pub extern "C" fn $name(
            $($arg: $type,)*
            errcode: crate::pointers::Out<crate::status::Status>,
        ) -> crate::handles::Handle {
            crate::guard::object(stringify!($name), errcode, || $body($($arg),*))
        }
    };
}

mod status;
mod pointers;
mod log;
mod handles;
mod info;
mod guard;
mod cuda;
mod monitor;
mod options;
mod compile_error;
mod compiler;
mod metadata;
mod ptx_text;
mod binary;
mod executable;
mod command;
mod worker;
mod platform;
mod device;
mod device_printf;
mod context;
mod queue;
mod event;
mod marker;
mod buffer;
mod transfer;
mod map;
mod program;
mod separate_compilation;
mod kernel;
mod launch;
mod unsupported;
mod dispatch_table;
mod icd;
