//! Atomics on few addresses from all threads of several blocks: no update may be lost. What is left does not depend on
//! the order.
//!
//! Not among what is compared with recordings of a GPU.

use hetckpt_abi::program::Program;

use crate::implementation::{Implementation, Shape};
use crate::reference::interpret;

/// Words of 8 bytes for each form; threads update the first three of them, and leave the last as it was.
const NUM_CELLS: usize = 4;

/// An update: its operation and type, and what each cell holds before.
struct Form {
    update: Update,
    before: u64,
}

enum Update {
    /// `atom` with a result, operation and type, and the register of its value.
    Atom(&'static str, &'static str),
    /// The same as `red`.
    Red(&'static str, &'static str),
    /// One more, by compare-and-swap of so many bits at an offset in the cell.
    Counter(u32, u32),
}

fn forms() -> Vec<Form> {
    let both = |high: u64, low: u64| high << 32 | low;
    let ones = u64::MAX;
    let least = both(0, 0x8000_0000);
    let greatest = both(0, 0x7fff_ffff);
    let atoms = [
        ("add.u32", "%r5", 7),
        ("min.u32", "%r5", ones),
        ("max.u32", "%r5", 0),
        ("min.s32", "%r5", greatest),
        ("max.s32", "%r5", least),
        ("and.b32", "%r7", ones),
        ("or.b32", "%r6", 0),
        ("xor.b32", "%r5", 0x55),
        ("inc.u32", "1000", 3),
        ("dec.u32", "1000", 3),
        ("add.f32", "%f1", 0),
        ("add.u64", "%rd5", 7),
        ("min.u64", "%rd5", ones),
        ("max.u64", "%rd5", 0),
        ("min.s64", "%rd5", i64::MAX.cast_unsigned()),
        ("max.s64", "%rd5", i64::MIN.cast_unsigned()),
        ("and.b64", "%rd7", ones),
        ("or.b64", "%rd6", 0),
        ("xor.b64", "%rd5", 0x55),
        ("add.f64", "%fd1", 0),
    ];
    let reds = [("add.u32", "%r5", 9), ("add.u64", "%rd5", 9), ("add.f64", "%fd1", 0)];
    // What lies beside 16 bits is another's, and stays.
    let counters = [
        (32, 0, both(77, 5)),
        (64, 0, 5),
        (16, 0, 5),
        (16, 2, both(0x1_0002, 0xffff_0003)),
    ];
    let atoms = atoms.map(|(op, value, before)| (Update::Atom(op, value), before));
    let reds = reds.map(|(op, value, before)| (Update::Red(op, value), before));
    let counters = counters.map(|(bits, offset, before)| (Update::Counter(bits, offset), before));
    let all = atoms.into_iter().chain(reds).chain(counters);
    all.map(|(update, before)| Form { update, before }).collect()
}

/// The update in PTX, on the cell at `%rd11` in `space`.
fn update(form: &Form, index: usize, space: &str) -> String {
    let at = index * NUM_CELLS * 8;
    let old = |ty: &str| match ty {
        "f32" => "%f9",
        "f64" => "%fd9",
        _ if ty.ends_with("64") => "%rd19",
        _ => "%r29",
    };
    match form.update {
        Update::Atom(op, value) => {
            let old = old(op.split('.').next_back().unwrap_or(""));
            format!("atom.{space}.{op} {old}, [%rd11+{at}], {value};\n")
        }
        Update::Red(op, value) => format!("red.{space}.{op} [%rd11+{at}], {value};\n"),
        Update::Counter(bits, offset) => {
            let (ty, r) = match bits {
                16 => ("16", "%h"),
                32 => ("32", "%r3"),
                _ => ("64", "%rd3"),
            };
            let (at, label) = (at as u32 + offset, format!("TRY_{space}_{index}"));
            format!(
                "ld.volatile.{space}.b{ty} {r}1, [%rd11+{at}];
{label}:
mov.b{ty} {r}2, {r}1;
add.u{ty} {r}3, {r}2, 1;
atom.{space}.cas.b{ty} {r}1, [%rd11+{at}], {r}2, {r}3;
setp.ne.u{ty} %p3, {r}1, {r}2;
@%p3 bra {label};\n"
            )
        }
    }
}

/// Each thread updates a cell of each form in `space` so many times. Cells of shared memory start as the input says,
/// and are written out block by block.
fn kernel(forms: &[Form], space: &str, times: u32) -> String {
    let num_words = forms.len() * NUM_CELLS;
    let bytes = num_words * 8;
    let updates: String = forms
        .iter()
        .enumerate()
        .map(|(i, form)| update(form, i, space))
        .collect();
    let (declared, before, after) = match space {
        "shared" => (
            format!(".shared .align 8 .b8 cells[{bytes}];"),
            format!(
                "mov.u64 %rd12, cells;
setp.ge.u32 %p1, %r1, {num_words};
@%p1 bra READY;
mul.wide.u32 %rd13, %r1, 8;
add.s64 %rd14, %rd1, %rd13;
ld.global.u64 %rd15, [%rd14];
add.s64 %rd14, %rd12, %rd13;
st.shared.u64 [%rd14], %rd15;
READY:
bar.sync 0;"
            ),
            format!(
                "bar.sync 0;
@%p1 bra DONE;
ld.shared.u64 %rd15, [%rd14];
mul.wide.u32 %rd17, %r2, {bytes};
add.s64 %rd17, %rd2, %rd17;
add.s64 %rd17, %rd17, %rd13;
st.global.u64 [%rd17], %rd15;
DONE:"
            ),
        ),
        _ => (String::new(), "mov.u64 %rd12, %rd2;".to_owned(), String::new()),
    };
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n
.visible .entry k(.param .u64 input, .param .u64 output)
{{
{declared}
.reg .pred %p<9>;
.reg .b16 %h<9>;
.reg .b32 %r<40>;
.reg .b64 %rd<40>;
.reg .f32 %f<10>;
.reg .f64 %fd<10>;
ld.param.u64 %rd1, [input];
ld.param.u64 %rd2, [output];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mad.lo.u32 %r4, %r2, %r3, %r1;
{before}
rem.u32 %r21, %r4, 3;
mul.wide.u32 %rd10, %r21, 8;
add.s64 %rd11, %rd12, %rd10;
mov.u32 %r20, 0;
AGAIN:
mad.lo.u32 %r5, %r4, 5, %r20;
mad.lo.u32 %r5, %r5, 0x9e3779b1, 12345;
mul.wide.u32 %rd5, %r5, %r5;
xor.b64 %rd5, %rd5, 0xfedcba9876543210;
and.b32 %r21, %r5, 31;
mov.u32 %r22, 1;
shl.b32 %r6, %r22, %r21;
not.b32 %r7, %r6;
shr.u32 %r21, %r5, 26;
mov.u64 %rd16, 1;
shl.b64 %rd6, %rd16, %r21;
not.b64 %rd7, %rd6;
and.b32 %r21, %r5, 7;
cvt.rn.f32.u32 %f1, %r21;
cvt.rn.f64.u32 %fd1, %r21;
{updates}add.u32 %r20, %r20, 1;
setp.lt.u32 %p2, %r20, {times};
@%p2 bra AGAIN;
{after}
ret;
}}\n"
    )
}

/// Compares what is left in `num_copies` copies of all cells after `times` updates by each thread.
fn check(tested: &dyn Implementation, space: &str, num_copies: usize, times: u32, shape: Shape) {
    let forms = forms();
    let module = hetckpt_ptx::lower_module(&kernel(&forms, space, times)).unwrap();
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    let program = Program::from_start(module.kernels[0].clone());
    let before: Vec<u64> = forms.iter().flat_map(|form| [form.before; NUM_CELLS]).collect();
    let num_words = before.len();
    let mut output = before.repeat(num_copies);
    let expected = interpret(&program, shape, &before, &output);
    if !tested.run(&program, shape, &before, &mut output) {
        return;
    }
    for (i, (got, want)) in output.iter().zip(&expected).enumerate() {
        let (copy, form, cell) = (i / num_words, i % num_words / NUM_CELLS, i % NUM_CELLS);
        let name = update(&forms[form], form, space);
        assert_eq!(got, want, "cell {cell} of {space} memory, copy {copy}, after: {name}");
    }
}

/// PoCL gives a processor 32 blocks at a time, so there are several times as many.
pub fn contended_atomics_in_global_memory_lose_no_update(tested: &dyn Implementation) {
    check(
        tested,
        "global",
        1,
        30,
        Shape {
            grid: [256, 1, 1],
            block: [64, 1, 1],
        },
    );
}

pub fn contended_atomics_in_shared_memory_lose_no_update(tested: &dyn Implementation) {
    // A GPU has the registers of so many forms for no larger blocks.
    check(
        tested,
        "shared",
        3,
        4,
        Shape {
            grid: [3, 1, 1],
            block: [256, 1, 1],
        },
    );
}
