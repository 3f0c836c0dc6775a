//! Declarations outside of kernels that cannot be read or laid out: only the kernels that use them are rejected.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use hetckpt_ir::module::Module;
use hetckpt_ptx::lower_module;

/// A module of `declarations`, a kernel `uses` with this body and another, `other`.
fn lower(declarations: &str, body: &str) -> Module {
    let text = format!(
        ".version 9.0\n.target sm_80\n.address_size 64\n{declarations}\n.visible .entry uses()\n{{\n.reg .b32 %r<9>;\n\
         .reg .b64 %rd<9>;\n{body}\nret;\n}}\n.visible .entry other() {{ ret; }}\n"
    );
    lower_module(&text).unwrap_or_else(|e| panic!("{declarations}: {e}"))
}

/// Asserts that the kernel with `body`, and no other, is rejected, for this reason.
fn rejects(declarations: &str, body: &str, reason: &str) {
    let module = lower(declarations, body);
    let kernels: Vec<&str> = module.kernels.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(kernels, ["other"], "{declarations}");
    let reasons = &module.rejected[0].reasons;
    assert!(reasons[0].contains(reason), "{declarations}: {reasons:?}");
    // One that does not use it is not affected.
    assert_eq!(lower(declarations, "").kernels.len(), 2, "{declarations}");
}

#[test]
fn broken_variables_reject_their_users() {
    for (declaration, reason) in [
        (".global .u32 x = 1 / 0;", "expected a divisor"),
        (".global .u32 x[2] = {1 2};", "expected `,`"),
        (".global .f8 x;", "type `f8`"),
        (".global .v3 .f32 x;", "expected a type and no more"),
        (".tex .u32 x;", "expected a state space"),
        (".global .u16 x = 0f3F800000;", "its initialiser holds a float"),
        (".global .u32 y, x = ?, z;", "expected a constant"),
    ] {
        let reason = format!("`x` cannot be used: line 4: {reason}");
        rejects(declaration, "mov.u64 %rd1, x;", &reason);
    }
    // Whoever holds the address of such a variable is no better.
    rejects(
        ".global .u64 w = x;\n.global .u64 x = !1.5;\n.global .u64 v = w;",
        "mov.u64 %rd1, v;",
        "`v` cannot be used: it holds the address of `w`",
    );
    rejects(".shared .f8 x;", "mov.u64 %rd1, x;", "type `f8`");
}

#[test]
fn broken_functions_reject_their_callers() {
    for declaration in [
        ".func f(.param .b32 a ?) { ret; }",
        ".func f(.what .b32 a);",
        ".func (.param .b32 ? r) f (.param .b32 a) { ret; }",
        ".visible .func f() ? { { ret; } }",
    ] {
        rejects(declaration, "call f, ();", "`f` cannot be used: line 4");
    }
    rejects(
        ".func f(.reg .v4 .f32 a) { ret; }",
        "call f, (%r1);",
        "calls of `f`: the arguments do not match",
    );
}

#[test]
fn broken_kernels_are_rejected_alone() {
    let module = lower(".entry k(.param .u64 a b) { ret; }", "");
    assert_eq!(module.kernels.len(), 2);
    assert_eq!(module.rejected[0].name, "k");
    assert_eq!(
        module.rejected[0].reasons,
        ["kernel `k`, line 4: expected `,` or `)`, found `b`"]
    );
}

#[test]
fn wide_variables_and_constant_expressions_are_laid_out() {
    let module = lower(
        ".global .b128 wide;
        .const .u32 flags[6] = {5 > 3, 1 ? 7 : 8, !4, -1 >> 28, (3 >= 4) || (2 != 1), 1U << 4};
        .func add(.param .align 16 .v4 .f32 a) { ret; }",
        ".param .align 16 .v4 .f32 p;
        ld.global.v2.u64 {%rd1, %rd2}, [wide];
        st.param.v4.b32 [p], {%r1, %r1, %r1, %r1};
        call add, (p);",
    );
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    assert_eq!((module.globals[0].size_bytes, module.globals[0].align_bytes), (16, 16));
    let words: Vec<u32> = module.globals[1]
        .init
        .chunks(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(words, [1, 7, 0, u32::MAX, 1, 16]);
}
