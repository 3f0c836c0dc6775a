//! Calls by address.
#![allow(clippy::unwrap_used, reason = "tests")]

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::inst::{Op, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::Module;

fn lowered(functions: &str, body: &str) -> Module {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{functions}\n.visible .entry k(.param .u64 p)\n{{\n\
         .reg .b32 %r<4>;\n.reg .b64 %d<4>;\n.reg .pred %q;\nld.param.u64 %d1, [p];\nld.global.u64 %d2, [%d1];\n\
         {{\n.param .b32 a;\nst.param.b32 [a], 7;\n.param .b32 v;\n\
         proto : .callprototype (.param .b32 _) _ (.param .b32 _);\n\
         call (v), %d2, (a), proto;\nld.param.b32 %r1, [v];\n}}\nst.global.u32 [%d1], %r1;\n{body}\nret;\n}}\n"
    );
    hetckpt_ptx::lower_module(&text).unwrap()
}

/// A function that multiplies by `factor`.
fn times(name: &str, factor: u32) -> String {
    format!(
        ".func (.param .b32 v) {name}(.param .b32 a) {{ .reg .b32 %r<3>; ld.param.b32 %r1, [a];\n\
         mul.lo.u32 %r2, %r1, {factor}; st.param.b32 [v], %r2; ret; }}\n"
    )
}

fn has_factor(kernel: &Kernel, factor: u64) -> bool {
    let mut insts = kernel.blocks.iter().flat_map(|block| &block.insts);
    insts.any(|inst| matches!(&inst.op, Op::Alu { srcs, .. } if srcs.contains(&Operand::Imm(factor))))
}

fn traps(kernel: &Kernel) -> bool {
    let mut blocks = kernel.blocks.iter();
    blocks.any(|block| matches!(block.terminator, Terminator::Trap))
}

#[test]
fn those_whose_addresses_are_taken_may_be_meant() {
    let other = ".func (.param .b32 v) other(.param .b64 a) { st.param.b32 [v], 1; ret; }\n";
    let table = ".global .u64 table[2] = {third, other};\n";
    let functions: [&str; 5] = [
        &times("first", 3),
        &times("second", 5),
        &times("third", 7),
        other,
        table,
    ];
    let module = lowered(&functions.concat(), "mov.u64 %d3, first; st.global.u64 [%d1], %d3;");
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    let kernel = &module.kernels[0];
    assert!(kernel.holds_functions && traps(kernel));
    // The second one's address is not taken.
    assert_eq!([3, 5, 7].map(|factor| has_factor(kernel, factor)), [true, false, true]);
    let global = &module.globals[0];
    assert!(global.relocations.is_empty() && global.init.len() == 16 && global.init[7] == 0xF1);
}

#[test]
fn addresses_are_of_a_name_and_what_it_does() {
    let table = ".global .u64 table = f;\n";
    let address = |functions: &str| {
        let module = lowered(&format!("{table}{functions}"), "");
        u64::from_le_bytes(module.globals[0].init[..].try_into().unwrap())
    };
    let of_f = address(&times("f", 3));
    // No memory has such an address, and a pointer to a member function that is odd would mean a virtual one.
    assert_eq!((of_f >> 56, of_f % 16), (0xF1, 0));
    assert_eq!(of_f, address(&(times("g", 5) + &times("f", 3) + &times("h", 7))));
    assert_ne!(of_f, address(&times("f", 5)));
}

#[test]
fn a_function_that_may_call_itself_is_taken() {
    let itself = ".global .u64 table = itself;\n.func (.param .b32 v) itself(.param .b32 a) {\n\
                  .reg .b32 %r<3>; .reg .b64 %d<3>; ld.param.b32 %r1, [a];\n\
                  { .param .b32 b; st.param.b32 [b], %r1; .param .b32 w; mov.u64 %d1, table; ld.global.u64 %d2, [%d1];\n\
                  proto : .callprototype (.param .b32 _) _ (.param .b32 _);\n\
                  call (w), %d2, (b), proto; ld.param.b32 %r2, [w]; }\n\
                  st.param.b32 [v], %r2; ret; }\n";
    let module = lowered(itself, "");
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    assert!(traps(&module.kernels[0]));
}
