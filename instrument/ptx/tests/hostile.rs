//! What a malicious or damaged text may do to the front end: get an answer, soon. Nothing here is timed; a text that
//! made the front end quadratic or recursive without bound would not come back, or overflow the stack.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use hetckpt_ir::module::Module;
use hetckpt_ptx::{Error, lower_module};

fn kernel(body: &str) -> String {
    format!(".version 9.0\n.target sm_80\n.address_size 64\n.entry k()\n{{\n{body}\n}}\n")
}

fn reasons(text: &str) -> Vec<String> {
    let module: Module = lower_module(text).unwrap();
    assert!(module.kernels.is_empty(), "the kernel was lowered");
    module.rejected.into_iter().flat_map(|r| r.reasons).collect()
}

#[test]
fn deep_constants_are_refused() {
    for text in ["(", "-", "~"] {
        let body = format!(".reg .b32 %r<2>;\nmov.u32 %r1, {}1;", text.repeat(100_000));
        assert!(reasons(&kernel(&body))[0].contains("line 7: expected a constant nested less deeply"));
    }
}

#[test]
fn deep_scopes_are_refused() {
    let body = format!("{}{}", "{".repeat(100_000), "}".repeat(100_000));
    assert!(reasons(&kernel(&body))[0].contains("expected an instruction, found `{`"));
}

#[test]
fn deep_operands_are_refused() {
    let body = format!("call {}x;", "(".repeat(100_000));
    assert!(reasons(&kernel(&body))[0].contains("nested less deeply"));
    let body = format!(".reg .b32 %r<2>;\nmov.b32 %r1, {}", "{".repeat(100_000));
    assert!(matches!(lower_module(&kernel(&body)), Err(Error::Syntax { .. })));
}

#[test]
fn deep_initialisers_are_refused() {
    let text = format!(".global .u32 x[2] = {}1;", "{".repeat(100_000));
    let Err(Error::Syntax { errors }) = lower_module(&text) else {
        panic!("accepted")
    };
    assert_eq!(errors[0].expected, "an initialiser nested less deeply");
}

#[test]
fn huge_register_ranges_cost_nothing() {
    let body = ".reg .b32 %r<18446744073709551615>;\nmov.u32 %r4294967296, %tid.x;\nret;";
    let module = lower_module(&kernel(body)).unwrap();
    assert_eq!(module.kernels[0].registers.len(), 1);
}

#[test]
fn huge_variables_are_refused() {
    let shared = kernel(".shared .align 4 .b8 x[4294967296];\nret;");
    assert!(reasons(&shared)[0].contains("more than 1073741824"));
    let shared = kernel(".shared .align 1073741824 .b8 x[1];\nret;");
    assert!(reasons(&shared)[0].contains("an alignment of 1073741824"));
    for (global, why) in [
        (".global .b64 x[4294967296][4294967296];", "line 1: a variable of"),
        (
            ".global .b64 x[][4294967296][4294967296][4294967296] = {{1}, {2}};",
            "line 1: ",
        ),
        (
            ".global .b8 x[2] = {1, 2, 3};",
            "line 1: its initialiser is larger than the variable",
        ),
    ] {
        let text = format!("{global}{}", kernel(".reg .b64 %rd<2>;\nmov.u64 %rd1, x;"));
        let reasons = reasons(&text);
        let expected = format!("line 7, `mov.u64`: `x` cannot be used: {why}");
        assert!(reasons[0].contains(&expected), "{reasons:?}");
    }
}

#[test]
fn long_chains_of_variables_that_cannot_be_used_are_fast() {
    let mut text = ".global .u64 x50000 = 1 / 0;\n".to_owned();
    for n in (0..50_000).rev() {
        text += &format!(".global .u64 x{n} = x{};\n", n + 1);
    }
    text += &kernel(".reg .b64 %rd<2>;\nmov.u64 %rd1, x0;");
    assert!(reasons(&text)[0].contains("it holds the address of `x1`, which cannot be used either"));
}

#[test]
fn calls_that_multiply_are_refused() {
    let mut text = ".func f0() { ret; }\n".to_owned();
    for level in 1..16 {
        let call = format!("call.uni f{}, ();\n", level - 1);
        text += &format!(".func f{level}() {{ {} ret; }}\n", call.repeat(8));
    }
    text += ".entry k() { call.uni f15, (); ret; }\n";
    assert!(reasons(&text)[0].contains("an inlined kernel of 1048577"));
}

#[test]
fn many_scopes_labels_and_ranges_are_fast() {
    let mut body = String::new();
    for n in 0..20_000 {
        body += &format!("{{ .reg .b32 x{n}_<4>; x{n}: mov.u32 x{n}_1, {n}; bra x{n}; }}\n");
        body += &format!(".reg .b32 %y{n}_<4>; mov.u32 %y{n}_3, 1;\n");
    }
    let module = lower_module(&kernel(&body)).unwrap();
    assert_eq!(module.kernels[0].blocks.len(), 2);
}

#[test]
fn long_chains_of_generic_addresses_are_fast() {
    let mut body = ".reg .b64 %rd<50000>;\n.shared .b32 x;\nmov.u64 %rd1, x;\n".to_owned();
    for n in (3..50_000).rev() {
        body += &format!("mov.u64 %rd{n}, %rd{};\n", n - 1);
    }
    body += "cvta.shared.u64 %rd2, %rd1;\nst.u32 [%rd49999], 1;\nret;";
    let module = lower_module(&kernel(&body)).unwrap();
    let text = hetckpt_ir::text::print::kernel(&module.kernels[0]);
    assert!(text.contains("st.shared.u32"), "the address's origin was not found");
}

#[test]
fn messages_are_limited() {
    let body = "frobnicate;\n".repeat(10_000);
    assert_eq!(reasons(&kernel(&body)).len(), 17);
    let body = "frobnicate frobnicate;\n".repeat(10_000);
    assert!(reasons(&kernel(&body)).len() <= 17);
    let text = ".global;\n".repeat(10_000);
    let Err(Error::Syntax { errors }) = lower_module(&text) else {
        panic!("accepted")
    };
    assert_eq!(errors.len(), 32);
}

#[test]
fn truncated_texts_are_refused() {
    let text = kernel(".reg .b32 %r<2>;\nmov.u32 %r1, 5;\nret;");
    for end in 0..text.len() - 3 {
        let part = &text[..end];
        if part.contains(".entry") {
            assert!(
                matches!(lower_module(part), Err(Error::Syntax { .. })),
                "{part:?} was accepted"
            );
        }
    }
}

#[test]
fn other_address_sizes_are_refused() {
    assert_eq!(
        lower_module(".version 7.0\n.address_size 32"),
        Err(Error::AddressSize { line: 2, bits: 32 })
    );
}

#[test]
fn syntax_errors_outside_of_bodies_are_all_found() {
    let text = ".global .u32 = 5;\n.entry k() { ret; }\n.global .u32 x;\n.entry 7() { ret; }\n";
    let Err(Error::Syntax { errors }) = lower_module(text) else {
        panic!("accepted")
    };
    let lines: Vec<_> = errors.iter().map(|e| e.line).collect();
    assert_eq!(lines, [1, 4]);
    assert_eq!(errors[0].to_string(), "line 1: expected a variable's name, found `=`");
}
