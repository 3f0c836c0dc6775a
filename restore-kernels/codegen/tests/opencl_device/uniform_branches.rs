//! Barriers inside branches that all threads of a block take together, and what follows them: compilers for processors
//! cut kernels at barriers, and some take what follows for another thing in the last thread than in the others.
//!
//! Each shape is a kernel of several blocks, every other of which goes another way. What blocks leave in shared memory
//! behind what they use tells if the next one goes where it should not.

use hetckpt_abi::opencl_program::OpenClProgram;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{OpenClOptions, generate};
use hetckpt_conformance::{Shape, interpret};

use crate::device::{self, ARENA_BASE, LaunchShape};

const NUM_BLOCKS: u32 = 24;
const NUM_THREADS: u32 = 64;

/// A kernel around `body`. There are the thread's index (`%r1`), the block's (`%r2`), 0 or 1 for the block (`%r3`,
/// `%p1`), a value of the thread (`%r5`), its place in shared memory (`%r4`), if it is the last one (`%p2`); results
/// are `%r10` and `%r11`.
fn kernel(body: &str) -> Program {
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n
.visible .entry k(.param .u64 input, .param .u64 output)
{{
.shared .align 8 .b8 cells[{shared_bytes}];
.reg .pred %p<400>;
.reg .b32 %r<400>;
.reg .b64 %rd<20>;
ld.param.u64 %rd1, [input];
ld.param.u64 %rd2, [output];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mad.lo.u32 %r6, %r2, {NUM_THREADS}, %r1;
mul.wide.u32 %rd3, %r6, 8;
add.s64 %rd1, %rd1, %rd3;
add.s64 %rd2, %rd2, %rd3;
ld.global.u32 %r5, [%rd1];
mov.u32 %r4, cells;
mad.lo.u32 %r4, %r1, 4, %r4;
and.b32 %r3, %r2, 1;
setp.ne.u32 %p1, %r3, 0;
setp.eq.u32 %p2, %r1, {last};
mov.u32 %r10, 0;
mov.u32 %r11, 0;
{body}
st.global.v2.u32 [%rd2], {{%r10, %r11}};
setp.ne.u32 %p30, %r1, 0;
@%p30 bra END;
mov.u32 %r60, 0x7777;
st.shared.u32 [cells+{end}], %r60;
END:
ret;
}}\n",
        shared_bytes = 4 * NUM_THREADS + 8,
        last = NUM_THREADS - 1,
        end = 4 * NUM_THREADS,
    );
    let module = hetckpt_ptx::lower_module(&ptx).unwrap();
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    let kernel = hetckpt_probes::probe(&module.kernels[0], &Default::default()).unwrap();
    Program::from_start(kernel)
}

fn inputs() -> Vec<u64> {
    let total = u64::from(NUM_BLOCKS * NUM_THREADS);
    (0..total).map(|i| i.wrapping_mul(0x9e37_79b9) % 100_003 + 1).collect()
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn as_opencl(program: &Program, block_list: bool) -> OpenClProgram {
    let layout = ThreadStateLayout::new(&program.kernel);
    let options = OpenClOptions {
        block_list,
        ..OpenClOptions::default()
    };
    generate(program, &layout, &options).unwrap()
}

/// Runs the kernel around `body`, as its blocks start and, with `also_in_rounds`, as they go on.
fn check(name: &str, body: &str, also_in_rounds: bool) {
    let Some(device) = device::device() else {
        eprintln!("skipped: {name} (no OpenCL device)");
        return;
    };
    let program = kernel(body);
    let shape = Shape {
        grid: [NUM_BLOCKS, 1, 1],
        block: [NUM_THREADS, 1, 1],
    };
    let expected = bytes(&interpret(&program, shape, &inputs(), &vec![0; inputs().len()]));
    let shape = LaunchShape::of(&program.kernel, shape);
    let inputs = bytes(&inputs());
    let params = bytes(&[ARENA_BASE, ARENA_BASE + inputs.len() as u64]);
    for block_list in [false, true]
        .into_iter()
        .filter(|block_list| also_in_rounds || !block_list)
    {
        let generated = as_opencl(&program, block_list);
        let mut memory = inputs.clone();
        memory.resize(2 * inputs.len(), 0);
        device::run(device, &generated, shape, &params, &mut memory);
        let got = &memory[inputs.len()..];
        let wrong = got.chunks(8).zip(expected.chunks(8)).position(|(a, b)| a != b);
        if let Some(i) = wrong {
            let (block, thread) = (i as u32 / NUM_THREADS, i as u32 % NUM_THREADS);
            panic!(
                "{name}: thread {thread} of block {block} (going on: {block_list}): {:x?} instead of {:x?}\n{}",
                &got[8 * i..][..8],
                &expected[8 * i..][..8],
                generated.text
            );
        }
    }
}

/// Differences of neighbours; the last thread has none to its right (CUB's `BlockAdjacentDifference`).
const NEIGHBOURS: &str = "
st.shared.u32 [%r4], %r5;
bar.sync 0;
mov.u32 %r10, %r5;
@%p2 bra LAST;
ld.shared.u32 %r20, [%r4+4];
sub.u32 %r10, %r5, %r20;
LAST:";

/// The same the other way round, into another result.
const NEIGHBOURS_BEFORE: &str = "
st.shared.u32 [%r4], %r5;
bar.sync 0;
mov.u32 %r11, %r5;
setp.eq.u32 %p3, %r1, 0;
@%p3 bra FIRST;
ld.shared.u32 %r21, [%r4+-4];
sub.u32 %r11, %r5, %r21;
FIRST:";

/// Threads go so many times round, each its own.
const OWN_LOOP: &str = "
and.b32 %r22, %r5, 3;
mov.u32 %r36, 0;
AGAIN:
setp.ge.u32 %p4, %r36, %r22;
@%p4 bra OVER;
add.u32 %r11, %r11, %r22;
add.u32 %r36, %r36, 1;
setp.lt.u32 %p4, %r36, 4;
@%p4 bra AGAIN;
OVER:";

#[test]
fn a_barrier_in_a_branch() {
    check("one way", &format!("@!%p1 bra JOIN;{NEIGHBOURS}\nJOIN:"), true);
}

#[test]
fn barriers_on_both_ways() {
    let body = format!("@!%p1 bra OTHER;{NEIGHBOURS}\nbra JOIN;\nOTHER:{NEIGHBOURS_BEFORE}\nJOIN:");
    check("two ways", &body, false);
}

#[test]
fn a_barrier_in_a_branch_in_a_branch() {
    let body = format!(
        "@!%p1 bra JOIN;{NEIGHBOURS}
and.b32 %r23, %r2, 2;
setp.eq.u32 %p5, %r23, 0;
bar.sync 0;
@%p5 bra INNER;{NEIGHBOURS_BEFORE}
INNER:{OWN_LOOP}
JOIN:
@%p2 bra REST;
add.u32 %r10, %r10, 3;
atom.shared.add.u32 %r24, [cells+260], 1;
REST:"
    );
    check("nested", &body, false);
}

#[test]
fn a_loop_of_each_thread_after_the_barrier() {
    let body = format!("@!%p1 bra JOIN;{NEIGHBOURS}{OWN_LOOP}\nJOIN:");
    check("own loop", &body, false);
}

/// A tree of sums, and then a thread that does something else.
#[test]
fn a_loop_with_barriers_in_a_branch() {
    let body = "
@!%p1 bra JOIN;
st.shared.u32 [%r4], %r5;
mov.u32 %r25, 32;
HALVE:
bar.sync 0;
setp.ge.u32 %p6, %r1, %r25;
@%p6 bra SKIP;
mad.lo.u32 %r26, %r25, 4, %r4;
ld.shared.u32 %r27, [%r26];
ld.shared.u32 %r28, [%r4];
add.u32 %r28, %r28, %r27;
st.shared.u32 [%r4], %r28;
SKIP:
shr.u32 %r25, %r25, 1;
setp.ne.u32 %p7, %r25, 0;
@%p7 bra HALVE;
setp.ne.u32 %p8, %r1, 0;
mov.u32 %r10, 5;
@%p8 bra JOIN;
ld.shared.u32 %r10, [cells];
JOIN:";
    check("tree", body, false);
}

/// Each time round another way, with threads that go to the next time at once.
#[test]
fn branches_with_barriers_in_a_loop() {
    let body = format!(
        "mov.u32 %r29, 0;
TIMES:
add.u32 %r29, %r29, 1;
setp.gt.u32 %p9, %r29, 6;
@%p9 bra DONE;
add.u32 %r30, %r29, %r2;
and.b32 %r30, %r30, 1;
setp.eq.u32 %p10, %r30, 0;
bar.sync 0;
@%p10 bra TIMES;{NEIGHBOURS}
add.u32 %r11, %r11, %r10;
and.b32 %r31, %r11, 1;
setp.eq.u32 %p11, %r31, 0;
@%p11 bra TIMES;
add.u32 %r11, %r11, %r29;
bra TIMES;
DONE:"
    );
    check("loop", &body, false);
}

/// The loop is left at a barrier, before one, and at its head.
#[test]
fn loops_that_are_left_after_a_barrier() {
    let body = format!(
        "mov.u32 %r29, 0;
TIMES:
add.u32 %r29, %r29, 1;
setp.gt.u32 %p9, %r29, 5;
@%p9 bra DONE;
bar.sync 0;
@!%p1 bra OTHER;{NEIGHBOURS}
setp.eq.u32 %p10, %r29, %r2;
@%p10 bra DONE;
add.u32 %r11, %r11, %r10;
OTHER:
add.u32 %r11, %r11, %r29;
bra TIMES;
DONE:
@!%p2 bra REST;
add.u32 %r11, %r11, 9;
REST:"
    );
    check("left", &body, false);
}

/// Where the ways of some threads join is not where those of the block do.
#[test]
fn threads_that_go_farther_than_the_join() {
    let body = format!(
        "@!%p1 bra JOIN;{NEIGHBOURS}
and.b32 %r31, %r5, 1;
setp.eq.u32 %p11, %r31, 0;
@%p11 bra FAR;
add.u32 %r10, %r10, 1;
JOIN:
add.u32 %r11, %r11, 100;
FAR:
add.u32 %r11, %r11, %r10;"
    );
    check("farther", &body, true);
}

#[test]
fn threads_that_end_after_the_barrier() {
    let body = format!(
        "@!%p1 bra JOIN;{NEIGHBOURS}
st.global.u32 [%rd2], %r10;
and.b32 %r31, %r5, 1;
setp.eq.u32 %p11, %r31, 0;
@%p11 bra END;
JOIN:
add.u32 %r11, %r11, 100;"
    );
    check("end", &body, false);
}

#[test]
fn lanes_that_exchange_in_a_branch() {
    let body = "
@!%p1 bra JOIN;
shfl.sync.down.b32 %r20, %r5, 1, 31, -1;
mov.u32 %r10, %r5;
@%p2 bra JOIN;
sub.u32 %r10, %r5, %r20;
st.shared.u32 [%r4], %r10;
ld.shared.u32 %r11, [%r4];
JOIN:";
    check("lanes", body, false);
}

#[test]
fn three_ways() {
    let body = format!(
        "rem.u32 %r31, %r2, 3;
setp.eq.u32 %p12, %r31, 0;
setp.eq.u32 %p13, %r31, 1;
@%p12 bra JOIN;
@%p13 bra SECOND;{NEIGHBOURS}
bra JOIN;
SECOND:{NEIGHBOURS_BEFORE}{OWN_LOOP}
JOIN:
bar.sync 0;
st.shared.u32 [%r4], %r10;
bar.sync 0;
@%p1 bra REST;
ld.shared.u32 %r20, [cells];
add.u32 %r11, %r11, %r20;
@!%p2 bra REST;
add.u32 %r11, %r11, 1;
REST:"
    );
    check("three", &body, false);
}

/// The block ends before it meets.
#[test]
fn blocks_that_end_early() {
    let body = format!(
        "@%p1 bra OUT;{NEIGHBOURS}
and.b32 %r23, %r2, 2;
setp.eq.u32 %p5, %r23, 0;
bar.sync 0;
@%p5 bra OUT;{NEIGHBOURS_BEFORE}
OUT:"
    );
    check("early", &body, false);
}

/// Some threads end before the block meets, in one of two ways that come to the barrier.
#[test]
fn threads_that_end_in_a_branch() {
    let body = format!(
        "@!%p1 bra JOIN;
and.b32 %r31, %r5, 3;
setp.eq.u32 %p11, %r31, 0;
@%p11 bra END;
add.u32 %r10, %r10, 1;
JOIN:
add.u32 %r11, %r11, 100;
bar.sync 0;
st.global.u32 [%rd2+4], %r5;{OWN_LOOP}"
    );
    check("end in a branch", &body, false);
}

/// Statements one inside another, as a seed has them.
struct Nested {
    seed: u64,
    text: String,
    num_labels: u32,
    /// Loop counters in use.
    depth: u32,
}

impl Nested {
    fn choose(&mut self, count: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % count
    }

    fn label(&mut self) -> String {
        self.num_labels += 1;
        format!("L{}", self.num_labels)
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// A predicate that is the same for all threads of the block, or is not.
    fn condition(&mut self, is_uniform: bool) -> String {
        let of = if is_uniform && self.depth > 0 && self.choose(2) == 0 {
            format!("%r{}", 40 + self.depth)
        } else if is_uniform {
            "%r2".to_owned()
        } else {
            ["%r1", "%r5", "%r10"][self.choose(3) as usize].to_owned()
        };
        let (bit, sense) = (1 << self.choose(3), ["eq", "ne"][self.choose(2) as usize]);
        // Registers of their own: what is written once as a thread has it is not the block's.
        let n = 50 + 2 * self.num_labels;
        self.num_labels += 1;
        self.push(&format!(
            "and.b32 %r{n}, {of}, {bit};\nsetp.{sense}.u32 %p{n}, %r{n}, 0;"
        ));
        format!("%p{n}")
    }

    /// Each thread gets what another has.
    fn exchange(&mut self) {
        let shift = 1 + self.choose(5);
        self.push(&format!(
            "bar.sync 0;\nst.shared.u32 [%r4], %r10;\nbar.sync 0;\nadd.u32 %r33, %r1, {shift};\nand.b32 %r33, %r33, 63;
mov.u32 %r34, cells;\nmad.lo.u32 %r34, %r33, 4, %r34;\nld.shared.u32 %r35, [%r34];\nadd.u32 %r11, %r11, %r35;"
        ));
    }

    /// Some threads store.
    fn store_of_some(&mut self) {
        let label = self.label();
        let pred = self.condition(false);
        self.push(&format!(
            "@{pred} bra {label};\nadd.u32 %r11, %r11, %r1;\nst.global.u32 [%rd2], %r11;\n{label}:"
        ));
    }

    fn statements(&mut self, is_uniform: bool, depth: u32, ways_out: &[String]) {
        for _ in 0..=self.choose(3) {
            self.statement(is_uniform, depth, ways_out);
        }
    }

    fn statement(&mut self, is_uniform: bool, depth: u32, ways_out: &[String]) {
        match self.choose(if depth == 0 { 3 } else { 9 }) {
            0 => self.push("mad.lo.u32 %r10, %r10, 3, %r5;"),
            1 if is_uniform => self.exchange(),
            2 if is_uniform => self.push("shfl.sync.bfly.b32 %r35, %r10, 3, 31, -1;\nadd.u32 %r11, %r11, %r35;"),
            1 | 2 => self.push("st.global.u32 [%rd2], %r11;\nadd.u32 %r11, %r11, %r1;"),
            3..6 => {
                let inner = is_uniform && self.choose(3) > 0;
                let (other, join) = (self.label(), self.label());
                let pred = self.condition(inner);
                self.push(&format!("@{pred} bra {other};"));
                self.statements(inner, depth - 1, if inner == is_uniform { ways_out } else { &[] });
                if inner && self.choose(2) == 0 {
                    self.exchange();
                    self.store_of_some();
                }
                if self.choose(2) == 0 {
                    self.push(&format!("bra {join};\n{other}:"));
                    self.statements(inner, depth - 1, if inner == is_uniform { ways_out } else { &[] });
                    self.push(&format!("{join}:"));
                } else {
                    self.push(&format!("{other}:"));
                }
            }
            6 if is_uniform && self.depth < 3 => {
                self.depth += 1;
                let (again, next, out) = (self.label(), self.label(), self.label());
                let counter = 40 + self.depth;
                let times = 1 + self.choose(3);
                self.push(&format!(
                    "mov.u32 %r{counter}, 0;\n{again}:\nsetp.ge.u32 %p21, %r{counter}, {times};\n@%p21 bra {out};"
                ));
                self.statements(is_uniform, depth - 1, &[next.clone(), out.clone()]);
                self.push(&format!(
                    "{next}:\nadd.u32 %r{counter}, %r{counter}, 1;\nbra {again};\n{out}:"
                ));
                self.depth -= 1;
            }
            7 if !ways_out.is_empty() => {
                let way = ways_out[self.choose(ways_out.len() as u64) as usize].clone();
                let pred = self.condition(is_uniform);
                self.push(&format!("@{pred} bra {way};"));
            }
            _ => self.push("xor.b32 %r11, %r11, %r10;"),
        }
    }
}

/// Statements nobody has thought of. `HETCKPT_TEST_SEEDS=100-200` tries others.
#[test]
fn statements_one_inside_another() {
    let seeds = std::env::var("HETCKPT_TEST_SEEDS").unwrap_or_else(|_| "0-2".to_owned());
    let (first, last) = seeds.split_once('-').unwrap();
    for seed in first.parse().unwrap()..last.parse().unwrap() {
        let mut nested = Nested {
            seed,
            text: String::new(),
            num_labels: 0,
            depth: 0,
        };
        for _ in 0..4 {
            nested.choose(2);
        }
        for _ in 0..5 {
            nested.statement(true, 3, &[]);
        }
        check(&format!("seed {seed}"), &nested.text, false);
    }
}
