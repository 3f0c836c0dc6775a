//! What threads of different blocks see of one another's accesses: message passing, store buffering, coherence,
//! vectors.
//!
//! Of each pair of blocks one writes again and again while the other reads. No block waits for another for long,
//! because a device may run them one after the other; drivers of CPUs give out 32 blocks at a time, so the blocks of a
//! pair are 32 apart.

use std::cell::Cell;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{OpenClOptions, generate};
use hetckpt_devices::device::{Code, Device as _, Fill, LoadRequest};

use crate::fixture::{OUT, left, on_devices};

const NUM_BLOCKS: u32 = 128;
/// Bytes from the results on that a test uses: 64 of results, then those of each pair.
const BYTES: u64 = 64 + 64 * BYTES_OF_PAIR;
const BYTES_OF_PAIR: u64 = 8192;

/// A kernel in which `writer` and `reader` run `steps` times (`%r1` counts from 1). There is the pair's memory
/// (`%rd1`); `%p1` is set by a reader that has seen what must not be.
fn kernel(writer: &str, reader: &str) -> LoadRequest {
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n
.visible .entry litmus(.param .u64 out, .param .u64 steps)
{{
.reg .pred %p<20>;
.reg .b16 %h<20>;
.reg .b32 %r<40>;
.reg .b64 %rd<20>;
ld.param.u64 %rd9, [out];
ld.param.u32 %r2, [steps];
mov.u32 %r3, %ctaid.x;
shr.u32 %r4, %r3, 6;
shl.b32 %r4, %r4, 5;
and.b32 %r5, %r3, 31;
add.u32 %r4, %r4, %r5;
mul.wide.u32 %rd1, %r4, {BYTES_OF_PAIR};
add.u64 %rd1, %rd1, %rd9;
add.u64 %rd1, %rd1, 64;
and.b32 %r6, %r3, 32;
setp.ne.u32 %p2, %r6, 0;
mov.u32 %r1, 1;
mov.u32 %r7, 0;
@%p2 bra READ;
WRITE:
{writer}
add.u32 %r1, %r1, 1;
setp.le.u32 %p3, %r1, %r2;
@%p3 bra WRITE;
bra END;
READ:
{reader}
selp.u32 %r8, 1, 0, %p1;
add.u32 %r7, %r7, %r8;
add.u32 %r1, %r1, 1;
setp.le.u32 %p3, %r1, %r2;
@%p3 bra READ;
red.global.add.u32 [%rd9], %r7;
END:
ret;
}}\n"
    );
    let module = hetckpt_ptx::lower_module(&ptx).unwrap();
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    let probed = hetckpt_probes::probe(&module.kernels[0], &Default::default()).unwrap();
    let layout = ThreadStateLayout::new(&probed);
    let program = Program::from_start(probed);
    LoadRequest {
        name: "litmus".to_owned(),
        code: Code::OpenClC(generate(&program, &layout, &OpenClOptions::default()).unwrap()),
        entries: vec![0],
        layout,
        param_bytes: 16,
        params: vec![(0, 8), (8, 8)],
        static_shared_bytes: 0,
        local_bytes: 0,
    }
}

/// Runs it on the device as it is, if that needs no slices; `check` looks at the results.
fn run(request: &LoadRequest, steps: u64, check: impl Fn(&[u8])) {
    let is_done = Cell::new(false);
    on_devices(|bench| {
        if is_done.replace(true) {
            return;
        }
        if !bench.device.sees_host_writes {
            eprintln!("skipped: {} takes other programs", bench.device.describe().name);
            return;
        }
        let kernel = bench.device.load(request).unwrap();
        let queue = bench.device.create_queue(0).unwrap();
        bench.device.fill(OUT, 0, Fill::U8(0), BYTES, 1).unwrap();
        let launch = queue.launch(bench.launch(&kernel, NUM_BLOCKS, 1, steps)).unwrap();
        assert!(left(launch.wait()).is_finished());
        let mut bytes = vec![0; BYTES as usize];
        bench.device.read(OUT, &mut bytes).unwrap();
        check(&bytes);
    });
}

fn nothing_forbidden(bytes: &[u8]) {
    assert_eq!(bytes[..4], [0; 4], "so many times a reader saw what it must not");
}

/// Who sees the flag sees the data.
#[test]
fn messages_arrive_whole() {
    let writer =
        "st.relaxed.gpu.global.u32 [%rd1], %r1;\nfence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%rd1+128], %r1;";
    let reader =
        "ld.relaxed.gpu.global.u32 %r10, [%rd1+128];\nfence.acq_rel.gpu;\nld.relaxed.gpu.global.u32 %r11, [%rd1];
setp.lt.u32 %p1, %r11, %r10;";
    run(&kernel(writer, reader), 5000, nothing_forbidden);
    let writer = "st.relaxed.gpu.global.u32 [%rd1], %r1;\nst.release.gpu.global.u32 [%rd1+128], %r1;";
    let reader = "ld.acquire.gpu.global.u32 %r10, [%rd1+128];\nld.relaxed.gpu.global.u32 %r11, [%rd1];
setp.lt.u32 %p1, %r11, %r10;";
    run(&kernel(writer, reader), 5000, nothing_forbidden);
}

/// Of two threads that each write and then read what the other writes, one sees the other's.
#[test]
fn stores_are_not_kept_back_by_both() {
    // Four words for each step: two that are written, and what was read, and 1.
    let side = |own: u32, other: u32, tag: &str| {
        format!(
            "shl.b32 %r20, %r1, 4;
cvt.u64.u32 %rd2, %r20;
add.u64 %rd2, %rd2, %rd1;
mov.u32 %r21, 0;
WAIT_{tag}:
ld.relaxed.gpu.global.u32 %r22, [%rd1+{other}];
add.u32 %r21, %r21, 1;
setp.lt.u32 %p5, %r22, %r1;
setp.lt.u32 %p6, %r21, 100;
st.relaxed.gpu.global.u32 [%rd1+{own}], %r1;
and.pred %p5, %p5, %p6;
@%p5 bra WAIT_{tag};
mov.u32 %r23, 1;
st.relaxed.gpu.global.u32 [%rd2+{own}], %r23;
fence.sc.gpu;
ld.relaxed.gpu.global.u32 %r24, [%rd2+{other}];
add.u32 %r24, %r24, 1;
st.global.u32 [%rd2+{result}], %r24;
setp.ne.u32 %p1, %r1, %r1;",
            result = own + 8
        )
    };
    let request = kernel(&side(0, 4, "A"), &side(4, 0, "B"));
    run(&request, BYTES_OF_PAIR / 16 - 1, |bytes| {
        for (pair, cells) in bytes[64..].chunks(BYTES_OF_PAIR as usize).enumerate() {
            for (step, cell) in cells.chunks(16).enumerate().skip(1) {
                let [a, b] = [8, 12].map(|at| u32::from_le_bytes(cell[at..at + 4].try_into().unwrap()));
                assert!(
                    a >= 1 && b >= 1 && (a, b) != (1, 1),
                    "pair {pair}, step {step}: {a} {b}"
                );
            }
        }
    });
}

/// Who has seen a value sees no older one.
#[test]
fn a_word_is_coherent() {
    let writer = "st.relaxed.gpu.global.u32 [%rd1], %r1;";
    let reader = "ld.relaxed.gpu.global.u32 %r10, [%rd1];\nld.relaxed.gpu.global.u32 %r11, [%rd1];
setp.lt.u32 %p1, %r11, %r10;";
    run(&kernel(writer, reader), 20_000, nothing_forbidden);
}

/// Status and value in one, as CUB's scans have them.
#[test]
fn vectors_of_8_bytes_are_whole() {
    let writer = "not.b32 %r10, %r1;\nst.relaxed.gpu.global.v2.u32 [%rd1], {%r1, %r10};";
    let reader = "ld.relaxed.gpu.global.v2.u32 {%r10, %r11}, [%rd1];
or.b32 %r12, %r10, %r11;\nxor.b32 %r13, %r10, %r11;\nsetp.ne.u32 %p4, %r12, 0;\nsetp.ne.and.u32 %p1, %r13, 0xffffffff, %p4;";
    run(&kernel(writer, reader), 20_000, nothing_forbidden);
    let writer = "cvt.u16.u32 %h1, %r1;\nst.volatile.global.v4.u16 [%rd1], {%h1, %h1, %h1, %h1};";
    let reader = "ld.volatile.global.v4.u16 {%h1, %h2, %h3, %h4}, [%rd1];
setp.ne.u16 %p4, %h1, %h2;\nsetp.ne.or.u16 %p4, %h1, %h3, %p4;\nsetp.ne.or.u16 %p1, %h1, %h4, %p4;";
    run(&kernel(writer, reader), 20_000, nothing_forbidden);
}
