//! Litmus tests: two blocks that run at the same time, and what one may see of the other's accesses (PTX ISA, "Memory
//! Consistency Model"): vectors whole, coherence, message passing, store buffering.
//!
//! They can only fail where something is wrong, but need not: how often the blocks meet is up to the machine.

use parking_lot::Mutex;

use hetckpt_abi::program::Program;
use hetckpt_conformance::{Implementation as _, Shape};

use crate::run::Cpu;

/// Words of 8 bytes that a test has beside its cells.
const NUM_WORDS: usize = 64;
/// How often a reader sees another vector.
const NUM_CHANGES: u32 = 5_000;
/// How often it reads at most.
const MAX_READS: u32 = 2_000_000;

static ALONE: Mutex<()> = Mutex::new(());

/// Runs one thread of `first` beside one of `second`, on zeros. Both have `%rd1`, the address of `num_words` words of 8
/// bytes, a multiple of 128, and begin when both are there.
fn run_two(first: &str, second: &str, num_words: usize) -> Vec<u64> {
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n
.visible .entry k(.param .u64 input, .param .u64 output)
{{
.reg .pred %p<9>;
.reg .b32 %r<40>;
.reg .b64 %rd<40>;
ld.param.u64 %rd1, [output];
add.u64 %rd1, %rd1, 127;
and.b64 %rd1, %rd1, -128;
atom.add.release.gpu.global.u32 %r1, [%rd1], 1;
WAIT:
ld.acquire.gpu.global.u32 %r1, [%rd1];
setp.lt.u32 %p1, %r1, 2;
@%p1 bra WAIT;
add.u64 %rd1, %rd1, 128;
mov.u32 %r2, %ctaid.x;
setp.ne.u32 %p1, %r2, 0;
@%p1 bra SECOND;
{first}
ret;
SECOND:
{second}
ret;
}}\n"
    );
    let module = hetckpt_ptx::lower_module(&ptx).unwrap();
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    let program = Program::from_start(module.kernels[0].clone());
    let mut memory = vec![0u64; num_words + 32];
    // Two threads need two processors to themselves.
    let _alone = ALONE.lock();
    let shape = Shape {
        grid: [2, 1, 1],
        block: [1; 3],
    };
    assert!(Cpu.run(&program, shape, &[], &mut memory));
    let to_boundary = (memory.as_ptr() as usize).wrapping_neg() % 128 / 8;
    memory.split_off(to_boundary + 16)
}

/// A vector whose elements are always the same, as its writer sees it: how many reads out of many find them different.
fn num_torn(ty: &str, count: usize, load: &str, store: &str, fence: &str) -> u64 {
    let r = if ty.ends_with("64") { "%rd2" } else { "%r2" };
    let word = if ty.ends_with("64") { "64" } else { "32" };
    let read: Vec<String> = (0..count).map(|i| format!("{r}{i}")).collect();
    let differ: String = (1..count)
        .map(|i| format!("setp.ne.or.b{word} %p2, {r}0, {r}{i}, %p2;\n"))
        .collect();
    let writer = format!(
        "mov.b{word} {r}0, 0;
WRITE:
st.{store}.global.v{count}.{ty} [%rd1], {{{}}};
{fence}
add.u{word} {r}0, {r}0, 1;
ld.relaxed.gpu.global.u32 %r3, [%rd1+64];
setp.eq.u32 %p1, %r3, 0;
@%p1 bra WRITE;",
        vec![format!("{r}0"); count].join(", ")
    );
    // Until the vector has been another often enough, but not for ever where the writer does not get to run.
    let reader = format!(
        "mov.u32 %r3, 0;
mov.u32 %r4, 0;
mov.u32 %r5, 0;
mov.b{word} {r}9, 0;
READ:
ld.{load}.global.v{count}.{ty} {{{}}}, [%rd1];
{fence}
setp.ne.u32 %p2, %r3, %r3;
{differ}
@%p2 add.u32 %r4, %r4, 1;
setp.ne.b{word} %p3, {r}0, {r}9;
@%p3 add.u32 %r5, %r5, 1;
mov.b{word} {r}9, {r}0;
add.u32 %r3, %r3, 1;
setp.lt.u32 %p1, %r3, {MAX_READS};
setp.lt.and.u32 %p1, %r5, {NUM_CHANGES}, %p1;
@%p1 bra READ;
st.global.u32 [%rd1+128], %r4;
st.relaxed.gpu.global.u32 [%rd1+64], 1;",
        read.join(", ")
    );
    run_two(&writer, &reader, NUM_WORDS)[16]
}

/// Vectors of up to 16 bytes with these modifiers are never seen half written.
fn are_whole(load: &str, store: &str, fence: &str) {
    for (ty, count) in [
        ("u32", 2),
        ("u32", 4),
        ("u64", 2),
        ("f32", 2),
        ("u16", 2),
        ("u16", 4),
        ("u8", 4),
    ] {
        // Registers of floats differ in nothing but their type.
        let ty = if ty == "f32" { "b32" } else { ty };
        let torn = num_torn(ty, count, load, store, fence);
        assert_eq!(torn, 0, "reads of v{count}.{ty} with .{load} and .{store}");
    }
}

#[test]
fn relaxed_vectors_are_whole() {
    are_whole("relaxed.gpu", "relaxed.gpu", "");
}

#[test]
fn volatile_vectors_are_whole() {
    are_whole("volatile", "volatile", "");
}

#[test]
fn acquired_and_released_vectors_are_whole() {
    are_whole("acquire.gpu", "release.gpu", "");
}

/// As CUB's look-back scan reads its tiles: without an ordering, past the caches, with a fence beside.
#[test]
fn weak_vectors_are_whole() {
    are_whole("weak", "weak", "membar.gl;");
}

/// What one thread reads of a word never goes back.
#[test]
fn reads_of_a_word_are_coherent() {
    let writer = "mov.u32 %r3, 0;
NEXT:
add.u32 %r3, %r3, 1;
st.relaxed.gpu.global.u32 [%rd1], %r3;
setp.lt.u32 %p1, %r3, 1000000;
@%p1 bra NEXT;";
    let reader = "mov.u32 %r4, 0;
mov.u32 %r6, 0;
READ:
ld.relaxed.gpu.global.u32 %r5, [%rd1];
setp.lt.u32 %p1, %r5, %r4;
@%p1 add.u32 %r6, %r6, 1;
mov.u32 %r4, %r5;
setp.lt.u32 %p1, %r4, 1000000;
@%p1 bra READ;
st.global.u32 [%rd1+128], %r6;";
    assert_eq!(run_two(writer, reader, NUM_WORDS)[16], 0, "reads went back");
}

/// Passes messages, each a word in one line and its number in another, and counts those that were older than their
/// number.
fn num_stale(before_flag: &str, store: &str, load: &str, after_flag: &str) -> u64 {
    let writer = format!(
        "mov.u32 %r3, 0;
NEXT:
add.u32 %r3, %r3, 1;
st.global.u32 [%rd1], %r3;
{before_flag}
st.{store}.global.u32 [%rd1+64], %r3;
setp.lt.u32 %p1, %r3, 300000;
@%p1 bra NEXT;"
    );
    let reader = format!(
        "mov.u32 %r6, 0;
READ:
ld.{load}.global.u32 %r4, [%rd1+64];
{after_flag}
ld.global.u32 %r5, [%rd1];
setp.lt.u32 %p1, %r5, %r4;
@%p1 add.u32 %r6, %r6, 1;
setp.lt.u32 %p1, %r4, 300000;
@%p1 bra READ;
st.global.u32 [%rd1+128], %r6;"
    );
    run_two(&writer, &reader, NUM_WORDS)[16]
}

#[test]
fn messages_arrive_before_their_flag() {
    assert_eq!(
        num_stale("", "release.gpu", "acquire.gpu", ""),
        0,
        "release and acquire"
    );
    assert_eq!(
        num_stale("membar.gl;", "volatile", "volatile", "membar.gl;"),
        0,
        "fences"
    );
    assert_eq!(
        num_stale("fence.acq_rel.gpu;", "relaxed.gpu", "relaxed.gpu", "fence.acq_rel.gpu;"),
        0,
        "fences of acquire and release"
    );
}

/// Two threads write a cell each and read the other's behind a fence: at least one sees what the other wrote.
#[test]
fn a_fence_keeps_stores_from_being_buffered_beyond_it() {
    const NUM_CELLS: usize = 100_000;
    let thread = |own: usize, other: usize, label: &str| {
        format!(
            "mov.u32 %r3, 0;
mov.u64 %rd3, %rd1;
{label}:
st.relaxed.gpu.global.u32 [%rd3+{own}], 1;
fence.sc.gpu;
ld.relaxed.gpu.global.u32 %r4, [%rd3+{other}];
st.global.u32 [%rd3+{}], %r4;
add.u64 %rd3, %rd3, 16;
add.u32 %r3, %r3, 1;
setp.lt.u32 %p1, %r3, {NUM_CELLS};
@%p1 bra {label};",
            own + 8
        )
    };
    let memory = run_two(&thread(0, 4, "FIRST"), &thread(4, 0, "OTHER"), NUM_CELLS * 2);
    let seen = memory.chunks_exact(2).take(NUM_CELLS).map(|cell| cell[1]);
    let num_neither = seen.filter(|&both| both == 0).count();
    assert_eq!(num_neither, 0, "neither saw the other");
}
