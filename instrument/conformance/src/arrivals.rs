//! Barriers that some threads arrive at without waiting.

use crate::barriers_and_warps::check;
use crate::implementation::Implementation;

/// Warps by turns hand over what they have, and go on; the last warp of a block may have fewer threads than others.
pub fn barriers_that_only_some_wait_at(tested: &dyn Implementation) {
    let rounds = |handed_over, handed_back| {
        format!(
            ".shared .align 4 .b8 words[4096];
shl.b32 %r8, %r4, 2;
mov.u32 %r9, words;
add.u32 %r8, %r8, %r9;
xor.b32 %r10, %r4, 32;
shl.b32 %r10, %r10, 2;
add.u32 %r10, %r10, %r9;
mov.u32 %r11, 0;
mov.u32 %r12, 7;
mov.u32 %r13, 9;
and.b32 %r14, %r4, 32;
setp.eq.u32 %p1, %r14, 0;
st.shared.u32 [%r10], %r11;
bar.sync 0;
AGAIN:
@!%p1 bra CONSUMES;
st.shared.u32 [%r8], %r5;
bar.arrive {handed_over}, 64;
bar.sync {handed_back}, 64;
ld.shared.u32 %r6, [%r10];
bra DONE;
CONSUMES:
bar.sync {handed_over}, 64;
ld.shared.u32 %r6, [%r10];
st.shared.u32 [%r8], %r5;
bar.arrive {handed_back}, 64;
DONE:
mad.lo.u32 %r5, %r6, 1664525, %r11;
add.u32 %r11, %r11, 1;
setp.lt.u32 %p2, %r11, 5;
@%p2 bra AGAIN;
bar.sync 0;
st.global.u32 [%rd2], %r5;"
        )
    };
    for (handed_over, handed_back) in [("7", "9"), ("%r12", "%r13"), ("7", "%r13")] {
        check(tested, &rounds(handed_over, handed_back), [64, 1, 1]);
        check(tested, &rounds(handed_over, handed_back), [12, 4, 1]);
    }
}
