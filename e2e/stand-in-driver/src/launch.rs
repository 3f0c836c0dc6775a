//! Launches, which do nothing, but that kernels that print print their names.

use std::ffi::c_void;

use crate::module::Function;
use crate::output;
use crate::result::{INVALID_VALUE, SUCCESS};

type Grid = u32;

fn launch(function: Option<&'static Function>, params: *const *const c_void) -> u32 {
    match function {
        Some(function) if params.is_null() && !function.params.is_empty() => INVALID_VALUE,
        Some(function) => {
            if let Some(text) = function.printed() {
                output::print(&text);
            }
            SUCCESS
        }
        None => INVALID_VALUE,
    }
}

driver_api! {
    fn cuLaunchKernel(
        function: Option<&'static Function>,
        _gx: Grid, _gy: Grid, _gz: Grid,
        _bx: Grid, _by: Grid, _bz: Grid,
        _shared: u32,
        _stream: u64,
        params: *const *const c_void,
        _extra: *const c_void,
    ) {
        launch(function, params)
    }
    fn cuLaunchKernelEx(
        _config: usize,
        function: Option<&'static Function>,
        params: *const *const c_void,
        _extra: *const c_void,
    ) {
        launch(function, params)
    }
    fn cuLaunchCooperativeKernel(
        function: Option<&'static Function>,
        _gx: Grid, _gy: Grid, _gz: Grid,
        _bx: Grid, _by: Grid, _bz: Grid,
        _shared: u32,
        _stream: u64,
        params: *const *const c_void,
    ) {
        launch(function, params)
    }
}
