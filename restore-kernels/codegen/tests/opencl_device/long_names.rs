//! Kernels with the names of templates: CUB's and Thrust's have thousands of characters, and drivers name files by
//! kernels.

use hetckpt_abi::program::Program;
use hetckpt_conformance::{Implementation as _, Shape};

use crate::run::FirstDevice;

#[test]
fn a_kernel_whose_name_has_4000_characters() {
    let name = "_ZN3cub".to_owned() + &"6detail".repeat(570) + "xyz";
    assert_eq!(name.len(), 4000);
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n
.visible .entry {name}(.param .u64 input, .param .u64 output)
{{
.reg .b32 %r<4>;
.reg .b64 %rd<4>;
ld.param.u64 %rd1, [output];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, 8;
add.s64 %rd1, %rd1, %rd2;
st.global.u32 [%rd1], %r1;
ret;
}}\n"
    );
    let module = hetckpt_ptx::lower_module(&ptx).unwrap();
    let program = Program::from_start(module.kernels[0].clone());
    let mut output = [0; 32];
    if FirstDevice.run(&program, Shape::one_block([32, 1, 1]), &[0], &mut output) {
        assert_eq!(output, std::array::from_fn(|i| i as u64));
    }
}
