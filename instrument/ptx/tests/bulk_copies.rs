//! Bulk copies and the barrier objects that wait for them, run in the reference interpreter.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use support::{execute, kernel};

#[test]
fn barrier_objects_wait_for_threads_and_bytes() {
    // In each of three phases thread 0 has 64 bytes copied to shared memory, once before it says that they are
    // expected and once after, and all wait for them; then each adds up what has come.
    let body = ".shared .align 16 .b8 data[64]; .shared .align 8 .b64 object;
        mov.u32 %r1, %tid.x; mov.u32 %r9, 0; mov.u32 %r8, 0; setp.ne.u32 %p1, %r1, 0;
        @!%p1 mbarrier.init.shared::cta.b64 [object], 32;
        bar.sync 0;
        PHASE:
        shl.b32 %r4, %r8, 6; cvt.u64.u32 %rd4, %r4; add.s64 %rd5, %rd1, %rd4;
        @%p1 bra ARRIVE;
        setp.eq.u32 %p2, %r8, 1; @%p2 bra EARLY;
        mbarrier.arrive.expect_tx.shared::cta.b64 %rd6, [object], 64;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], [%rd5], 64, [object];
        bra WAIT;
        EARLY:
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], [%rd5], 64, [object];
        mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [object], 64;
        mbarrier.arrive.shared::cta.b64 %rd6, [object];
        bra WAIT;
        ARRIVE: mbarrier.arrive.shared::cta.b64 %rd6, [object];
        WAIT: mbarrier.try_wait.shared::cta.b64 %p3, [object], %rd6; @!%p3 bra WAIT;
        and.b32 %r5, %r1, 15; shl.b32 %r5, %r5, 2; mov.u32 %r6, data; add.u32 %r6, %r6, %r5;
        ld.shared.u32 %r7, [%r6]; mad.lo.u32 %r9, %r9, 3, %r7;
        bar.sync 0;
        add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, 3; @%p2 bra PHASE;
        mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3+192], %r9;
        // And back, in a group.
        bar.sync 0;
        @%p1 bra DONE;
        cp.async.bulk.global.shared::cta.bulk_group [%rd1+320], [data], 48;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
        DONE:";
    let input: Vec<u32> = (0..48).map(|n| n * n + 1).chain([0; 32 + 16]).collect();
    let output = execute(&kernel(body), 32, 0, &[], &input);
    for (thread, found) in output[48..80].iter().enumerate() {
        let word = |phase: usize| input[16 * phase + thread % 16];
        assert_eq!(*found, word(0) * 9 + word(1) * 3 + word(2), "thread {thread}");
    }
    assert_eq!(output[80..92], input[32..44]);
    assert_eq!(output[92..], [0; 4]);
}

#[test]
fn a_phase_does_not_end_while_bytes_are_missing() {
    let body = ".shared .align 8 .b64 object; mov.u32 %r9, 0;
        mbarrier.init.shared.b64 [object], 1;
        mbarrier.arrive.expect_tx.shared::cta.b64 %rd6, [object], 48;
        mbarrier.complete_tx.shared::cta.b64 [object], 32;
        mbarrier.test_wait.shared::cta.b64 %p1, [object], %rd6; @%p1 add.u32 %r9, %r9, 1;
        mbarrier.complete_tx.shared::cta.b64 [object], 16;
        mbarrier.test_wait.shared::cta.b64 %p1, [object], %rd6; @%p1 add.u32 %r9, %r9, 2;
        mbarrier.test_wait.parity.shared::cta.b64 %p1, [object], 0; @%p1 add.u32 %r9, %r9, 4;
        mbarrier.test_wait.parity.shared::cta.b64 %p1, [object], 1; @%p1 add.u32 %r9, %r9, 8;
        // Nothing is left of it in the next phase, to which a thread arrives in vain.
        mbarrier.expect_tx.shared::cta.b64 [object], 16;
        mbarrier.arrive.shared::cta.b64 %rd6, [object];
        mbarrier.test_wait.shared::cta.b64 %p1, [object], %rd6; @%p1 add.u32 %r9, %r9, 16;
        st.global.u32 [%rd1], %r9;";
    assert_eq!(execute(&kernel(body), 1, 0, &[], &[0]), [6]);
}

#[test]
fn atomic_operations_on_vectors_are_one_for_each_element() {
    let body = "mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f1, %r1; mov.f32 %f3, 0f3F800000; add.f32 %f2, %f1, %f3;
        atom.global.v2.f32.add {%f1, %f2}, [%rd1], {%f1, %f2};
        red.global.add.v4.f32 [%rd1+8], {%f3, %f3, %f3, %f3};
        mov.b32 %r2, 0x3C004000; mov.b32 {%h1, %h2}, %r2;
        atom.global.v2.f16.add.noftz {%h2, %h1}, [%rd1+24], {%h1, %h2};
        mov.b32 %r3, {%h1, %h2}; st.global.u32 [%rd1+28], %r3;";
    let found = execute(&kernel(body), 4, 0, &[], &[0; 8]);
    let float = |number: f32| number.to_bits();
    assert_eq!(found[..2], [float(6.0), float(10.0)]);
    assert_eq!(found[2..6], [float(4.0); 4]);
    // Four times two, and four times one.
    assert_eq!(found[6], 0x4400_4800);
}

#[test]
fn smallest_and_largest_halves_are_found_atomically() {
    // 1, 2, 3 and 4 as halves, the thread's own in both elements.
    let body = "mov.u32 %r1, %tid.x; add.u32 %r1, %r1, 1; cvt.rn.f16.u32 %h1, %r1;
        atom.global.v2.f16.max.noftz {%h2, %h3}, [%rd1], {%h1, %h1};
        mov.b32 %r2, {%h1, %h1};
        atom.global.v2.f16x2.min.noftz {%r3, %r4}, [%rd1+4], {%r2, %r2};";
    let found = execute(&kernel(body), 4, 0, &[], &[0x3C00_BC00, 0x4200_4200, 0x7E00_FC00]);
    // What is no number yields to one.
    assert_eq!(found, [0x4400_4400, 0x3C00_3C00, 0x3C00_FC00]);
}

#[test]
fn updates_tell_barrier_objects_what_has_come() {
    let body = ".shared .align 16 .b8 data[32]; .shared .align 8 .b64 object; mov.u32 %r9, 0;
        mov.u32 %r1, data; mov.u32 %r2, object; mov.u32 %r3, 5; mov.u32 %r4, 7;
        st.shared.v4.u32 [%r1], {%r9, %r9, %r9, %r9}; st.shared.v4.u32 [%r1+16], {%r9, %r9, %r9, %r9};
        mbarrier.init.shared.b64 [object], 1;
        mbarrier.arrive.expect_tx.shared::cta.b64 %rd6, [object], 32;
        st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r1], {%r3, %r4}, [%r2];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1+4], %r4, [%r2];
        mbarrier.test_wait.shared::cta.b64 %p1, [object], %rd6; @%p1 add.u32 %r9, %r9, 1;
        add.u32 %r5, %r1, 16; mov.u32 %r6, 16;
        cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.max.u32 [%r5], [%r1], %r6, [%r2];
        mbarrier.test_wait.shared::cta.b64 %p1, [object], %rd6; @%p1 add.u32 %r9, %r9, 2;
        mbarrier.complete_tx.shared::cta.b64 [object], 4;
        mbarrier.test_wait.shared::cta.b64 %p1, [object], %rd6; @%p1 add.u32 %r9, %r9, 4;
        st.global.u32 [%rd1], %r9; add.s64 %rd2, %rd1, 16;
        mov.u32 %r7, 0x40003C00; st.shared.u32 [%r1], %r7;
        cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2], [data], 16;
        cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%rd2], [data], 16;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
    let found = execute(&kernel(body), 1, 0, &[], &[0, 0, 0, 0, 0, 1, 2, 3]);
    // 12 of 32 bytes have come after the first two, and 28 after the third.
    assert_eq!(found[0], 4);
    // Doubled as halves; 14 as a subnormal number, too.
    assert_eq!(found[4..], [0x4400_4000, 1 + 14 + 14, 2, 3]);
}
