//! Barriers with reductions, warp-level operations and control flow, each in a kernel of text.

use hetckpt_abi::program::Program;

use crate::bench::NUM_THREADS;
use crate::implementation::{Implementation, Shape};
use crate::operands::{integers, operands};
use crate::reference::interpret;

/// Runs a kernel of PTX whose parameters are operands and output, and compares with the interpreter.
pub fn check(tested: &dyn Implementation, body: &str, dimensions: [u32; 3]) {
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n
.visible .entry k(.param .u64 input, .param .u64 output)
{{
.reg .pred %p<40>;
.reg .b32 %r<80>;
.reg .b64 %rd<20>;
ld.param.u64 %rd1, [input];
ld.param.u64 %rd2, [output];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %tid.y;
mov.u32 %r3, %ntid.x;
mad.lo.u32 %r4, %r2, %r3, %r1;
mul.wide.u32 %rd3, %r4, 32;
add.s64 %rd1, %rd1, %rd3;
mul.wide.u32 %rd3, %r4, 64;
add.s64 %rd2, %rd2, %rd3;
ld.global.u32 %r5, [%rd1];
ld.global.u32 %r6, [%rd1+8];
ld.global.u32 %r7, [%rd1+16];
{body}
ret;
}}\n"
    );
    let module = hetckpt_ptx::lower_module(&ptx).unwrap();
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    let program = Program::from_start(module.kernels[0].clone());
    let operands = operands(&integers());
    let mut output = vec![0u64; NUM_THREADS as usize * 8];
    let shape = Shape::one_block(dimensions);
    let expected = interpret(&program, shape, &operands, &output);
    if !tested.run(&program, shape, &operands, &mut output) {
        return;
    }
    let differing = output.iter().zip(&expected).position(|(a, b)| a != b);
    assert!(
        differing.is_none(),
        "word {differing:?}: {:x?} instead of {:x?}",
        &output[differing.unwrap()..][..1],
        &expected[differing.unwrap()..][..1]
    );
}

pub fn reductions_at_barriers(tested: &dyn Implementation) {
    check(
        tested,
        "setp.lt.u32 %p1, %r5, 4;
setp.lt.u32 %p2, %r5, 0xffffffff;
setp.ge.u32 %p3, %r4, 0;
mov.u32 %r10, 0;
LOOP:
bar.red.popc.u32 %r11, 0, %p1;
bar.red.popc.u32 %r12, 0, !%p1;
bar.red.and.pred %p4, 0, %p2;
bar.red.and.pred %p5, 0, %p3;
bar.red.or.pred %p6, 0, %p1;
bar.red.or.pred %p7, 0, !%p3;
selp.u32 %r13, 1, 2, %p4;
selp.u32 %r14, 3, 4, %p5;
selp.u32 %r15, 5, 6, %p6;
selp.u32 %r16, 7, 8, %p7;
add.u32 %r5, %r5, 1;
setp.lt.u32 %p1, %r5, 4;
add.u32 %r10, %r10, 1;
setp.lt.u32 %p8, %r10, 5;
@%p8 bra LOOP;
st.global.v4.u32 [%rd2], {%r11, %r12, %r13, %r14};
st.global.v2.u32 [%rd2+16], {%r15, %r16};",
        [NUM_THREADS, 1, 1],
    );
}

pub fn shuffles(tested: &dyn Implementation) {
    for dimensions in [[NUM_THREADS, 1, 1], [10, 7, 1], [33, 1, 1]] {
        let mut body = String::new();
        for (i, (kind, b, c)) in [
            ("up", "3", "0"),
            ("up", "%r6", "0x1800"),
            ("down", "5", "31"),
            ("down", "%r6", "0x181f"),
            ("bfly", "16", "31"),
            ("bfly", "%r6", "%r7"),
            ("idx", "%r6", "31"),
            ("idx", "%r6", "0x1c1f"),
        ]
        .iter()
        .enumerate()
        {
            let (value, flag) = (i * 2 + 20, i * 2 + 21);
            body.push_str(&format!(
                "shfl.sync.{kind}.b32 %r{value}|%p1, %r5, {b}, {c}, -1;
selp.u32 %r{flag}, 1, 0, %p1;
st.global.v2.u32 [%rd2+{}], {{%r{value}, %r{flag}}};\n",
                i * 8
            ));
        }
        check(tested, &body, dimensions);
    }
}

pub fn votes_matches_and_reductions_of_warps(tested: &dyn Implementation) {
    for dimensions in [[NUM_THREADS, 1, 1], [9, 5, 1]] {
        check(
            tested,
            "and.b32 %r6, %r6, 3;
setp.eq.u32 %p1, %r6, 1;
setp.le.u32 %p2, %r6, 3;
vote.sync.ballot.b32 %r20, %p1, -1;
vote.sync.all.pred %p3, %p1, -1;
vote.sync.all.pred %p4, %p2, -1;
vote.sync.any.pred %p5, %p1, -1;
vote.sync.uni.pred %p6, %p1, -1;
match.any.sync.b32 %r21, %r6, -1;
match.all.sync.b32 %r22|%p7, %r6, -1;
match.all.sync.b32 %r23|%p8, 7, -1;
redux.sync.add.u32 %r24, %r5, -1;
redux.sync.min.s32 %r25, %r5, -1;
redux.sync.max.u32 %r26, %r5, -1;
redux.sync.min.u32 %r27, %r5, -1;
redux.sync.max.s32 %r28, %r5, -1;
redux.sync.and.b32 %r29, %r5, -1;
redux.sync.or.b32 %r30, %r6, -1;
redux.sync.xor.b32 %r31, %r5, -1;
bar.warp.sync -1;
st.global.v4.u32 [%rd2], {%r20, %r21, %r22, %r23};
st.global.v4.u32 [%rd2+16], {%r24, %r25, %r26, %r27};
st.global.v4.u32 [%rd2+32], {%r28, %r29, %r30, %r31};
selp.u32 %r32, 1, 0, %p3;
@%p4 add.u32 %r32, %r32, 2;
@%p5 add.u32 %r32, %r32, 4;
@%p6 add.u32 %r32, %r32, 8;
@%p7 add.u32 %r32, %r32, 16;
@%p8 add.u32 %r32, %r32, 32;
st.global.u32 [%rd2+48], %r32;",
            dimensions,
        );
    }
}

/// Loops left from inside inner loops, ways that join, and a cycle with two entries.
pub fn control_flow(tested: &dyn Implementation) {
    check(
        tested,
        "and.b32 %r5, %r5, 63;
and.b32 %r6, %r6, 15;
mov.u32 %r10, 0;
mov.u32 %r11, 0;
OUTER:
mov.u32 %r12, 0;
INNER:
add.u32 %r10, %r10, 1;
mad.lo.u32 %r11, %r11, 3, %r12;
setp.gt.u32 %p1, %r10, %r5;
@%p1 bra DONE;
add.u32 %r12, %r12, 1;
and.b32 %r13, %r11, 7;
setp.eq.u32 %p2, %r13, 5;
@%p2 bra OUTER;
setp.eq.u32 %p3, %r13, 6;
@%p3 bra SKIP;
setp.lt.u32 %p4, %r12, %r6;
@%p4 bra INNER;
add.u32 %r11, %r11, 100;
SKIP:
xor.b32 %r11, %r11, 0x55;
bra OUTER;
DONE:
st.global.u32 [%rd2], %r11;
setp.lt.u32 %p5, %r6, 8;
mov.u32 %r14, 0;
@%p5 bra SECOND;
FIRST:
add.u32 %r14, %r14, 1;
SECOND:
add.u32 %r14, %r14, 10;
setp.lt.u32 %p6, %r14, %r5;
@%p6 bra FIRST;
st.global.u32 [%rd2+4], %r14;",
        [NUM_THREADS, 1, 1],
    );
}

/// Some threads end before others meet, at two places and in a loop.
pub fn threads_that_end_early(tested: &dyn Implementation) {
    check(
        tested,
        "and.b32 %r5, %r5, 31;
setp.eq.u32 %p1, %r5, 3;
@%p1 bra END;
mov.u32 %r10, 0;
mov.u32 %r11, 0;
ROUND:
and.b32 %r12, %r6, 31;
setp.eq.u32 %p2, %r12, %r10;
@%p2 bra END;
setp.lt.u32 %p3, %r5, 9;
bar.red.popc.u32 %r13, 0, %p3;
bar.red.and.pred %p4, 0, !%p1;
selp.u32 %r14, 1000, 0, %p4;
add.u32 %r11, %r11, %r13;
add.u32 %r11, %r11, %r14;
shfl.sync.down.b32 %r15, %r11, 1, 31, -1;
vote.sync.ballot.b32 %r16, %p3, -1;
mov.u32 %r17, 0;
SPIN:
add.u32 %r17, %r17, 1;
setp.lt.u32 %p5, %r17, %r5;
@%p5 bra SPIN;
add.u32 %r11, %r11, %r17;
xor.b32 %r11, %r11, %r16;
add.u32 %r10, %r10, 1;
setp.lt.u32 %p6, %r10, 6;
@%p6 bra ROUND;
st.global.v2.u32 [%rd2], {%r11, %r16};
END:",
        [NUM_THREADS, 1, 1],
    );
}

/// One warp, and then another, does something that the others do not, and all go on with what they had.
pub fn warps_that_go_their_own_way(tested: &dyn Implementation) {
    check(
        tested,
        "shr.u32 %r8, %r4, 5;
mov.u32 %r10, 7;
mov.u32 %r9, 0;
AGAIN:
setp.ne.u32 %p1, %r8, %r9;
@%p1 bra OTHERS;
mov.u32 %r10, %r5;
mov.u32 %r11, 16;
HALVE:
shfl.sync.bfly.b32 %r12, %r10, %r11, 31, -1;
add.u32 %r10, %r10, %r12;
st.global.u32 [%rd2+8], %r10;
shr.u32 %r11, %r11, 1;
setp.ne.u32 %p2, %r11, 0;
@%p2 bra HALVE;
OTHERS:
add.u32 %r13, %r10, %r9;
st.global.u32 [%rd2], %r13;
bar.sync 0;
add.u32 %r9, %r9, 1;
setp.lt.u32 %p3, %r9, 3;
@%p3 bra AGAIN;
st.global.u32 [%rd2+4], %r10;",
        [NUM_THREADS, 1, 1],
    );
}

/// Halves of warps with masks of their own, some in divergent code.
pub fn masks_of_some_lanes(tested: &dyn Implementation) {
    check(
        tested,
        "mov.u32 %r8, %laneid;
shr.u32 %r9, %r8, 4;
setp.eq.u32 %p1, %r9, 0;
selp.b32 %r10, 0xffff, 0xffff0000, %p1;
shfl.sync.bfly.b32 %r11|%p2, %r5, 3, 0x101f, %r10;
selp.u32 %r12, 1, 0, %p2;
setp.lt.u32 %p3, %r6, 100;
vote.sync.ballot.b32 %r13, %p3, %r10;
match.all.sync.b32 %r14|%p4, %r9, %r10;
redux.sync.max.u32 %r15, %r6, %r10;
mov.u32 %r16, 5;
mov.u32 %r17, %r7;
@!%p1 bra REST;
redux.sync.add.u32 %r16, %r7, 0xffff;
add.u32 %r17, %r17, 1;
REST:
st.global.v4.u32 [%rd2], {%r11, %r12, %r13, %r14};
st.global.v4.u32 [%rd2+16], {%r15, %r16, %r17, %r10};",
        [NUM_THREADS, 1, 1],
    );
}

/// Both sides of a branch exchange values, and one of them goes on with a loop.
pub fn both_sides_of_a_branch(tested: &dyn Implementation) {
    check(
        tested,
        "shr.u32 %r8, %r4, 5;
and.b32 %r9, %r8, 1;
setp.eq.u32 %p1, %r9, 0;
mov.u32 %r10, 3;
mov.u32 %r11, %r5;
@%p1 bra EVEN;
redux.sync.add.u32 %r11, %r6, -1;
setp.lt.u32 %p1, %r6, 50;
add.u32 %r10, %r10, %r11;
bra BOTH;
EVEN:
and.b32 %r12, %r7, 7;
WALK:
add.u32 %r10, %r10, 5;
sub.u32 %r12, %r12, 1;
setp.lt.s32 %p2, %r12, 100;
setp.gt.s32 %p3, %r12, 0;
@%p3 bra WALK;
redux.sync.min.u32 %r11, %r10, -1;
BOTH:
selp.u32 %r13, 1, 0, %p1;
st.global.v4.u32 [%rd2], {%r10, %r11, %r13, %r5};
bar.sync 0;
st.global.u32 [%rd2+16], %r11;",
        [NUM_THREADS, 1, 1],
    );
}

/// Some lanes ask who is there: those that have come the same way. The others have ended or have not.
pub fn lanes_that_ask_who_is_there(tested: &dyn Implementation) {
    for condition in [
        "and.b32 %r8, %r1, 3;\nsetp.eq.u32 %p1, %r8, 0;",
        "setp.ge.u32 %p1, %r1, 16;",
        "and.b32 %r8, %r1, 32;\nsetp.eq.u32 %p1, %r8, 0;",
    ] {
        for dimensions in [[NUM_THREADS, 1, 1], [33, 1, 1]] {
            check(
                tested,
                &format!(
                    "mov.u32 %r10, 7;
{condition}
@%p1 bra JOIN;
activemask.b32 %r10;
shfl.sync.idx.b32 %r11, %r5, 1, 31, %r10;
st.global.u32 [%rd2+4], %r11;
JOIN:
st.global.u32 [%rd2], %r10;"
                ),
                dimensions,
            );
            check(
                tested,
                &format!("{condition}\n@%p1 bra END;\nactivemask.b32 %r10;\nst.global.u32 [%rd2], %r10;\nEND:"),
                dimensions,
            );
        }
    }
}
