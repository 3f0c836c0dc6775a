//! Programs as the generator writes them, by hand: one whose threads stop each on its own, one whose blocks stop as a
//! whole.
//!
//! Both count `steps` steps of a recurrence for each thread; resume point 1 is the head of the loop with the sum (64
//! bits) and the counter (32 bits).

use hetckpt_abi::launch_control::SlotLayout;
use hetckpt_abi::opencl_program::{Argument, MEMORY_IN_ONE_BUFFER, OpenClProgram, RecordLayout, Requirements, Stops};
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_devices::device::{Code, LoadRequest};
use hetckpt_ir::text::parse;

/// A kernel with the same registers and resume points.
const IR: &str = r#"
kernel "steps" {
  param "out" at 0 size 8 align 8
  param "n" at 8 size 8 align 8
  reg %r0 w64
  reg %r1 w32
  reg %r2 pred
  resume rp0 entry bb0
  resume rp1 loop bb2
bb0:
  mov.u64 %r0, 0
  mov.u32 %r1, 0
  poll rp0, bb1
bb1:
  setp.lt.u32 %r2, %r1, 100
  br %r2, bb3, bb4
bb2:
  poll rp1, bb1
bb3:
  add.u64 %r0, %r0, 1
  add.u32 %r1, %r1, 1
  jump bb2
bb4:
  st.global.u64 [0], %r0
  exit
}
"#;

const BEGIN: &str = "
typedef struct { ulong out; ulong steps; } Params;

ulong step(ulong sum, uint i) { return sum * 6364136223846793005UL + i; }

__kernel void steps(__global uchar *arena, ulong arena_base, Params params, __global uint *counts,
                    PAUSE_WORD, uint4 grid, __global const uint *resumed,
                    __global const uchar *slots, __global uint *turned_away, __global uchar *stopped, uint num_stopped,
                    __local ulong2 *shared MORE_ARENAS) {
    __local uint is_away;
    __local int place;
    const uint threads = get_local_size(0), t = get_local_id(0), group = get_group_id(0);
    const uint block = resumed ? resumed[group] : group;
    if (t == 0) is_away = STOP_ASKED;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (is_away) {
        if (t == 0) turned_away[atomic_inc(counts)] = block;
        return;
    }
    ulong sum = 0;
    uint i = 0, point = 1;
    __global const uchar *slot = slots + group * (ulong)SLOT_STRIDE;
    const int is_resumed = resumed && group < grid.w;
    if (is_resumed) {
        point = ((__global const uint *)slot)[t];
        if (point == 2) {
            sum = ((__global const ulong *)(slot + SLOT_REGISTERS))[t];
            i = ((__global const uint *)(slot + SLOT_REGISTERS + 8 * threads))[t];
        }
    }
";

const THREADS: &str = "
    if (point == 0) return;
    for (; i < params.steps; i++) {
        if (i % 512 == 511 && STOP_ASKED) {
            const uint place = atomic_inc(counts + 1);
            if (place < num_stopped) {
                __global uchar *record = stopped + place * (ulong)RECORD_STRIDE;
                __global uint *words = (__global uint *)record;
                words[0] = block; words[1] = t; words[2] = 1; words[3] = 0;
                *(__global ulong *)(record + RECORD_REGISTERS) = sum;
                *(__global uint *)(record + RECORD_REGISTERS + 8) = i;
                return;
            }
        }
        sum = step(sum, i);
    }
    GLOBAL(ulong, params.out + 8ul * (block * threads + t)) = sum;
    if (params.steps == 13 && block == 3) counts[2] = 1;
}
";

const BLOCKS: &str = "
    __local ulong *sums = (__local ulong *)shared;
    if (is_resumed) sums[t] = ((__global const ulong *)(slot + SLOT_SHARED))[t];
    else sums[t] = 0;
    for (; i < params.steps; i++) {
        if (t == 0) {
            place = -1;
            if (STOP_ASKED) {
                const uint taken = atomic_inc(counts + 1);
                if (taken < num_stopped) place = taken;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (place >= 0) break;
        const ulong other = sums[(t + 1) % threads];
        barrier(CLK_LOCAL_MEM_FENCE);
        sums[t] += step(other, i + t);
        sum += sums[t];
    }
    if (i < params.steps) {
        __global uchar *to = stopped + place * (ulong)SLOT_STRIDE;
        ((__global uint *)to)[t] = 2;
        ((__global ulong *)(to + SLOT_REGISTERS))[t] = sum;
        ((__global uint *)(to + SLOT_REGISTERS + 8 * threads))[t] = i;
        ((__global ulong *)(to + SLOT_SHARED))[t] = sums[t];
        if (t == 0) *(__global uint *)(to + SLOT_CLAIM) = block;
    } else {
        GLOBAL(ulong, params.out + 8ul * (block * threads + t)) = sum;
    }
}
";

/// How a program looks at the pause word.
const LOOKS: &str = "
#define PAUSE_WORD __global const volatile uint *pause
#define STOP_ASKED (*pause)
";

/// The same for one that counts its looks.
const COUNTED_LOOKS: &str = "
#define PAUSE_WORD __global volatile uint *pause, uint look_price
#define STOP_ASKED stop_asked(pause, look_price)
";

/// A program for blocks of `threads` threads.
pub fn steps(stops: Stops, threads: u32) -> LoadRequest {
    steps_that(false, stops, threads)
}

/// The same; `counts_looks`: for devices that stop launches after a while.
pub fn steps_that(counts_looks: bool, stops: Stops, threads: u32) -> LoadRequest {
    let kernel = parse::kernel(IR).unwrap();
    let layout = ThreadStateLayout::new(&kernel);
    assert_eq!(layout.bytes_per_thread, 12);
    let static_shared_bytes = match stops {
        Stops::Threads => 0,
        Stops::Blocks => 8 * threads,
    };
    let slot = SlotLayout::new(threads, 12, static_shared_bytes, 0);
    let record = RecordLayout::new(12, 0);
    let numbers = [
        ("SLOT_STRIDE", slot.stride),
        ("SLOT_REGISTERS", slot.registers),
        ("SLOT_SHARED", slot.shared),
        ("SLOT_CLAIM", slot.shared_claim),
        ("RECORD_STRIDE", record.stride),
        ("RECORD_REGISTERS", record.registers),
    ];
    let mut text: String = numbers
        .iter()
        .map(|(name, value)| format!("#define {name} {value}\n"))
        .collect();
    text += MEMORY_IN_ONE_BUFFER;
    if counts_looks {
        text += hetckpt_abi::opencl_program::STOP_ASKED;
        text += COUNTED_LOOKS;
    } else {
        text += LOOKS;
    }
    text += BEGIN;
    text += match stops {
        Stops::Threads => THREADS,
        Stops::Blocks => BLOCKS,
    };
    let mut arguments = vec![
        Argument::Arena,
        Argument::ArenaBase,
        Argument::Params { size_bytes: 16 },
        Argument::Counts,
        Argument::Pause,
    ];
    arguments.extend(counts_looks.then_some(Argument::LookPrice));
    arguments.extend([
        Argument::Grid,
        Argument::Resumed,
        Argument::ResumedSlots,
        Argument::TurnedAway,
        Argument::Stopped,
        Argument::NumStopped,
        Argument::Shared,
    ]);
    request(
        layout,
        static_shared_bytes,
        OpenClProgram {
            text,
            entry: "steps".to_owned(),
            arguments,
            requires: Requirements::default(),
            stops,
            orders_for_device: false,
        },
    )
}

/// What a thread of the program whose threads stop each on its own comes to.
pub fn expected(steps: u64) -> u64 {
    (0..steps).fold(0u64, |sum, i| {
        sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i)
    })
}

/// What the threads of a block come to of the program whose blocks stop as a whole.
pub fn expected_of_block(threads: u32, steps: u64) -> Vec<u64> {
    let n = threads as usize;
    let (mut sums, mut results) = (vec![0u64; n], vec![0u64; n]);
    for i in 0..steps {
        let others: Vec<u64> = (0..n).map(|t| sums[(t + 1) % n]).collect();
        for (t, other) in others.into_iter().enumerate() {
            let step = other.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i + t as u64);
            sums[t] = sums[t].wrapping_add(step);
            results[t] = results[t].wrapping_add(sums[t]);
        }
    }
    results
}

/// A program that only takes the arena and the parameters.
pub fn plain(text: &str) -> LoadRequest {
    let kernel = parse::kernel(IR).unwrap();
    let program = OpenClProgram {
        text: MEMORY_IN_ONE_BUFFER.to_owned() + text,
        entry: "plain".to_owned(),
        arguments: vec![
            Argument::Arena,
            Argument::ArenaBase,
            Argument::Params { size_bytes: 16 },
        ],
        requires: Requirements::default(),
        stops: Stops::Threads,
        orders_for_device: false,
    };
    request(ThreadStateLayout::new(&kernel), 0, program)
}

fn request(layout: ThreadStateLayout, static_shared_bytes: u32, program: OpenClProgram) -> LoadRequest {
    LoadRequest {
        name: program.entry.clone(),
        code: Code::OpenClC(program),
        entries: vec![0, 1],
        layout,
        param_bytes: 16,
        params: vec![(0, 8), (8, 8)],
        static_shared_bytes,
        local_bytes: 0,
    }
}
