//! What the front end makes of an instruction by several others, of calls, generic addresses and layouts, run in the
//! reference interpreter and compared with the same written in Rust.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_interp::{GlobalMemory, Launch, run};
use hetckpt_ir::types::Dim3;
use support::{BUFFER, execute, kernel};

/// Values at the edges of carrying, and some others.
fn interesting() -> Vec<u128> {
    let mut values = vec![
        0,
        1,
        u128::MAX,
        1 << 32,
        (1 << 64) - 1,
        (1 << 96) - 1,
        1 << 127,
        u128::MAX - 0xFFFF_FFFF,
    ];
    let mut seed = 0x9E37_79B9_7F4A_7C15_u128;
    for _ in 0..12 {
        seed = seed
            .wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645)
            .wrapping_add(0x1234_5678_9ABC_DEF1);
        values.push(seed);
        values.push(seed >> 61);
    }
    values
}

fn words(value: u128) -> [u32; 4] {
    let bytes = value.to_le_bytes();
    std::array::from_fn(|i| u32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap()))
}

fn value(words: &[u32]) -> u128 {
    words
        .iter()
        .rev()
        .fold(0, |value, word| value << 32 | u128::from(*word))
}

#[test]
fn carry_chains_add_subtract_and_multiply_long_numbers() {
    let ptx = kernel(
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
        ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd1+16];
        add.cc.u32 %r11, %r1, %r5;
        addc.cc.u32 %r12, %r2, %r6;
        addc.cc.u32 %r13, %r3, %r7;
        addc.cc.u32 %r14, %r4, %r8;
        addc.u32 %r15, 0, 0;
        st.global.v4.u32 [%rd1+32], {%r11, %r12, %r13, %r14};
        st.global.u32 [%rd1+48], %r15;
        sub.cc.u32 %r1, %r1, %r5;
        subc.cc.u32 %r2, %r2, %r6;
        subc.cc.u32 %r3, %r3, %r7;
        subc.cc.u32 %r4, %r4, %r8;
        subc.u32 %r15, 0, 0;
        st.global.v4.u32 [%rd1+64], {%r1, %r2, %r3, %r4};
        st.global.u32 [%rd1+52], %r15;
        ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
        mul.lo.u32 %r11, %r1, %r5;
        mul.hi.u32 %r12, %r1, %r5;
        mad.lo.cc.u32 %r12, %r1, %r6, %r12;
        madc.hi.u32 %r13, %r1, %r6, 0;
        mad.lo.cc.u32 %r12, %r2, %r5, %r12;
        madc.hi.cc.u32 %r13, %r2, %r5, %r13;
        addc.u32 %r14, 0, 0;
        mad.lo.cc.u32 %r13, %r2, %r6, %r13;
        madc.hi.u32 %r14, %r2, %r6, %r14;
        st.global.v4.u32 [%rd1+80], {%r11, %r12, %r13, %r14};
        ld.global.v2.u64 {%rd2, %rd3}, [%rd1];
        ld.global.v2.u64 {%rd4, %rd5}, [%rd1+16];
        add.cc.s64 %rd6, %rd2, %rd4;
        addc.s64 %rd7, %rd3, %rd5;
        st.global.v2.u64 [%rd1+96], {%rd6, %rd7};",
    );
    for a in interesting() {
        for b in interesting() {
            let mut input = [words(a), words(b)].concat();
            input.resize(28, 0);
            let output = execute(&ptx, 1, 0, &[], &input);
            let (sum, carry) = a.overflowing_add(b);
            let (difference, borrow) = a.overflowing_sub(b);
            let low = u128::from(u64::MAX);
            assert_eq!(value(&output[8..12]), sum, "{a:#x} + {b:#x}");
            assert_eq!(output[12], u32::from(carry), "carry of {a:#x} + {b:#x}");
            assert_eq!(value(&output[16..20]), difference, "{a:#x} - {b:#x}");
            assert_eq!(
                output[13],
                0u32.wrapping_sub(u32::from(borrow)),
                "borrow of {a:#x} - {b:#x}"
            );
            assert_eq!(value(&output[20..24]), (a & low) * (b & low), "{a:#x} * {b:#x}");
            assert_eq!(value(&output[24..28]), sum, "{a:#x} + {b:#x} in 64 bits");
        }
    }
}

#[test]
fn byte_dot_products_extend_by_their_types() {
    let ptx = kernel(
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
        dp4a.u32.u32 %r5, %r1, %r2, %r3;
        dp4a.s32.u32 %r6, %r1, %r2, %r3;
        dp4a.u32.s32 %r7, %r1, %r2, %r3;
        dp4a.s32.s32 %r8, %r1, %r2, %r3;
        st.global.v4.u32 [%rd1], {%r5, %r6, %r7, %r8};",
    );
    for (a, b, c) in [
        (0x8180_7F01_u32, 0xFF80_017F_u32, 5_u32),
        (0x0102_0304, 0xFFFF_FFFF, u32::MAX),
    ] {
        let output = execute(&ptx, 1, 0, &[], &[a, b, c, 0]);
        let byte = |word: u32, i: usize, signed: bool| {
            let byte = word.to_le_bytes()[i];
            if signed {
                i64::from(byte.cast_signed())
            } else {
                i64::from(byte)
            }
        };
        for (result, (a_signed, b_signed)) in
            output
                .iter()
                .zip([(false, false), (true, false), (false, true), (true, true)])
        {
            let dot: i64 = (0..4).map(|i| byte(a, i, a_signed) * byte(b, i, b_signed)).sum();
            let expected = (dot + i64::from(c)) & 0xFFFF_FFFF;
            assert_eq!(i64::from(*result), expected);
        }
    }
}

#[test]
fn selections_select() {
    let ptx = kernel(
        "ld.global.v2.u32 {%r1, %r2}, [%rd1];
        setp.lt.s32 %p1|%p2, %r1, %r2;
        slct.u32.s32 %r3, 10, 20, %r1;
        set.lt.or.u32.s32 %r4, %r1, %r2, !%p1;
        set.lt.and.f32.s32 %r5, %r1, %r2, %p1;
        selp.u32 %r6, 10, 20, !%p1;
        selp.u32 %r7, 10, 20, %p2;
        mov.b32 %f1, 0fBF800000;
        slct.u32.f32 %r8, 10, 20, %f1;
        mov.b16 %h1, 0x3C00;
        set.eq.f16.f16 %h2, %h1, %h1;
        cvt.u32.u16 %r9, %h2;
        st.global.v4.u32 [%rd1], {%r3, %r4, %r5, %r6};
        st.global.v4.u32 [%rd1+16], {%r7, %r8, %r9, 0};",
    );
    // `set` to f32 writes a register of 32 bits, however it was declared.
    for (a, b) in [(-1_i32, 5_i32), (5, -1), (0, 0)] {
        let output = execute(
            &ptx,
            1,
            0,
            &[],
            &[a.cast_unsigned(), b.cast_unsigned(), 0, 0, 0, 0, 0, 0],
        );
        let less = a < b;
        let pick = |first: bool| if first { 10 } else { 20 };
        let one = if less { 1.0_f32.to_bits() } else { 0 };
        assert_eq!(
            output,
            [pick(a >= 0), u32::MAX, one, pick(!less), pick(!less), 20, 0x3C00, 0]
        );
    }
}

#[test]
fn pairs_of_halves_take_the_first_source_above() {
    let ptx = kernel(
        "cvt.rn.f16x2.f32 %r1, 0f3F800000, 0fC0000000;
        cvt.rn.bf16x2.f32 %r2, 0f3F800000, 0fC0000000;
        st.global.v2.u32 [%rd1], {%r1, %r2};",
    );
    assert_eq!(execute(&ptx, 1, 0, &[], &[0, 0]), [0x3C00_C000, 0x3F80_C000]);
}

#[test]
fn guarded_expansions_leave_the_result_alone() {
    let ptx = kernel(
        "mov.u32 %r1, 77;
        mov.u32 %r2, 78;
        mov.u32 %r3, 79;
        mov.u32 %r4, 5;
        setp.eq.u32 %p1, %r1, 0;
        add.cc.u32 %r9, 0xffffffff, 1;
        @%p1 add.cc.u32 %r1, %r1, 1;
        @%p1 slct.u32.s32 %r2, 1, 2, %r4;
        @%p1 dp4a.u32.u32 %r3, %r1, %r2, %r3;
        @!%p1 addc.u32 %r4, %r4, 0;
        @%p1 ret;
        st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};",
    );
    assert_eq!(execute(&ptx, 1, 0, &[], &[0; 4]), [77, 78, 79, 6]);
}

/// A subtraction adds the complement and one, so its flag says that it did not borrow.
#[test]
fn mixed_carry_chains_share_one_flag() {
    let ptx = kernel(
        "ld.global.u32 %r1, [%rd1];
        ld.global.u64 %rd2, [%rd1+8];
        ld.global.u32 %r2, [%rd1+16];
        ld.global.u64 %rd3, [%rd1+24];
        sub.cc.u32 %r3, %r1, %r2;
        addc.u32 %r4, 0, 0;
        add.cc.u32 %r3, %r1, %r2;
        subc.u32 %r5, 0, 0;
        sub.cc.u32 %r3, %r1, %r2;
        addc.cc.u32 %r6, %r1, %r2;
        subc.cc.u32 %r7, %r1, %r2;
        addc.u32 %r8, 0, 0;
        sub.cc.u64 %rd4, %rd2, %rd3;
        addc.u64 %rd5, 0, 0;
        add.cc.u64 %rd4, %rd2, %rd3;
        subc.u64 %rd6, 0, 0;
        st.global.v4.u32 [%rd1+32], {%r4, %r5, %r6, %r7};
        st.global.u32 [%rd1+48], %r8;
        st.global.u32 [%rd1+52], %rd5;
        st.global.u64 [%rd1+56], %rd6;",
    );
    // Sum and carry out of `a + b + carry`, of `bits` bits.
    let add = |a: u128, b: u128, carry: u128, bits: u32| {
        let sum = a + b + carry;
        (sum & ((1 << bits) - 1), sum >> bits)
    };
    for a in interesting() {
        for b in interesting() {
            let mut input = [words(a), words(b)].concat();
            input.resize(16, 0);
            let (a32, b32) = (a & u128::from(u32::MAX), b & u128::from(u32::MAX));
            let (a64, b64) = (a >> 64, b >> 64);
            let (ones32, ones64) = (u128::from(u32::MAX), u128::from(u64::MAX));
            let (_, no_borrow) = add(a32, ones32 - b32, 1, 32);
            let (_, carry) = add(a32, b32, 0, 32);
            let (sum, sum_carry) = add(a32, b32, no_borrow, 32);
            let (difference, last) = add(a32, ones32 - b32, sum_carry, 32);
            let (_, no_borrow64) = add(a64, ones64 - b64, 1, 64);
            let (_, carry64) = add(a64, b64, 0, 64);
            let expected = [
                no_borrow,
                add(0, ones32, carry, 32).0,
                sum,
                difference,
                last,
                no_borrow64,
                add(0, ones64, carry64, 64).0 & ones32,
                add(0, ones64, carry64, 64).0 >> 32,
            ];
            let output = execute(&ptx, 1, 0, &[], &input);
            let got: Vec<u128> = output[8..16].iter().map(|&word| word.into()).collect();
            assert_eq!(got, expected, "{input:x?}");
        }
    }
}

#[test]
fn calls_pass_scalars_and_structures() {
    let ptx = ".func (.param .b32 result) weigh(.param .b32 x, .param .align 4 .b8 pair[8])
        {
            .reg .pred %p<2>;
            .reg .b32 %r<6>;
            .reg .b64 %rd<3>;
            ld.param.u32 %r1, [x];
            mov.b64 %rd1, pair;
            ld.param.u32 %r2, [pair+4];
            ld.local.u32 %r3, [%rd1];
            setp.eq.s32 %p1, %r1, 3;
            @%p1 bra other;
            mad.lo.s32 %r4, %r1, %r2, %r3;
            st.param.b32 [result], %r4;
            ret;
        other:
            st.param.b32 [result], 1000;
            ret;
        }
        .entry k(.param .u64 buffer)
        {
            .reg .pred %p<3>;
            .reg .b16 %rs<3>;
            .reg .b32 %r<10>;
            .reg .b64 %rd<5>;
            ld.param.u64 %rd1, [buffer];
            mov.u32 %r1, 0;
            mov.u32 %r2, 0;
        loop:
            mov.u32 %r5, 4000;
            setp.ne.u32 %p1, %r1, 2;
            {
                .param .b32 param0;
                .param .align 4 .b8 param1[8];
                .param .b32 retval0;
                st.param.b32 [param0+0], %r1;
                st.param.v2.b32 [param1+0], {7, 10};
                st.param.b32 [retval0], 4000;
                @%p1 call.uni (retval0), weigh, (param0, param1);
                ld.param.b32 %r5, [retval0+0];
                ld.param.s8 %rs1, [retval0];
            }
            cvt.s32.s16 %r6, %rs1;
            mul.wide.u32 %rd2, %r1, 8;
            add.s64 %rd3, %rd1, %rd2;
            st.global.v2.u32 [%rd3], {%r5, %r6};
            add.u32 %r1, %r1, 1;
            setp.lt.u32 %p2, %r1, 5;
            @%p2 bra loop;
            ret;
        }";
    // The third call is skipped; 4000 and 1000 have low bytes below zero.
    let minus = |n: u32| 0u32.wrapping_sub(n);
    assert_eq!(
        execute(ptx, 1, 0, &[], &[0; 10]),
        [7, 7, 17, 17, 4000, minus(96), 1000, minus(24), 47, 47]
    );
}

#[test]
fn generic_addresses_reach_their_spaces() {
    let ptx = ".shared .align 4 .b8 unused[64];
        .shared .align 4 .b8 tile[128];
        .entry k(.param .u64 buffer)
        {
            .local .align 4 .b8 __local_depot0[16];
            .reg .pred %p<2>;
            .reg .b32 %r<10>;
            .reg .b64 %SP;
            .reg .b64 %SPL;
            .reg .b64 %rd<20>;
            mov.u64 %SPL, __local_depot0;
            cvta.local.u64 %SP, %SPL;
            ld.param.u64 %rd1, [buffer];
            mov.u32 %r1, %tid.x;
            mul.wide.u32 %rd2, %r1, 4;
            add.u64 %rd3, %SP, 4;
            add.s32 %r2, %r1, 100;
            st.u32 [%rd3+4], %r2;
            ld.local.u32 %r3, [%SPL+8];
            mov.u64 %rd4, tile;
            cvta.shared.u64 %rd5, %rd4;
            add.s64 %rd6, %rd5, %rd2;
            st.u32 [%rd6], %r3;
            bar.sync 0;
            xor.b32 %r4, %r1, 1;
            shl.b32 %r5, %r4, 2;
            mov.u32 %r6, tile;
            add.u32 %r7, %r6, %r5;
            ld.shared.u32 %r8, [%r7];
            add.s64 %rd7, %rd1, %rd2;
            st.u32 [%rd7], %r8;
            ret;
        }";
    let expected: Vec<u32> = (0..32).map(|thread| 100 + (thread ^ 1)).collect();
    assert_eq!(execute(ptx, 32, 0, &[], &[0; 32]), expected);
}

/// As LLVM writes an offset into something aligned.
#[test]
fn an_offset_may_be_ored_to_a_generic_address() {
    let ptx = ".entry k(.param .u64 buffer)
        {
            .local .align 8 .b8 __local_depot0[16];
            .reg .b32 %r<6>;
            .reg .b64 %SP;
            .reg .b64 %SPL;
            .reg .b64 %rd<8>;
            mov.u64 %SPL, __local_depot0;
            cvta.local.u64 %SP, %SPL;
            ld.param.u64 %rd1, [buffer];
            mov.u32 %r1, %tid.x;
            mov.u32 %r2, 0x40302010;
            st.u32 [%SP+8], %r2;
            and.b32 %r3, %r1, 3;
            cvt.u64.u32 %rd2, %r3;
            add.u64 %rd3, %SP, 8;
            or.b64 %rd4, %rd3, %rd2;
            ld.u8 %r4, [%rd4];
            mul.wide.u32 %rd5, %r1, 4;
            add.s64 %rd6, %rd1, %rd5;
            st.u32 [%rd6], %r4;
            ret;
        }";
    assert_eq!(execute(ptx, 6, 0, &[], &[0; 6]), [0x10, 0x20, 0x30, 0x40, 0x10, 0x20]);
}

#[test]
fn dynamic_shared_memory_follows_the_static_part() {
    let ptx = ".extern .shared .align 16 .b8 dynamic[];
        .entry k(.param .u64 buffer, .param .align 4 .b8 pair[8])
        {
            .shared .align 4 .u32 fixed[5];
            .reg .pred %p<2>;
            .reg .b32 %r<10>;
            .reg .b64 %rd<6>;
            ld.param.u64 %rd1, [buffer];
            mov.b64 %rd2, pair;
            add.s64 %rd3, %rd2, 4;
            ld.param.u32 %r1, [%rd3];
            ld.param.u32 %r2, [pair];
            mov.u32 %r3, dynamic;
            st.shared.u32 [fixed+16], 1;
            st.shared.u32 [dynamic], %r1;
            st.shared.u32 [%r3+4], %r2;
            ld.shared.v2.u32 {%r4, %r5}, [dynamic];
            ld.shared.u32 %r6, [fixed+16];
            st.global.v4.u32 [%rd1], {%r4, %r5, %r6, %r3};
            ret;
        }";
    let pair = [7_u32.to_le_bytes(), 9_u32.to_le_bytes()].concat();
    assert_eq!(execute(ptx, 1, 8, &pair, &[0; 4]), [9, 7, 1, 32]);
}

#[test]
fn asynchronous_copies_have_arrived_at_the_wait() {
    let ptx = ".shared .align 16 .b8 tile[32];
        .entry k(.param .u64 buffer)
        {
            .reg .pred %p<3>;
            .reg .b32 %r<8>;
            .reg .b64 %rd<3>;
            ld.param.u64 %rd1, [buffer];
            mov.u32 %r1, tile;
            setp.eq.u32 %p1, %r1, %r1;
            cp.async.cg.shared.global [%r1], [%rd1], 16;
            @!%p1 cp.async.ca.shared.global [%r1+4], [%rd1], 4;
            @%p1 cp.async.ca.shared.global [%r1+8], [%rd1+16], 8, 8;
            cp.async.commit_group;
            cp.async.wait_all;
            ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [%r1];
            st.global.v4.u32 [%rd1+32], {%r2, %r3, %r4, %r5};
            ret;
        }";
    let output = execute(ptx, 1, 0, &[], &[1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0]);
    assert_eq!(output[8..], [1, 2, 5, 6]);
}

#[test]
fn guarded_warp_operations_and_barriers_are_skipped_by_branches() {
    let ptx = kernel(
        "mov.u32 %r1, %tid.x;
        setp.lt.u32 %p1, %r1, 16;
        mov.u32 %r2, 1000;
        mov.u32 %r9, 0xffff;
        @%p1 shfl.sync.bfly.b32 %r2, %r1, 3, 31, %r9;
        vote.sync.ballot.b32 %r3, !%p1, -1;
        bar.red.popc.u32 %r4, 0, !%p1;
        setp.ne.u32 %p2, %r4, 16;
        @%p2 bar.sync 0;
        mul.wide.u32 %rd2, %r1, 16;
        add.s64 %rd3, %rd1, %rd2;
        st.global.v4.u32 [%rd3], {%r2, %r3, %r4, 0};",
    );
    let output = execute(&ptx, 32, 0, &[], &[0; 128]);
    for (thread, row) in (0u32..).zip(output.chunks(4)) {
        let shuffled = if thread < 16 { thread ^ 3 } else { 1000 };
        assert_eq!(row, [shuffled, 0xFFFF_0000, 16, 0], "thread {thread}");
    }
}

/// Bits of halves, and their values. Both are exact.
const HALVES: [(u16, f32); 9] = [
    (0, 0.0),
    (0x8000, -0.0),
    (0x3C00, 1.0),
    (0xBC00, -1.0),
    (0x4000, 2.0),
    (0x7BFF, 65504.0),
    (0x7C00, f32::INFINITY),
    (0xFC00, f32::NEG_INFINITY),
    (0x7E00, f32::NAN),
];

#[test]
fn pairs_of_halves_are_compared_each_by_itself() {
    let ptx = kernel(
        "ld.global.v2.u32 {%r1, %r2}, [%rd1];
        setp.lt.f16x2 %p1|%p2, %r1, %r2;
        selp.u32 %r3, 1, 0, %p1;
        selp.u32 %r4, 2, 0, %p2;
        or.b32 %r3, %r3, %r4;
        setp.neu.and.f16x2 %p1|%p3, %r1, %r2, %p1;
        selp.u32 %r4, 4, 0, %p1;
        or.b32 %r3, %r3, %r4;
        selp.u32 %r4, 8, 0, %p3;
        or.b32 %r3, %r3, %r4;
        st.global.u32 [%rd1+8], %r3;
        set.geu.f16x2.f16x2 %r5, %r1, %r2;
        st.global.u32 [%rd1+12], %r5;",
    );
    for (low_bits, low) in HALVES {
        for (high_bits, high) in HALVES {
            for (right_bits, right) in HALVES {
                let left_word = u32::from(high_bits) << 16 | u32::from(low_bits);
                let right_word = u32::from(right_bits) << 16 | u32::from(right_bits);
                let output = execute(&ptx, 1, 0, &[], &[left_word, right_word, 0, 0]);
                let less = [low < right, high < right];
                let other = [low, high].map(|left| left != right);
                let flags = [less[0], less[1], other[0] && less[0], other[1] && less[0]];
                let wanted = flags.iter().rev().fold(0, |bits, &flag| bits << 1 | u32::from(flag));
                assert_eq!(output[2], wanted, "{low} {high} {right}");
                let one = |is: bool| if is { 0x3C00 } else { 0 };
                let is_not_less = |left: f32| left.partial_cmp(&right) != Some(std::cmp::Ordering::Less);
                let wanted = one(is_not_less(low)) | one(is_not_less(high)) << 16;
                assert_eq!(output[3], wanted, "{low} {high} {right}");
            }
        }
    }
}

#[test]
fn properties_of_numbers_are_theirs() {
    let ask = |property: &str, at: usize| {
        format!(
            "testp.{property}.f32 %p1, %f1;\ntestp.{property}.f64 %p2, %fd1;\n\
             selp.u32 %r1, 1, 0, %p1;\nselp.u32 %r2, 2, 0, %p2;\nor.b32 %r1, %r1, %r2;\n\
             st.global.u32 [%rd1+{}], %r1;\n",
            12 + 4 * at
        )
    };
    let properties = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
    let asked: String = properties
        .iter()
        .zip(0..)
        .map(|(property, at)| ask(property, at))
        .collect();
    let ptx = kernel(&format!(
        ".reg .f64 %fd<2>;\nld.global.f64 %fd1, [%rd1];\nld.global.f32 %f1, [%rd1+8];\n{asked}"
    ));
    let numbers: [(f32, f64); 12] = [
        (0.0, 0.0),
        (-0.0, -0.0),
        (1.5, -1.5),
        (f32::MIN_POSITIVE, f64::MIN_POSITIVE),
        (-f32::MIN_POSITIVE / 2.0, -f64::MIN_POSITIVE / 2.0),
        (f32::from_bits(1), f64::from_bits(1)),
        (f32::from_bits(0x007F_FFFF), f64::from_bits((1 << 52) - 1)),
        (f32::MAX, f64::MAX),
        (f32::INFINITY, f64::NEG_INFINITY),
        (f32::NEG_INFINITY, f64::INFINITY),
        (f32::NAN, -f64::NAN),
        (f32::from_bits(0x7F80_0001), f64::from_bits(0xFFF0_0000_0000_0001)),
    ];
    for (single, double) in numbers {
        let bits = double.to_bits();
        let mut input = vec![bits as u32, (bits >> 32) as u32, single.to_bits()];
        input.resize(18, 0);
        let output = execute(&ptx, 1, 0, &[], &input);
        let both = |of_single: bool, of_double: bool| u32::from(of_single) | u32::from(of_double) << 1;
        let is_normal_there = |is_normal, is_zero| is_normal || is_zero;
        let wanted = [
            both(single.is_finite(), double.is_finite()),
            both(single.is_infinite(), double.is_infinite()),
            both(!single.is_nan(), !double.is_nan()),
            both(single.is_nan(), double.is_nan()),
            both(
                is_normal_there(single.is_normal(), single == 0.0),
                is_normal_there(double.is_normal(), double == 0.0),
            ),
            both(single.is_subnormal(), double.is_subnormal()),
        ];
        assert_eq!(output[3..9], wanted, "{single:e} {double:e}");
    }
}

#[test]
fn products_of_24_bits_have_48() {
    let ptx = kernel(
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
        mul24.lo.u32 %r5, %r1, %r2;
        mul24.hi.u32 %r6, %r1, %r2;
        mul24.lo.s32 %r7, %r1, %r2;
        mul24.hi.s32 %r8, %r1, %r2;
        st.global.v4.u32 [%rd1+16], {%r5, %r6, %r7, %r8};
        mad24.lo.u32 %r5, %r1, %r2, %r3;
        mad24.hi.u32 %r6, %r1, %r2, %r3;
        mad24.lo.s32 %r7, %r1, %r2, %r3;
        mad24.hi.s32 %r8, %r1, %r2, %r3;
        st.global.v4.u32 [%rd1+32], {%r5, %r6, %r7, %r8};",
    );
    for a in interesting().into_iter().map(|a| a as u32) {
        for b in interesting().into_iter().map(|b| (b >> 40) as u32) {
            let c = a.rotate_left(7) ^ b;
            let mut input = vec![a, b, c, 0];
            input.resize(12, 0);
            let output = execute(&ptx, 1, 0, &[], &input);
            let unsigned = u64::from(a & 0xFF_FFFF) * u64::from(b & 0xFF_FFFF);
            let signed = |v: u32| i64::from((v << 8).cast_signed() >> 8);
            let signed = (signed(a) * signed(b)).cast_unsigned();
            let products = [unsigned, unsigned >> 16, signed, signed >> 16].map(|product| product as u32);
            assert_eq!(output[4..8], products, "{a:x} {b:x}");
            assert_eq!(
                output[8..12],
                products.map(|product| product.wrapping_add(c)),
                "{a:x} {b:x}"
            );
        }
    }
}

#[test]
fn differences_of_parts_are_absolute() {
    let ptx = kernel(
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
        vabsdiff4.u32.u32.u32 %r5, %r1, %r2, %r3;
        vabsdiff4.u32.u32.u32.add %r6, %r1, %r2, %r3;
        vabsdiff2.u32.u32.u32 %r7, %r1, %r2, %r3;
        vabsdiff2.u32.u32.u32.add %r8, %r1, %r2, %r3;
        st.global.v4.u32 [%rd1+16], {%r5, %r6, %r7, %r8};",
    );
    for a in interesting().into_iter().map(|a| a as u32) {
        for b in interesting().into_iter().map(|b| (b >> 64) as u32) {
            let c = a ^ b.rotate_left(9);
            let mut input = vec![a, b, c, 0];
            input.resize(8, 0);
            let output = execute(&ptx, 1, 0, &[], &input);
            let of_bits = |bits: u32| {
                let mask = u32::MAX >> (32 - bits);
                let places = (0..32).step_by(bits as usize);
                let differences = places.map(move |at| (at, (a >> at & mask).abs_diff(b >> at & mask)));
                let parts = differences
                    .clone()
                    .fold(0, |all, (at, difference)| all | difference << at);
                let sum = differences.fold(c, |sum, (_, difference)| sum.wrapping_add(difference));
                [parts, sum]
            };
            assert_eq!(output[4..8], [of_bits(8), of_bits(16)].concat(), "{a:x} {b:x}");
        }
    }
}

#[test]
fn halves_are_added_atomically() {
    // Each thread adds 1 and 2 to a pair, and threads below 8 add 1 to the upper half of another word.
    let ptx = kernel(
        "mov.u32 %r1, 0x40003C00;
        mov.u32 %r9, %tid.x;
        atom.global.add.noftz.f16x2 %r2, [%rd1], %r1;
        mul.wide.u32 %rd2, %r9, 4;
        add.s64 %rd3, %rd1, %rd2;
        st.global.u32 [%rd3+8], %r2;
        setp.lt.u32 %p1, %r9, 8;
        mov.b16 %h1, 0x3C00;
        @%p1 red.global.add.noftz.f16 [%rd1+6], %h1;",
    );
    let output = execute(&ptx, 40, 0, &[], &[0; 42]);
    // 40 and 80; 8.
    assert_eq!(output[..2], [0x5500_5100, 0x4800 << 16]);
    let mut before = output[2..].to_vec();
    before.sort_unstable();
    before.dedup();
    assert_eq!(before.len(), 40, "each has found another sum");
}

#[test]
fn modes_of_prmt_choose_bytes() {
    let ptx = kernel(
        "ld.global.v2.u32 {%r1, %r2}, [%rd1];
        ld.global.u32 %r3, [%rd1+8];
        prmt.b32.f4e %r4, %r1, %r2, %r3;
        prmt.b32.b4e %r5, %r1, %r2, %r3;
        prmt.b32.rc8 %r6, %r1, %r2, %r3;
        prmt.b32.ecl %r7, %r1, %r2, %r3;
        prmt.b32.ecr %r8, %r1, %r2, %r3;
        prmt.b32.rc16 %r9, %r1, %r2, %r3;
        st.global.v2.u32 [%rd1+16], {%r4, %r5};
        st.global.v4.u32 [%rd1+32], {%r6, %r7, %r8, %r9};",
    );
    let (a, b) = (0x3322_1100_u32, 0x7766_5544_u32);
    let byte = |at: u32| (((u64::from(b) << 32 | u64::from(a)) >> (8 * (at % 8))) as u32) & 0xFF;
    // The bytes above the two bits make no difference.
    for c in [0, 1, 2, 3, 0xFFFF_FFF0, 0xFFFF_FFFF] {
        let mut input = vec![a, b, c];
        input.resize(12, 0);
        let output = execute(&ptx, 1, 0, &[], &input);
        let at = c % 4;
        let made_of = |source: &dyn Fn(u32) -> u32| (0..4).fold(0, |all, i| all | byte(source(i)) << (8 * i));
        let wanted = [
            made_of(&|i| at + i),
            made_of(&|i| at + 8 - i),
            made_of(&|_| at),
            made_of(&|i| at.max(i)),
            made_of(&|i| at.min(i)),
            made_of(&|i| 2 * (at % 2) + i % 2),
        ];
        assert_eq!([&output[4..6], &output[8..12]].concat(), wanted, "{c:x}");
    }
}

/// Runs a kernel of one thread on words, which are its inputs, with `results` zeros behind them.
fn results(body: &str, inputs: &[u32], results: usize) -> Vec<u32> {
    let mut words = inputs.to_vec();
    words.resize(inputs.len() + results, 0);
    execute(&kernel(body), 1, 0, &[], &words).split_off(inputs.len())
}

#[test]
fn limited_results_are_not_negative_and_keep_nan() {
    let (nan, negative_zero, one, minus_two) = (0x7FC0_1234_u32, 1_u32 << 31, 1.0_f32.to_bits(), (-2.0_f32).to_bits());
    let body = "ld.global.v2.f32 {%f1, %f2}, [%rd1];
        max.NaN.f32 %f3, %f1, %f2;
        min.NaN.f32 %f4, %f1, %f2;
        st.global.v2.f32 [%rd1+8], {%f3, %f4};";
    for (a, b, wanted) in [
        (one, minus_two, [one, minus_two]),
        (nan, one, [0x7FFF_FFFF; 2]),
        (one, nan | 1 << 31, [0x7FFF_FFFF; 2]),
        (0, negative_zero, [0, negative_zero]),
    ] {
        assert_eq!(results(body, &[a, b], 2), wanted, "{a:x} {b:x}");
    }
    // Halves: 1 and -2 above, NaN and 3 below.
    let body = "ld.global.v2.u32 {%r1, %r2}, [%rd1];
        max.NaN.f16x2 %r3, %r1, %r2;
        mov.b32 %r4, 0x3C003C00;
        fma.rn.relu.f16x2 %r5, %r1, %r4, %r2;
        st.global.v2.u32 [%rd1+8], {%r3, %r5};";
    let pairs = [0x3C00_7E01, 0xC000_4200];
    assert_eq!(results(body, &pairs, 2), [0x3C00_7FFF, 0x0000_7FFF], "1 - 2 is below 0");
    let body = "ld.global.v2.f32 {%f1, %f2}, [%rd1];
        cvt.rn.relu.bf16x2.f32 %r3, %f1, %f2;
        cvt.rn.relu.f16.f32 %h1, %f1;
        cvt.u32.u16 %r4, %h1;
        st.global.v2.u32 [%rd1+8], {%r3, %r4};";
    assert_eq!(results(body, &[one, minus_two], 2), [0x3F80_0000, 0x3C00]);
    assert_eq!(results(body, &[minus_two, nan], 2), [0x0000_7FFF, 0]);
}

#[test]
fn halves_of_integers_do_not_touch_one_another() {
    let body = "ld.global.v2.u32 {%r1, %r2}, [%rd1];
        add.u16x2 %r3, %r1, %r2;
        max.s16x2 %r4, %r1, %r2;
        min.u16x2 %r5, %r1, %r2;
        max.relu.s16x2 %r6, %r1, %r2;
        min.relu.s32 %r7, %r1, %r2;
        st.global.v2.u32 [%rd1+8], {%r3, %r4};
        st.global.v2.u32 [%rd1+16], {%r5, %r6};
        st.global.u32 [%rd1+24], %r7;";
    let wanted = |a: u32, b: u32| {
        let halves = |f: &dyn Fn(u16, u16) -> u16| {
            u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
        };
        let signed = |x: u16, y: u16| x.cast_signed().max(y.cast_signed());
        vec![
            halves(&u16::wrapping_add),
            halves(&|x, y| signed(x, y).cast_unsigned()),
            halves(&|x, y| x.min(y)),
            halves(&|x, y| signed(x, y).max(0).cast_unsigned()),
            a.cast_signed().min(b.cast_signed()).max(0).cast_unsigned(),
        ]
    };
    for a in interesting().into_iter().map(|a| a as u32) {
        for b in interesting().into_iter().map(|b| (b >> 64) as u32) {
            assert_eq!(results(body, &[a, b], 5), wanted(a, b), "{a:x} {b:x}");
        }
    }
}

#[test]
fn bits_are_extended_from_any_place() {
    let body = "ld.global.v2.u32 {%r1, %r2}, [%rd1];
        szext.clamp.u32 %r3, %r1, %r2;
        szext.wrap.s32 %r4, %r1, %r2;
        st.global.v2.u32 [%rd1+8], {%r3, %r4};";
    let a = 0xDEAD_BEEF_u32;
    for count in [0, 1, 8, 17, 31, 32, 33, 0xFFFF_FFFF] {
        let below = |count: u32| if count < 32 { a & ((1 << count) - 1) } else { a };
        let wrapped = count % 32;
        let signed = match wrapped {
            0 => 0,
            _ => (a << (32 - wrapped)).cast_signed() >> (32 - wrapped),
        };
        assert_eq!(
            results(body, &[a, count], 2),
            [below(count), signed.cast_unsigned()],
            "{count}"
        );
    }
}

#[test]
fn copies_are_filled_up_with_zeros() {
    let words = [0x0302_0100, 0x0706_0504, 0x0B0A_0908, 0x0F0E_0D0C];
    for num_bytes in [0_u32, 1, 4, 7, 8, 13, 16] {
        let body = format!(
            ".shared .align 16 .b8 place[16];
            mov.u32 %r1, place;
            mov.u32 %r2, {num_bytes};
            st.shared.v4.u32 [%r1], {{-1, -1, -1, -1}};
            cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;
            cp.async.wait_all;
            ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r1];
            st.global.v4.u32 [%rd1+16], {{%r4, %r5, %r6, %r7}};"
        );
        let mut bytes: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
        bytes[num_bytes as usize..].fill(0);
        let wanted: Vec<u32> = bytes
            .chunks(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(results(&body, &words, 4), wanted, "{num_bytes}");
    }
    let body = ".shared .align 16 .b8 place[16];
        mov.u32 %r1, place;
        setp.eq.u32 %p1, 1, 1;
        mov.u64 %rd2, 0;
        cp.async.ca.shared.global.L2::cache_hint [%r1], [%rd1], 8, %p1, %rd2;
        cp.async.ca.shared.global [%r1+8], [%rd1+8], 8, !%p1;
        ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1];
        st.global.v4.u32 [%rd1+16], {%r4, %r5, %r6, %r7};";
    assert_eq!(results(body, &words, 4), [0, 0, words[2], words[3]]);
}

#[test]
fn the_lowest_lane_of_a_mask_is_elected() {
    let ptx = kernel(
        "mov.u32 %r9, %tid.x;
        elect.sync %r1|%p1, 0xFFFFFFF8;
        elect.sync _|%p2, 0xFFFFFFFF;
        selp.b32 %r2, 100, 0, %p1;
        add.u32 %r1, %r1, %r2;
        selp.b32 %r2, 1000, 0, %p2;
        add.u32 %r1, %r1, %r2;
        mul.wide.u32 %rd2, %r9, 4;
        add.s64 %rd3, %rd1, %rd2;
        st.global.u32 [%rd3], %r1;",
    );
    let output = execute(&ptx, 32, 0, &[], &[0; 32]);
    let wanted = |lane| {
        if lane == 0 {
            1003
        } else {
            3 + 100 * u32::from(lane == 3)
        }
    };
    assert_eq!(output, (0..32).map(wanted).collect::<Vec<u32>>());
}

#[test]
fn addresses_are_asked_for_their_space() {
    let body = ".shared .align 4 .b32 word;
        .local .align 4 .b32 own;
        mov.u64 %rd2, word;
        cvta.shared.u64 %rd3, %rd2;
        add.u64 %rd4, %rd3, 0;
        mov.u64 %rd5, own;
        cvta.local.u64 %rd6, %rd5;
        isspacep.shared %p1, %rd4;
        isspacep.global %p2, %rd4;
        isspacep.local %p3, %rd6;
        isspacep.global %p4, %rd1;
        isspacep.shared %p5, %rd1;
        selp.b32 %r1, 1, 0, %p1;
        @%p2 or.b32 %r1, %r1, 2;
        @%p3 or.b32 %r1, %r1, 4;
        @%p4 or.b32 %r1, %r1, 8;
        @%p5 or.b32 %r1, %r1, 16;
        st.global.u32 [%rd1], %r1;";
    assert_eq!(results(body, &[], 1), [1 + 4 + 8]);
}

/// The number of a byte with so many bits of mantissa; `None` if it is none.
fn number_of_byte(byte: u32, mantissa: u32) -> Option<f32> {
    let (bias, rest) = (if mantissa == 3 { 7 } else { 15 }, byte & 0x7F);
    if rest > if mantissa == 3 { 0x7E } else { 0x7C } {
        return None;
    }
    let (exponent, fraction) = ((rest >> mantissa).cast_signed(), (rest & ((1 << mantissa) - 1)) as f32);
    let unit = |exponent: i32| 2.0_f32.powi(exponent - bias - mantissa.cast_signed());
    let size = match exponent {
        0 => fraction * unit(1),
        31 => f32::INFINITY,
        _ => ((1 << mantissa) as f32 + fraction) * unit(exponent),
    };
    Some(if byte >> 7 == 1 { -size } else { size })
}

/// Numbers of 8 bits have at most three bits of fraction, and all are halves.
fn half_of(number: f32) -> u32 {
    let (bits, size) = (number.to_bits(), number.abs());
    let sign = bits >> 16 & 0x8000;
    sign | match size {
        _ if size.is_infinite() => 0x7C00,
        _ if size < 2.0_f32.powi(-14) => (size * 2.0_f32.powi(24)) as u32,
        _ => ((bits >> 13) & 0x3_FFFF) - (112 << 10),
    }
}

#[test]
fn eight_bits_become_halves() {
    for (name, mantissa) in [("e4m3x2", 3), ("e5m2x2", 2)] {
        let body = format!(
            "ld.global.u16 %h1, [%rd1];
            cvt.rn.f16x2.{name} %r1, %h1;
            cvt.rn.relu.f16x2.{name} %r2, %h1;
            st.global.v2.u32 [%rd1+8], {{%r1, %r2}};"
        );
        for byte in 0..256 {
            let number = number_of_byte(byte, mantissa);
            let wanted = number.map_or(0x7FFF, half_of);
            let limited = if number.is_some_and(|n| n <= 0.0) { 0 } else { wanted };
            assert_eq!(results(&body, &[byte, 0], 2), [wanted, limited], "{name} {byte:x}");
            assert_eq!(results(&body, &[byte << 8, 0], 2)[0], wanted << 16, "{name} {byte:x}");
        }
    }
}

#[test]
fn numbers_become_the_nearest_of_eight_bits() {
    for (name, mantissa) in [("e4m3x2", 3), ("e5m2x2", 2)] {
        let body = format!(
            "ld.global.v2.f32 {{%f1, %f2}}, [%rd1];
            cvt.rn.satfinite.{name}.f32 %h1, %f1, %f2;
            cvt.rn.satfinite.relu.{name}.f32 %h2, %f1, %f2;
            mov.b32 %r1, {{%h1, %h2}};
            st.global.u32 [%rd1+8], %r1;"
        );
        let finite: Vec<(u32, f32)> = (0..128)
            .filter_map(|byte| Some((byte, number_of_byte(byte, mantissa)?)))
            .filter(|(_, number)| number.is_finite())
            .collect();
        let nearest = |number: f32| -> u32 {
            let largest = finite.last().unwrap().1;
            let distance = |other: f32| (f64::from(number.abs().min(largest)) - f64::from(other)).abs();
            let best = |a: &&(u32, f32), b: &&(u32, f32)| {
                distance(a.1).total_cmp(&distance(b.1)).then((a.0 % 2).cmp(&(b.0 % 2)))
            };
            let byte = finite.iter().min_by(best).unwrap().0;
            byte | u32::from(number.is_sign_negative()) << 7
        };
        let between = finite.windows(2).map(|pair| (pair[0].1 + pair[1].1) / 2.0);
        let edges = between.flat_map(|middle| [middle, middle.next_up(), middle.next_down()]);
        let others = interesting().into_iter().map(|bits| f32::from_bits(bits as u32));
        let numbers = finite.iter().map(|&(_, number)| number).chain(edges).chain(others);
        for number in numbers.chain([f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, f32::NAN]) {
            let wanted = |number: f32| if number.is_nan() { 0x7F } else { nearest(number) };
            let limited = |number: f32| if number <= 0.0 { 0 } else { wanted(number) };
            let output = results(&body, &[number.to_bits(), (-number).to_bits()], 2)[0];
            let both = |of: &dyn Fn(f32) -> u32| of(number) << 8 | of(-number);
            assert_eq!(output, both(&wanted) | both(&limited) << 16, "{name} {number:e}");
        }
    }
}

#[test]
fn packed_numbers_are_limited() {
    let body = "ld.global.v2.u32 {%r1, %r2}, [%rd1];
        ld.global.u32 %r3, [%rd1+8];
        cvt.pack.sat.s16.s32 %r4, %r1, %r2;
        cvt.pack.sat.u8.s32.b32 %r5, %r1, %r2, %r3;
        cvt.pack.sat.s4.s32.b32 %r6, %r1, %r2, %r3;
        st.global.v2.u32 [%rd1+16], {%r4, %r5};
        st.global.u32 [%rd1+24], %r6;";
    for (a, b) in [(0, -1), (70_000, -70_000), (-5, 7), (200, 300), (i32::MIN, i32::MAX)] {
        let above = 0xABCD_1234_u32;
        let input = [a.cast_unsigned(), b.cast_unsigned(), above, 0];
        let part =
            |number: i32, low: i32, high: i32, bits: u32| number.clamp(low, high).cast_unsigned() & ((1 << bits) - 1);
        let wanted = [
            part(a, -32768, 32767, 16) << 16 | part(b, -32768, 32767, 16),
            above << 16 | part(a, 0, 255, 8) << 8 | part(b, 0, 255, 8),
            above << 8 | part(a, -8, 7, 4) << 4 | part(b, -8, 7, 4),
        ];
        assert_eq!(results(body, &input, 4)[..3], wanted, "{a} {b}");
    }
}

#[test]
fn hints_change_nothing() {
    let body = "createpolicy.fractional.L2::evict_last.b64 %rd2, 1.0;
        ld.global.L2::cache_hint.u32 %r1, [%rd1], %rd2;
        griddepcontrol.wait;
        fence.acq_rel.cluster;
        st.global.L2::cache_hint.u32 [%rd1+4], %r1, %rd2;
        griddepcontrol.launch_dependents;";
    assert_eq!(results(body, &[77], 1), [77]);
}

#[test]
fn halves_have_the_functions_of_single_precision() {
    let body = "ld.global.u32 %r1, [%rd1];
        ex2.approx.f16x2 %r2, %r1;
        tanh.approx.bf16x2 %r3, %r1;
        st.global.v2.u32 [%rd1+8], {%r2, %r3};";
    // 3 and -1 as f16, and other numbers as bf16.
    let found = results(body, &[0x4200_BC00, 0], 2);
    assert_eq!(found[0], 0x4800_3800, "8 and 0.5");
    let tanh = |bits: u32| (f32::from_bits(bits << 16).tanh().to_bits() >> 16, bits);
    for (half, (wanted, _)) in [(found[1] & 0xFFFF, tanh(0xBC00)), (found[1] >> 16, tanh(0x4200))] {
        assert!(half.abs_diff(wanted) <= 1, "{half:x} {wanted:x}");
    }
}

#[test]
fn dot_products_of_halves_and_bytes_are_sums() {
    let ptx = kernel(
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
        dp2a.lo.u32.u32 %r5, %r1, %r2, %r3;
        dp2a.hi.u32.s32 %r6, %r1, %r2, %r3;
        dp2a.lo.s32.u32 %r7, %r1, %r2, %r3;
        dp2a.hi.s32.s32 %r8, %r1, %r2, %r3;
        st.global.v4.u32 [%rd1+16], {%r5, %r6, %r7, %r8};",
    );
    for a in interesting().into_iter().map(|a| a as u32) {
        for b in interesting().into_iter().map(|b| (b >> 64) as u32) {
            let c = a ^ b.rotate_left(9);
            let mut input = vec![a, b, c, 0];
            input.resize(8, 0);
            let output = execute(&ptx, 1, 0, &[], &input);
            let half = |at: u32, signed: bool| {
                let bits = (a >> (16 * at)) as u16;
                if signed {
                    i64::from(bits.cast_signed())
                } else {
                    i64::from(bits)
                }
            };
            let byte = |at: u32, signed: bool| {
                let bits = (b >> (8 * at)) as u8;
                if signed {
                    i64::from(bits.cast_signed())
                } else {
                    i64::from(bits)
                }
            };
            let sum = |first, a_signed, b_signed| {
                let products = (0..2).map(|i| half(i, a_signed) * byte(first + i, b_signed));
                (i64::from(c) + products.sum::<i64>()) as u32
            };
            let wanted = [
                sum(0, false, false),
                sum(2, false, true),
                sum(0, true, false),
                sum(2, true, true),
            ];
            assert_eq!(output[4..8], wanted, "{a:x} {b:x}");
        }
    }
}

#[test]
fn kernels_take_memory_and_give_it_back() {
    use hetckpt_abi::device_heap as layout;
    const HEAP: u64 = BUFFER + 0x10000;
    const HEAP_BYTES: u64 = 16384;
    // Each thread takes eight times its number of bytes and notes their address; every other one gives them back, and
    // takes as many once more.
    let ptx = ".version 8.0\n.target sm_80\n.address_size 64
.extern .func (.param .b64 result) malloc(.param .b64 size);
.extern .func free(.param .b64 pointer);
.entry k(.param .u64 buffer)
{
    .reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [buffer];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 16;
    add.s64 %rd1, %rd1, %rd2;
    mul.wide.u32 %rd3, %r1, 8;
    { .param .b64 a; .param .b64 b; st.param.b64 [a], %rd3; call.uni (b), malloc, (a); ld.param.b64 %rd4, [b]; }
    st.global.u64 [%rd1], %rd4;
    setp.eq.u64 %p1, %rd4, 0;
    @%p1 ret;
    st.u32 [%rd4], %r1;
    and.b32 %r2, %r1, 1;
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra $kept;
    { .param .b64 a; st.param.b64 [a], %rd4; call.uni free, (a); }
    { .param .b64 a; .param .b64 b; st.param.b64 [a], %rd3; call.uni (b), malloc, (a); ld.param.b64 %rd5, [b]; }
    st.global.u64 [%rd1+8], %rd5;
    st.u32 [%rd5], %r1;
$kept:
    ret;
}
";
    let mut module = hetckpt_ptx::lower_module(ptx).unwrap();
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    assert_eq!(module.globals[0].name, layout::NAME);
    let variable = BUFFER + 0x8000;
    let addresses = std::iter::once((layout::NAME.to_owned(), variable)).collect();
    hetckpt_ir::module::bind_globals(&mut module.kernels[0], &addresses).unwrap();
    let program = Program::from_start(module.kernels[0].clone());
    let thread_state = ThreadStateLayout::new(&program.kernel);
    let (grid, block) = (Dim3 { x: 1, y: 1, z: 1 }, Dim3 { x: 32, y: 1, z: 1 });
    let params = BUFFER.to_le_bytes();
    let launch = Launch::new(&program, &thread_state, grid, block, &params);
    let mut memory = GlobalMemory::new();
    memory.map(BUFFER, vec![0; 16 * 32]);
    memory.map(variable, HEAP.to_le_bytes().to_vec());
    let mut heap = vec![0; HEAP_BYTES as usize];
    heap[layout::USED as usize..][..8].copy_from_slice(&u64::from(layout::HEADER_BYTES).to_le_bytes());
    heap[layout::SIZE as usize..][..8].copy_from_slice(&HEAP_BYTES.to_le_bytes());
    memory.map(HEAP, heap);
    run(launch, &mut memory).unwrap();
    let heap = memory.range(HEAP).unwrap().to_vec();
    let noted = memory.range(BUFFER).unwrap();
    let noted: Vec<u64> = noted
        .chunks(8)
        .map(|v| u64::from_le_bytes(v.try_into().unwrap()))
        .collect();
    let mut held: Vec<(u64, u64)> = Vec::new();
    for (thread, pair) in (0..32).zip(noted.chunks(2)) {
        let pointer = if pair[1] == 0 { pair[0] } else { pair[1] };
        if thread == 0 {
            assert_eq!(pointer, 0, "nothing was wanted");
            continue;
        }
        assert!(pointer % 16 == 0 && pointer > HEAP && pointer + 8 * thread <= HEAP + HEAP_BYTES);
        let at = (pointer - HEAP) as usize;
        assert_eq!(heap[at..at + 4], (thread as u32).to_le_bytes(), "nobody else has it");
        held.push((pointer, 8 * thread));
    }
    held.sort_unstable();
    assert!(held.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "{held:?}");
}

#[test]
fn conversions_may_stop_at_the_largest_number() {
    let body = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 16; add.s64 %rd2, %rd1, %rd2; ld.global.f32 %f1, [%rd2];
        cvt.rn.satfinite.f16.f32 %h1, %f1; cvt.rn.relu.satfinite.bf16.f32 %h2, %f1; mov.b32 %r2, {%h1, %h2};
        cvt.rna.satfinite.tf32.f32 %r3, %f1; st.global.u32 [%rd2+4], %r2; st.global.u32 [%rd2+8], %r3;";
    let cases = [
        (1e6, [0x4974_7BFF, 0x4974_2000]),
        (f32::NEG_INFINITY, [0x0000_FBFF, 0xFF7F_E000]),
        (f32::MAX, [0x7F7F_7BFF, 0x7F7F_E000]),
        (-1.5, [0x0000_BE00, 0xBFC0_0000]),
    ];
    let input: Vec<u32> = cases
        .iter()
        .flat_map(|(number, _)| [number.to_bits(), 0, 0, 0])
        .collect();
    let found = execute(&kernel(body), 4, 0, &[], &input);
    for ((number, expected), found) in cases.iter().zip(found.chunks(4)) {
        assert_eq!(found[1..3], *expected, "{number}");
    }
}
