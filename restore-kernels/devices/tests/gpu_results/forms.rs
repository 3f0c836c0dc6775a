//! Forms of PTX instructions: what the front end makes of each, in the reference interpreter, against what a GPU's own
//! assembler and hardware make of it, over 1024 operands each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_interp::{GlobalMemory, Launch, run};
use hetckpt_ir::types::Dim3;

use crate::{gpu, matrices};

/// One block's threads, each with operands of its own.
const THREADS: u32 = 1024;
/// Every so many results one is kept beside their hash.
const SAMPLE_STEP: usize = 64;

/// All, with their names.
fn all_forms() -> Vec<(String, String)> {
    let plain = forms().into_iter().map(|form| (form.clone(), form));
    plain.chain(matrices::forms()).collect()
}

/// Instructions that put their result into `%r0`, `%rd0` or `%h0`. Operands are `%r1` to `%r3`, `%rd1` to `%rd3`, of
/// which those are the low words, and `%h1` to `%h3`, their low halves.
fn forms() -> Vec<String> {
    let mut forms = vec![];
    let mut add = |template: &str, choices: &[&[&str]]| {
        let mut all = vec![template.to_owned()];
        for choice in choices {
            all = all
                .iter()
                .flat_map(|form| choice.iter().map(|text| form.replacen('@', text, 1)))
                .collect();
        }
        forms.extend(all);
    };
    let prmt: &[&str] = &["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"];
    add("prmt.b32@ %r0, %r1, %r2, %r3", &[prmt]);
    let least: &[&str] = &["min", "max"];
    add("@.s32 %r0, %r1, %r2", &[least]);
    add("@.relu.s32 %r0, %r1, %r2", &[least]);
    add("@.@ %r0, %r1, %r2", &[least, &["u16x2", "s16x2", "relu.s16x2"]]);
    add("add.@ %r0, %r1, %r2", &[&["u16x2", "s16x2"]]);
    add(
        "@.@ %h0, %h1, %h2",
        &[least, &["f16", "NaN.f16", "bf16", "NaN.bf16", "ftz.f16"]],
    );
    add(
        "@.@ %r0, %r1, %r2",
        &[least, &["f16x2", "NaN.f16x2", "bf16x2", "NaN.bf16x2", "f32", "NaN.f32"]],
    );
    add("fma.rn@.f16 %h0, %h1, %h2, %h3", &[&["", ".sat", ".relu", ".ftz"]]);
    add("fma.rn@.f16x2 %r0, %r1, %r2, %r3", &[&["", ".sat", ".relu", ".ftz"]]);
    add("fma.rn@.bf16 %h0, %h1, %h2, %h3", &[&["", ".relu"]]);
    add("fma.rn@.bf16x2 %r0, %r1, %r2, %r3", &[&["", ".relu"]]);
    let sums: &[&str] = &["add", "sub", "mul"];
    add("@@.f16 %h0, %h1, %h2", &[sums, &["", ".sat", ".ftz"]]);
    add("@@.f16x2 %r0, %r1, %r2", &[sums, &["", ".sat"]]);
    add("@.bf16 %h0, %h1, %h2", &[sums]);
    add("@.bf16x2 %r0, %r1, %r2", &[sums]);
    add("@.@ %h0, %h1", &[&["neg", "abs"], &["f16", "bf16"]]);
    add("@.@ %r0, %r1", &[&["neg", "abs"], &["f16x2", "bf16x2"]]);
    add(
        "cvt.rn.satfinite@.@.f32 %h0, %r1, %r2",
        &[&["", ".relu"], &["e4m3x2", "e5m2x2"]],
    );
    add(
        "cvt.rn.satfinite@.@.f16x2 %h0, %r1",
        &[&["", ".relu"], &["e4m3x2", "e5m2x2"]],
    );
    add("cvt.rn@.f16x2.@ %r0, %h1", &[&["", ".relu"], &["e4m3x2", "e5m2x2"]]);
    add(
        "cvt.@@.@.f32 %r0, %r1, %r2",
        &[&["rn", "rz"], &["", ".relu"], &["f16x2", "bf16x2"]],
    );
    add(
        "cvt.@@.@.f32 %h0, %r1",
        &[&["rn", "rz"], &["", ".relu"], &["f16", "bf16"]],
    );
    add("cvt.pack.sat.@.s32 %r0, %r1, %r2", &[&["u16", "s16"]]);
    add(
        "cvt.pack.sat.@.s32.b32 %r0, %r1, %r2, %r3",
        &[&["u8", "s8", "u4", "s4", "u2", "s2"]],
    );
    let rounding: &[&str] = &["rni", "rzi", "rmi", "rpi"];
    add(
        "cvt.@.@.f32 %rd9, %r1; mov.b64 %rd0, %rd9",
        &[rounding, &["s64", "u64"]],
    );
    add("cvt.@.@.f32 %r0, %r1", &[rounding, &["s32", "u32", "s16", "u16"]]);
    add("cvt.@.@.f16 %r0, %h1", &[rounding, &["s32", "u32"]]);
    add("cvt.@.@.f64 %r0, %rd1", &[rounding, &["s32", "u32"]]);
    add("cvt.rn.f32.@ %r0, %rd1", &[&["s64", "u64"]]);
    add(
        "cvt.sat.@.s64 %rd0, %rd1",
        &[&["s8", "u8", "s16", "u16", "s32", "u32", "u64"]],
    );
    add("cvt.sat.@.s32 %r0, %r1", &[&["s8", "u8", "s16", "u16", "u32"]]);
    add("szext.@.@ %r0, %r1, %r2", &[&["wrap", "clamp"], &["u32", "s32"]]);
    add("bmsk.@.b32 %r0, %r1, %r2", &[&["wrap", "clamp"]]);
    add(
        "lop3.b32 %r0, %r1, %r2, %r3, @",
        &[&["0x96", "0xE8", "0xCA", "0x1B", "0x71"]],
    );
    add("bfe.@ %r0, %r1, %r2, %r3", &[&["u32", "s32"]]);
    add("bfe.@ %rd0, %rd1, %r2, %r3", &[&["u64", "s64"]]);
    add("bfi.b32 %r0, %r1, %r2, %r3, 9", &[]);
    add("bfi.b64 %rd0, %rd1, %rd2, %r3, 21", &[]);
    add("bfind@.@ %r0, %r1", &[&["", ".shiftamt"], &["u32", "s32"]]);
    add("bfind@.@ %r0, %rd1", &[&["", ".shiftamt"], &["u64", "s64"]]);
    add("@.b32 %r0, %r1", &[&["brev", "clz", "popc", "cnot", "not"]]);
    add("brev.b64 %rd0, %rd1", &[]);
    add("@.b64 %r0, %rd1", &[&["clz", "popc"]]);
    add("dp4a.@.@ %r0, %r1, %r2, %r3", &[&["u32", "s32"], &["u32", "s32"]]);
    add(
        "dp2a.@.@.@ %r0, %r1, %r2, %r3",
        &[&["lo", "hi"], &["u32", "s32"], &["u32", "s32"]],
    );
    add("mul24.@.@ %r0, %r1, %r2", &[&["lo", "hi"], &["u32", "s32"]]);
    add("mad24.@.@ %r0, %r1, %r2, %r3", &[&["lo", "hi"], &["u32", "s32"]]);
    add("mad24.hi.sat.s32 %r0, %r1, %r2, %r3", &[]);
    add("mad.hi.sat.s32 %r0, %r1, %r2, %r3", &[]);
    add("sad.@ %r0, %r1, %r2, %r3", &[&["u32", "s32"]]);
    add(
        "vabsdiff@.u32.u32.u32@ %r0, %r1, %r2, %r3",
        &[&["2", "4"], &["", ".add"]],
    );
    add("mul.@.@ %rd0, %rd1, %rd2", &[&["lo", "hi"], &["u64", "s64"]]);
    add("mad.wide.@ %rd0, %r1, %r2, %rd3", &[&["u32", "s32"]]);
    add("shf.@.@.b32 %r0, %r1, %r2, %r3", &[&["l", "r"], &["wrap", "clamp"]]);
    add("@.sat.s32 %r0, %r1, %r2", &[&["add", "sub"]]);
    add("copysign.f32 %r0, %r1, %r2", &[]);
    let magnitudes: &[&str] = &["xorsign.abs", "NaN.xorsign.abs"];
    add("@.@.@ %r0, %r1, %r2", &[least, magnitudes, &["f32", "f16x2", "bf16x2"]]);
    add("@.@.@ %h0, %h1, %h2", &[least, magnitudes, &["f16", "bf16"]]);
    add("cvt.@.tf32.f32 %r0, %r1", &[&["rna", "rn", "rz", "rn.relu", "rz.relu"]]);
    add(
        "and.b32 %r2, %r2, 31; bfe.s32 %r3, %r3, 0, 4; fns.b32 %r0, %r1, %r2, %r3",
        &[],
    );
    add(
        "setp.lt.s32 %p2, %r1, %r3; lop3.@.b32 %r8|%p1, %r1, %r2, %r3, @, @%p2; \
         selp.b32 %r7, 1, 0, %p1; xor.b32 %r0, %r8, %r7",
        &[&["or", "and"], &["0x80", "0x96"], &["", "!"]],
    );
    add(
        "setp.lt.s32 %p2, %r1, %r3; lop3.or.b32 _|%p1, %r1, %r2, %r3, 0x80, %p2; selp.b32 %r0, 1, 0, %p1",
        &[],
    );
    let order: &[&str] = &[
        "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
    ];
    add("set.@.@.f16 %h0, %h1, %h2", &[order, &["f16"]]);
    add("set.@.@.f16x2 %r0, %r1, %r2", &[order, &["f16x2"]]);
    add("set.@.u32.f16 %r0, %h1, %h2", &[order]);
    add("set.@.bf16x2.bf16x2 %r0, %r1, %r2", &[order]);
    add("set.@.f32.f32 %r0, %r1, %r2", &[order]);
    add(
        "setp.@.f16x2 %p1|%p2, %r1, %r2; selp.b32 %r8, 1, 0, %p1; selp.b32 %r0, 2, %r8, %p2",
        &[order],
    );
    let kinds: &[&str] = &["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
    add("testp.@.f32 %p1, %r1; selp.b32 %r0, 1, 0, %p1", &[kinds]);
    add("testp.@.f64 %p1, %rd1; selp.b32 %r0, 1, 0, %p1", &[kinds]);
    forms
}

/// A kernel `k` of an address of operands and one of results.
fn module(form: &str) -> String {
    let result = match form {
        _ if form.contains("%rd0") => "mov.b64 %rd8, %rd0;",
        _ if form.contains("%r0") => "cvt.u64.u32 %rd8, %r0;",
        _ => "cvt.u64.u16 %rd8, %h0;",
    };
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b)\n{{\n\
         .reg .pred %p<4>;\n.reg .b16 %h<10>;\n.reg .b32 %r<12>;\n.reg .b64 %rd<12>;\n\
         ld.param.u64 %rd4, [a];\nld.param.u64 %rd5, [b];\nmov.u32 %r9, %tid.x;\n\
         mul.wide.u32 %rd6, %r9, 24;\nadd.s64 %rd6, %rd4, %rd6;\n\
         mul.wide.u32 %rd7, %r9, 8;\nadd.s64 %rd7, %rd5, %rd7;\n\
         ld.global.u64 %rd1, [%rd6];\nld.global.u64 %rd2, [%rd6+8];\nld.global.u64 %rd3, [%rd6+16];\n\
         cvt.u32.u64 %r1, %rd1;\ncvt.u32.u64 %r2, %rd2;\ncvt.u32.u64 %r3, %rd3;\n\
         cvt.u16.u64 %h1, %rd1;\ncvt.u16.u64 %h2, %rd2;\ncvt.u16.u64 %h3, %rd3;\n\
         {form};\n{result}\nst.global.u64 [%rd7], %rd8;\nret;\n}}\n"
    )
}

/// Three operands for each thread: any bits, small numbers, and floating-point numbers of every width near the edges.
fn operands() -> Vec<u64> {
    let mut state = 0x5EED_u64;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    const EDGES: [u64; 12] = [
        0,
        0x8000_0000_8000_8000,
        0x3FF0_0000_3C00_3C00,
        0x7FF0_0000_7C00_7C00,
        0xFFF0_0000_FC00_FC00,
        0x7FF8_0000_7E00_7F80,
        0x0000_0000_0001_0001,
        0x7F80_0000_7F80_0000,
        0x7FC0_0001_7FC0_0001,
        0x43E0_0000_4F00_0000,
        0x0010_0000_0080_0000,
        u64::MAX,
    ];
    let mut operand = || {
        let bits = next();
        match next() % 8 {
            0..=2 => bits,
            3 => bits % 70,
            // f32 of moderate size, which is bf16 in its high half too.
            4 => (bits & !0x7F80_0000) | ((100 + (bits >> 40) % 56) << 23),
            // Pairs of halves of moderate size.
            5 => (bits & !0x7C00_7C00) | (8 + (bits >> 40) % 14) << 10 | (8 + (bits >> 50) % 14) << 26,
            6 => EDGES[(bits % 12) as usize],
            _ => EDGES[(bits % 12) as usize].wrapping_add((bits >> 60).wrapping_sub(8)),
        }
    };
    (0..THREADS * 3).map(|_| operand()).collect()
}

/// The results of the front end's kernel, or why there is none.
fn lowered(form: &str, operands: &[u64]) -> Result<Vec<u64>, String> {
    const OPERANDS_AT: u64 = 0x2000_0000_0000;
    const RESULTS_AT: u64 = 0x2000_1000_0000;
    let module = hetckpt_ptx::lower_module(&module(form)).map_err(|e| e.to_string())?;
    let kernel = module.kernels.first().ok_or_else(|| format!("{:?}", module.rejected))?;
    let program = Program::from_start(kernel.clone());
    let layout = ThreadStateLayout::new(&program.kernel);
    let mut params = OPERANDS_AT.to_le_bytes().to_vec();
    params.extend(RESULTS_AT.to_le_bytes());
    let (grid, block) = (Dim3 { x: 1, y: 1, z: 1 }, Dim3 { x: THREADS, y: 1, z: 1 });
    let mut memory = GlobalMemory::new();
    memory.map(
        OPERANDS_AT,
        operands.iter().flat_map(|word| word.to_le_bytes()).collect(),
    );
    memory.map(RESULTS_AT, vec![0; THREADS as usize * 8]);
    run(Launch::new(&program, &layout, grid, block, &params), &mut memory).map_err(|e| e.to_string())?;
    let words = memory.range(RESULTS_AT).unwrap().chunks_exact(8);
    Ok(words.map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect())
}

fn hash(results: &[u64]) -> String {
    let bytes: Vec<u8> = results.iter().flat_map(|word| word.to_le_bytes()).collect();
    blake3::hash(&bytes).to_hex()[..16].to_owned()
}

fn samples(results: &[u64]) -> String {
    let samples = results.iter().step_by(SAMPLE_STEP).map(|word| format!("{word:x}"));
    samples.collect::<Vec<_>>().join(" ")
}

/// What a GPU has computed: hash and samples by form.
fn recorded() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let lines = include_str!("forms.txt").lines();
    lines
        .filter_map(|line| {
            let mut fields = line.split('\t');
            Some((fields.next()?, (fields.next()?, fields.next()?)))
        })
        .collect()
}

#[test]
fn forms_are_what_a_gpu_makes_of_them() {
    let operands = operands();
    let device = gpu::wanted();
    let known = recorded();
    let (mut wrong, mut record) = (String::new(), String::new());
    let forms = all_forms();
    for (name, form) in &forms {
        let name = name.as_str();
        let ours = lowered(form, &operands);
        let Some(device) = device else {
            let Some(&(hash_there, samples_there)) = known.get(name) else {
                writeln!(wrong, "{name}: no GPU's results are there").unwrap();
                continue;
            };
            match ours {
                Err(why) => writeln!(wrong, "{name}: {why}").unwrap(),
                Ok(ours) if hash(&ours) != hash_there => {
                    writeln!(wrong, "{name}:\n  here   {}\n  on GPU {samples_there}", samples(&ours)).unwrap();
                }
                Ok(_) => {}
            }
            continue;
        };
        let mut theirs = vec![0; THREADS as usize];
        if let Err(why) = gpu::run_text(device, &module(form), [THREADS, 1, 1], &operands, &mut theirs) {
            writeln!(wrong, "{name}: {why}").unwrap();
            continue;
        }
        writeln!(record, "{name}\t{}\t{}", hash(&theirs), samples(&theirs)).unwrap();
        let ours = match ours {
            Ok(ours) => ours,
            Err(why) => {
                writeln!(wrong, "{name}: {why}").unwrap();
                continue;
            }
        };
        let differing = ours
            .iter()
            .zip(&theirs)
            .enumerate()
            .filter(|(_, (ours, theirs))| ours != theirs);
        for (at, (ours, theirs)) in differing.clone().take(6) {
            let [a, b, c] = [0, 1, 2].map(|number| operands[at * 3 + number]);
            writeln!(wrong, "{name}: {a:x} {b:x} {c:x} gives {ours:x} here, {theirs:x} there").unwrap();
        }
        if differing.clone().count() > 6 {
            writeln!(wrong, "{name}: {} in all", differing.count()).unwrap();
        }
    }
    if let (Some(folder), true) = (std::env::var_os("HETCKPT_RECORD"), device.is_some()) {
        std::fs::write(Path::new(&folder).join("forms.txt"), record).unwrap();
    }
    assert!(wrong.is_empty(), "of {} forms:\n{wrong}", forms.len());
}
