//! Textures and surfaces: which instructions are taken, and what they cost. What they compute, the test programs
//! `sampling` and `textures` compare with the host.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

use hetckpt_ir::module::Module;

fn lowered(instructions: &str) -> Module {
    let text = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 out)\n{{\n\
         .reg .b16 %h<5>;\n.reg .b32 %r<8>;\n.reg .f32 %f<8>;\n.reg .b64 %l<5>, %x, %o;\n.reg .pred %p;\n\
         ld.param.u64 %x, [p];\nld.param.u64 %o, [out];\n{instructions}\nret;\n}}\n"
    );
    hetckpt_ptx::lower_module(&text).unwrap()
}

fn reasons(instruction: &str) -> String {
    let rejected = lowered(&format!("{instruction};")).rejected;
    rejected.iter().flat_map(|kernel| kernel.reasons.clone()).collect()
}

const RESULT: &str = "{%r0, %r1, %r2, %r3}";

#[test]
fn every_shape_is_read() {
    for (shape, count) in [
        ("1d", 1),
        ("2d", 2),
        ("3d", 4),
        ("a1d", 2),
        ("a2d", 4),
        ("cube", 4),
        ("acube", 4),
    ] {
        let first = if shape.starts_with('a') { "%r4" } else { "%f4" };
        let floats = [first, "%f5", "%f6", "%f7"][..count].join(", ");
        for (kind, level) in [("tex", ""), ("tex.base", ""), ("tex.level", ", %f1")] {
            let read = format!("{kind}.{shape}.v4.u32.f32 {RESULT}, [%x, {{{floats}}}]{level}");
            assert_eq!(reasons(&read), "", "{read}");
        }
        if !shape.contains("cube") {
            let ints = ["%r4", "%r5", "%r6", "%r7"][..count].join(", ");
            let fetch = format!("@%p tex.{shape}.v4.f32.s32 {{%f0, %f1, %f2, %f3}}, [%x, {{{ints}}}]");
            assert_eq!(reasons(&fetch), "", "{fetch}");
            for beyond in ["trap", "clamp", "zero"] {
                for (element, register) in [("b8", "%h1"), ("b16", "%h1"), ("b32", "%r1"), ("b64", "%l1")] {
                    let place = format!("[%x, {{{ints}}}]");
                    let load = format!("suld.b.{shape}.{element}.{beyond} {register}, {place}");
                    let store = format!("@!%p sust.b.{shape}.{element}.{beyond} {place}, {{{register}}}");
                    assert_eq!(reasons(&load) + &reasons(&store), "", "{load}; {store}");
                }
                let load = format!("suld.b.{shape}.cg.v4.b32.{beyond} {RESULT}, [%x, {{{ints}}}]");
                let store = format!("sust.b.{shape}.v2.b64.{beyond} [%x, {{{ints}}}], {{%l1, %l2}}");
                assert_eq!(reasons(&load) + &reasons(&store), "", "{load}; {store}");
            }
        }
    }
    for query in ["txq.width", "txq.num_mipmap_levels", "suq.height", "suq.array_size"] {
        assert_eq!(reasons(&format!("{query}.b32 %r1, [%x]")), "");
    }
    let gather = format!("tld4.b.2d.v4.s32.f32 {RESULT}, [%x, {{%f1, %f2}}]");
    assert_eq!(reasons(&gather), "");
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    for (instruction, reason) in [
        (
            "tex.grad.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%x, {%f4, %f5}], {%f6, %f7}, {%f6, %f7}",
            "gradients",
        ),
        (
            "tex.2dms.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%x, {%r1, %r2, %r3, %r4}]",
            "shape",
        ),
        ("tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%x, {%f4}]", "coordinates"),
        ("tex.2d.v4.f16.f32 {%h0, %h1, %h2, %h3}, [%x, {%f4, %f5}]", "f16"),
        (
            "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%x, %x, {%f4, %f5}]",
            "the address of",
        ),
        (
            "tld4.r.cube.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%x, {%f4, %f5, %f6, %f7}]",
            "four elements",
        ),
        (
            "suld.p.2d.v4.b32.trap {%r0, %r1, %r2, %r3}, [%x, {%r4, %r5}]",
            "formats",
        ),
        ("sured.b.add.2d.u32.trap [%x, {%r4, %r5}], %r1", "atomic"),
        ("txq.normalized_coords.b32 %r1, [%x]", "property"),
    ] {
        let found = reasons(instruction);
        assert!(found.contains(reason), "{instruction}: {found}");
    }
}

#[test]
fn components_that_nobody_looks_at_cost_nothing() {
    let size = |uses: &[&str]| {
        let read = "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%x, {%f4, %f5}];";
        let stores = uses.iter().map(|register| format!("st.global.f32 [%o], {register};"));
        let module = lowered(&format!("{read}\n{}", stores.collect::<String>()));
        let blocks = &module.kernels[0].blocks;
        blocks.iter().map(|block| block.insts.len()).sum::<usize>()
    };
    let (none, one, two) = (size(&[]), size(&["%f0"]), size(&["%f0", "%f3"]));
    assert!(none < 8, "{none}");
    assert!(two - one >= one - none - 2, "{none}, {one}, {two}");
}

/// `make sampler` makes it so.
#[test]
fn the_functions_are_those_of_their_source() {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let nvcc = home.join(".cache/hetckpt/nvcc-13.0/bin/nvcc");
    if !nvcc.exists() {
        eprintln!("skipped: the_functions_are_those_of_their_source (no nvcc 13.0)");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/images");
    let compiled = Command::new(nvcc)
        .args("-ptx -rdc=true -arch=compute_75 --fmad=false -O3 -o -".split(' '))
        .arg(folder.join("sampler.cu"))
        .output()
        .unwrap();
    let compiled = String::from_utf8_lossy(&compiled.stdout).into_owned();
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let compiled: Vec<&str> = compiled.lines().filter(is_code).collect();
    let kept = std::fs::read_to_string(folder.join("sampler.ptx")).unwrap();
    assert!(compiled == kept.lines().collect::<Vec<_>>(), "run `make sampler`");
}
