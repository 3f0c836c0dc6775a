//! Bulk copies and the barrier objects that they complete: one thread copies for all, of a block's 16 KiB.
//!
//! One within shared memory is no instruction for an H200 where a block is in no cluster of several.

/// A row of 16 bytes for each thread at `%s2`, all at `%s0`, a barrier object at `%s1`; the first thread has `%q0`.
const DECLARED: &str = "{ .shared .align 128 .b8 rows[16384]; .shared .align 8 .b64 full; .reg .b32 %s<6>; \
    .reg .b64 %x<6>; .reg .pred %q<2>; mov.u32 %s0, rows; mov.u32 %s1, full; mad.lo.u32 %s2, %r9, 16, %s0; \
    setp.eq.u32 %q0, %r9, 0; @%q0 mbarrier.init.shared.b64 [%s1], 1; ";
/// Each thread's row, once the barrier object is complete.
const WAITED: &str = "WAIT: mbarrier.try_wait.parity.shared.b64 %q1, [%s1], 0; @!%q1 bra WAIT; \
    ld.shared.v2.b64 {%x2, %x3}, [%s2]; mul.lo.u64 %x2, %x2, 3; xor.b64 %rd11, %x2, %x3; } mov.b64 %rd0, %rd11";

const FROM_GLOBAL: &str = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
const TO_GLOBAL: &str = "cp.async.bulk.global.shared::cta.bulk_group";

/// Names and instructions.
pub fn forms() -> Vec<(String, String)> {
    // Half of each 4096 bytes of operands.
    let from_global = format!(
        "bar.sync 0; @!%q0 bra.uni WAIT; mbarrier.arrive.expect_tx.shared.b64 %x0, [%s1], 16384; \
         mov.u32 %s3, %s0; mov.b64 %x1, %read; mov.u32 %s4, 0; \
         COPY: {FROM_GLOBAL} [%s3], [%x1], 2048, [%s1]; add.u32 %s3, %s3, 2048; add.u64 %x1, %x1, 4096; \
         add.u32 %s4, %s4, 1; setp.lt.u32 %q1, %s4, 8; @%q1 bra COPY; "
    );
    let to_global = format!(
        "st.shared.v2.b64 [%s2], {{%rd1, %rd2}}; fence.proxy.async; bar.sync 0; \
         mul.wide.u32 %x4, %r9, 32; sub.u64 %x4, %global, %x4; @%q0 {TO_GLOBAL} [%x4], [%s0], 16384; \
         @%q0 cp.async.bulk.commit_group; @%q0 cp.async.bulk.wait_group 0; fence.proxy.async; bar.sync 0; \
         mad.wide.u32 %x5, %r9, 16, %x4; ld.global.v2.b64 {{%x2, %x3}}, [%x5]; st.shared.v2.b64 [%s2], {{%x3, %x2}}; \
         @%q0 mbarrier.arrive.shared.b64 %x0, [%s1]; "
    );
    [(FROM_GLOBAL, from_global), (TO_GLOBAL, to_global)]
        .map(|(name, text)| (name.to_owned(), [DECLARED, &text, WAITED].concat()))
        .to_vec()
}
