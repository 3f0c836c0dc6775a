//! The listed forms of PTX, many in a kernel, each thread with operands of its own: against the reference interpreter.

use std::fmt::Write as _;
use std::time::SystemTime;

use hetckpt_abi::program::Program;

use crate::form_scope::{Around, OneNan, SLOT_BYTES, scope};
use crate::implementation::{Implementation, Shape};
use crate::ptx_forms::Table;
use crate::reference::interpret;

/// One block's threads.
pub const THREADS: u32 = 1024;
/// 64-bit operands of a thread.
pub const OPERANDS: usize = 4;
/// Forms of a kernel.
const FORMS_PER_KERNEL: usize = 16;
/// Of so many kernels one is tried, unless `HETCKPT_ALL_FORMS` is set.
const KERNEL_STEP: usize = 64;

/// Registers of [`module`].
const AROUND: Around<'_> = Around {
    words: ["%word1", "%word2", "%word3"],
    result: "%result",
    read: "%read",
    global: "%global",
    shared: "%shared",
    local: "%local",
};

/// A form by its name, as a block of PTX.
pub struct Named {
    pub name: String,
    /// Puts what it comes to into `%result`; has `%word1` to `%word3`, and what [`module`] declares.
    pub scope: String,
    /// True if PTX only bounds the error.
    pub is_approximate: bool,
}

/// All listed forms whose results can be compared, by kernels.
#[must_use]
pub fn kernels(one_nan: OneNan) -> Vec<Vec<Named>> {
    let mut kernels = Vec::new();
    for pattern in Table::read().patterns {
        let named = pattern.comparable().into_iter().map(|form| Named {
            scope: scope(&form, &AROUND, one_nan),
            name: form.text,
            is_approximate: form.is_approximate,
        });
        let mut named = named.peekable();
        while named.peek().is_some() {
            kernels.push(named.by_ref().take(FORMS_PER_KERNEL).collect());
        }
    }
    kernels
}

/// A kernel `k` of an address of operands and one of results: those of the first form, of the second, and so on, and
/// behind them memory that forms write.
#[must_use]
pub fn module(forms: &[Named]) -> String {
    let scratch = forms.len() * THREADS as usize * 8;
    let shared_bytes = THREADS * SLOT_BYTES;
    let declared = |word: &str, text: String| {
        if forms.iter().any(|form| form.scope.contains(word)) {
            text
        } else {
            String::new()
        }
    };
    let shared = declared(
        "%shared",
        format!(
            ".shared .align 32 .b8 slots[{shared_bytes}];\nmov.u64 %shared, slots;\n\
             mad.wide.u32 %shared, %thread, {SLOT_BYTES}, %shared;\n"
        ),
    );
    let local = declared(
        "%local",
        format!(".local .align 32 .b8 own[{SLOT_BYTES}];\nmov.u64 %local, own;\n"),
    );
    let mut text = format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b)\n{{\n\
         .reg .b32 %thread;\n.reg .b64 %word1, %word2, %word3, %word4, %result, %results, %read, %global, %shared, %local;\n\
         ld.param.u64 %read, [a];\nld.param.u64 %results, [b];\nmov.u32 %thread, %tid.x;\n\
         mad.wide.u32 %global, %thread, {SLOT_BYTES}, %results;\nadd.s64 %global, %global, {scratch};\n\
         mad.wide.u32 %read, %thread, 32, %read;\nmad.wide.u32 %results, %thread, 8, %results;\n{shared}{local}\
         ld.global.v2.u64 {{%word1, %word2}}, [%read];\nld.global.v2.u64 {{%word3, %word4}}, [%read+16];\n"
    );
    for (number, form) in forms.iter().enumerate() {
        text += &form.scope;
        writeln!(
            text,
            "st.global.u64 [%results+{}], %result;",
            number * THREADS as usize * 8
        )
        .unwrap();
    }
    text + "ret;\n}\n"
}

/// Results of `num_forms` forms, and behind them memory to work on.
#[must_use]
pub fn output(num_forms: usize) -> Vec<u64> {
    vec![0; THREADS as usize * (num_forms + SLOT_BYTES as usize / 8)]
}

/// [`OPERANDS`] for each thread: any bits, small numbers, and floating-point numbers of every width near the edges.
#[must_use]
pub fn operands(seed: u64) -> Vec<u64> {
    let mut state = seed;
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
    (0..THREADS as usize * OPERANDS).map(|_| operand()).collect()
}

/// The forms of every so many kernels, others each time, over other operands; all with `HETCKPT_ALL_FORMS`.
/// `HETCKPT_SEED` repeats what a failure names.
pub fn listed_forms(tested: &dyn Implementation) {
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64;
    let seed = std::env::var("HETCKPT_SEED").map_or_else(|_| now(), |seed| seed.parse().unwrap());
    let operands = operands(seed);
    let all = kernels(OneNan::OfAll);
    let (first, step) = match std::env::var_os("HETCKPT_ALL_FORMS") {
        Some(_) => (0, 1),
        None => (seed as usize % KERNEL_STEP, KERNEL_STEP),
    };
    let mut wrong = String::new();
    for forms in all.iter().skip(first).step_by(step) {
        let module = hetckpt_ptx::lower_module(&module(forms)).unwrap();
        let program = Program::from_start(module.kernels[0].clone());
        let is_numbered = |form: &Named| form.name.starts_with("bar") && !form.name.contains(", 0");
        if !tested.has_numbered_barriers() && forms.iter().any(is_numbered) {
            continue;
        }
        let mut found = output(forms.len());
        let shape = Shape::one_block([THREADS, 1, 1]);
        let expected = interpret(&program, shape, &operands, &found);
        if !tested.run(&program, shape, &operands, &mut found) {
            return;
        }
        let threads = THREADS as usize;
        for ((form, expected), found) in forms.iter().zip(expected.chunks(threads)).zip(found.chunks(threads)) {
            let differs = |&at: &usize| expected[at] != found[at];
            if let (false, Some(at)) = (form.is_approximate, (0..threads).find(differs)) {
                let [a, b, c] = [0, 1, 2].map(|number| operands[at * OPERANDS + number]);
                let (expected, found) = (expected[at], found[at]);
                writeln!(
                    wrong,
                    "{}: {a:x} {b:x} {c:x} gives {found:x}, not {expected:x}",
                    form.name
                )
                .unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "HETCKPT_SEED={seed}\n{wrong}");
}

/// Numbers of `bf16` below the smallest normal one, of which one stays the same while a loop runs: compilers that keep
/// it in another format there must not flush it.
pub fn small_bf16_in_a_loop(tested: &dyn Implementation) {
    const LOOP: &str = "{ .reg .b32 %a, %b, %c, %i, %same; .reg .b64 %sum; .reg .pred %p; cvt.u32.u64 %a, %word1; \
        cvt.u32.u64 %b, %word2; cvt.u32.u64 %c, %word3; mov.b64 %result, 0; mov.u32 %i, 0; \
        AGAIN: set.ne.bf16x2.bf16x2 %same, %a, %b; cvt.u64.u32 %sum, %same; mul.lo.u64 %result, %result, 3; \
        xor.b64 %result, %result, %sum; xor.b32 %b, %b, %c; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 8; @%p bra AGAIN; }\n";
    let form = Named {
        name: "set.ne.bf16x2.bf16x2".to_owned(),
        scope: LOOP.to_owned(),
        is_approximate: false,
    };
    let module = hetckpt_ptx::lower_module(&module(&[form])).unwrap();
    let program = Program::from_start(module.kernels[0].clone());
    let operands: Vec<u64> = (0..u64::from(THREADS)).flat_map(|i| [i % 3, i % 5, i % 7, 0]).collect();
    let mut found = output(1);
    let shape = Shape::one_block([THREADS, 1, 1]);
    let expected = interpret(&program, shape, &operands, &found);
    if tested.run(&program, shape, &operands, &mut found) {
        assert_eq!(found, expected);
    }
}
