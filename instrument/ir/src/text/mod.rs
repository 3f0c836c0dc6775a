//! The text form of hetIR: what archives store, the CPU code generator is given, and people read.
//!
//! [`mod@print`] and [`mod@parse`] are inverses: `parse(print(k)) == k` for every kernel whose ids are in range, and
//! `print(parse(t))` is `t` without comments and spare blanks. Text from outside is hostile: the parser has limits
//! ([`limits`]) and checks every id; whether the result *means* something is [`crate::validate`]'s business.
//!
//! One statement a line; `;` starts a comment; `!12` at the end of a line is its PTX line. Ids count from 0 in the
//! order of their declarations.
//!
//! ```text
//! kernel "_Z4axpyPff" {
//!   param "p0" at 0 size 8 align 8
//!   shared 1024
//!   shared_var "tile" at 0 size 1024
//!   local 48
//!   max_ntid 256 1 1
//!   reg %r0..%r3 w32
//!   reg %r4 pred
//!   resume rp0 entry bb0
//!   resume rp1 loop bb1
//! bb0:
//!   ld.param.u32 %r0, [0] !12
//!   poll rp0, bb1
//! bb1:
//!   @!%r4 fma.f32.rn.ftz %r1, %r1, %r2, 0x3f800000 !14
//!   setp.lt.s32 %r4|_, %r0, 7, and !%r4
//!   warp.shfl_down %r3|%r4, %r1, 16, 31 mask 0xffffffff arrive rp1 leave rp1 poll
//!   br %r4, bb1, bb2
//! bb2:
//!   exit
//! }
//! ```

pub mod limits;
pub mod names;
pub mod print;
mod print_inst;
mod print_operand;
pub mod parse;
