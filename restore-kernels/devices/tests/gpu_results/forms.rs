//! Forms of PTX instructions: what the front end makes of each, in the reference interpreter, against what a GPU's own
//! assembler and hardware make of it, over 1024 operands each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_conformance::form_scope::OneNan;
use hetckpt_conformance::listed_forms::{Named, OPERANDS, THREADS, kernels, module, operands, output};
use hetckpt_interp::{GlobalMemory, Launch, run};
use hetckpt_ir::types::Dim3;

use crate::{approximations, bulk_copies, gpu, matrices};

/// Of what was recorded.
const OPERAND_SEED: u64 = 0x5EED;
/// Every so many results one is kept beside their hash.
const SAMPLE_STEP: usize = 64;

/// All, by kernels.
fn all_kernels() -> Vec<Vec<Named>> {
    let mut kernels = kernels(OneNan::OfDoubles);
    // Each has shared memory of its own.
    let others = matrices::forms()
        .into_iter()
        .chain(bulk_copies::forms())
        .chain(tables());
    kernels.extend(others.map(|(name, text)| {
        vec![Named {
            name,
            scope: with_operands(&text),
            is_approximate: false,
        }]
    }));
    kernels
}

/// Tables of `lop3` beside the listed one.
fn tables() -> Vec<(String, String)> {
    let forms = ["0xE8", "0xCA", "0x1B", "0x71"].map(|table| format!("lop3.b32 %r0, %r1, %r2, %r3, {table}"));
    forms.map(|form| (form.clone(), form)).to_vec()
}

/// A block for a text that puts its result into `%rd0` or `%r0`. Operands are `%rd1` to `%rd3`, of which `%r1` to `%r3`
/// are the low words; `%r9` is the thread.
fn with_operands(text: &str) -> String {
    let result = if text.contains("%rd0") {
        "mov.b64 %result, %rd0;"
    } else {
        "cvt.u64.u32 %result, %r0;"
    };
    format!(
        "{{ .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<12>; mov.b64 %rd1, %word1; mov.b64 %rd2, %word2; \
         mov.b64 %rd3, %word3; cvt.u32.u64 %r1, %rd1; cvt.u32.u64 %r2, %rd2; cvt.u32.u64 %r3, %rd3; \
         mov.u32 %r9, %tid.x; {text}; {result} }}\n"
    )
}

/// The results of the front end's kernel, or why there is none.
fn lowered(forms: &[Named], operands: &[u64]) -> Result<Vec<u64>, String> {
    const OPERANDS_AT: u64 = 0x2000_0000_0000;
    const RESULTS_AT: u64 = 0x2000_1000_0000;
    let module = hetckpt_ptx::lower_module(&module(forms)).map_err(|e| e.to_string())?;
    let kernel = module.kernels.first().ok_or_else(|| format!("{:?}", module.rejected))?;
    let program = Program::from_start(kernel.clone());
    let layout = ThreadStateLayout::new(&program.kernel);
    let mut params = OPERANDS_AT.to_le_bytes().to_vec();
    params.extend(RESULTS_AT.to_le_bytes());
    let (grid, block) = (Dim3 { x: 1, y: 1, z: 1 }, Dim3 { x: THREADS, y: 1, z: 1 });
    let mut memory = GlobalMemory::new();
    let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory.map(OPERANDS_AT, bytes(operands));
    memory.map(RESULTS_AT, bytes(&output(forms.len())));
    run(Launch::new(&program, &layout, grid, block, &params), &mut memory).map_err(|e| e.to_string())?;
    let words = memory.range(RESULTS_AT).unwrap().chunks_exact(8);
    Ok(words.map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect())
}

fn hash(results: &[u64]) -> String {
    let bytes: Vec<u8> = results.iter().flat_map(|word| word.to_le_bytes()).collect();
    blake3::hash(&bytes).to_hex()[..16].to_owned()
}

fn samples(results: &[u64]) -> Vec<u64> {
    results.iter().copied().step_by(SAMPLE_STEP).collect()
}

/// Numbers in base 16.
fn printed(results: &[u64]) -> String {
    let words: Vec<_> = results.iter().map(|word| format!("{word:x}")).collect();
    words.join(" ")
}

/// What a GPU has computed of a form.
struct Recorded {
    hash: &'static str,
    samples: Vec<u64>,
}

/// By form.
fn recorded() -> BTreeMap<&'static str, Recorded> {
    let number = |word| u64::from_str_radix(word, 16).unwrap();
    let lines = include_str!("forms.txt").lines().map(|line| {
        let mut fields = line.split('\t');
        let (name, hash) = (fields.next().unwrap(), fields.next().unwrap());
        let samples = fields.next().unwrap().split(' ').map(number).collect();
        (name, Recorded { hash, samples })
    });
    lines.collect()
}

/// Adds to `wrong` where results of a GPU differ.
fn compare(wrong: &mut String, form: &Named, operands: &[u64], ours: &[u64], theirs: &[u64]) {
    let name = &form.name;
    let is_same = |at: usize| {
        ours[at] == theirs[at] || (form.is_approximate && approximations::are_close(name, ours[at], theirs[at]))
    };
    let differing: Vec<usize> = (0..ours.len()).filter(|&at| !is_same(at)).collect();
    for &at in differing.iter().take(6) {
        let of_thread = &operands[at * OPERANDS..][..3];
        let (of_thread, here, there) = (printed(of_thread), ours[at], theirs[at]);
        writeln!(wrong, "{name}: {of_thread} gives {here:x} here, {there:x} there").unwrap();
    }
    if differing.len() > 6 {
        writeln!(wrong, "{name}: {} in all", differing.len()).unwrap();
    }
}

/// The same, of what was recorded.
fn compare_recorded(wrong: &mut String, form: &Named, ours: &[u64], theirs: &Recorded) {
    let here = samples(ours);
    let are_close = |(&here, &there)| approximations::are_close(&form.name, here, there);
    let is_same = if form.is_approximate {
        here.iter().zip(&theirs.samples).all(are_close)
    } else {
        hash(ours) == theirs.hash
    };
    if !is_same {
        let (here, there) = (printed(&here), printed(&theirs.samples));
        writeln!(wrong, "{}:\n  here   {here}\n  on GPU {there}", form.name).unwrap();
    }
}

#[test]
fn forms_are_what_a_gpu_makes_of_them() {
    let operands = operands(OPERAND_SEED);
    let device = gpu::wanted();
    let known = recorded();
    let (mut wrong, mut record) = (String::new(), String::new());
    let kernels = all_kernels();
    for forms in &kernels {
        let ours = lowered(forms, &operands);
        let mut theirs = output(forms.len());
        if let Some(device) = device
            && let Err(why) = gpu::run_text(device, &module(forms), [THREADS, 1, 1], &operands, &mut theirs)
        {
            writeln!(wrong, "{} and others: {why}", forms[0].name).unwrap();
            // A GPU that has met a fault runs nothing more.
            break;
        }
        let ours = match ours {
            Err(why) => {
                writeln!(wrong, "{} and others: {why}", forms[0].name).unwrap();
                vec![0; theirs.len()]
            }
            Ok(ours) => ours,
        };
        let each = ours.chunks(THREADS as usize).zip(theirs.chunks(THREADS as usize));
        for (form, (ours, theirs)) in forms.iter().zip(each) {
            let name = form.name.as_str();
            if device.is_some() {
                writeln!(record, "{name}\t{}\t{}", hash(theirs), printed(&samples(theirs))).unwrap();
                compare(&mut wrong, form, &operands, ours, theirs);
            } else if let Some(theirs) = known.get(name) {
                compare_recorded(&mut wrong, form, ours, theirs);
            } else {
                writeln!(wrong, "{name}: no GPU's results are there").unwrap();
            }
        }
    }
    if let (Some(folder), true) = (std::env::var_os("HETCKPT_RECORD"), device.is_some()) {
        std::fs::write(Path::new(&folder).join("forms.txt"), record).unwrap();
    }
    let names: BTreeSet<&str> = kernels.iter().flatten().map(|form| form.name.as_str()).collect();
    for name in known.keys().filter(|name| device.is_none() && !names.contains(*name)) {
        writeln!(wrong, "{name}: recorded, and not tried").unwrap();
    }
    let num_forms: usize = kernels.iter().map(Vec::len).sum();
    assert!(wrong.is_empty(), "of {num_forms} forms:\n{wrong}");
}
