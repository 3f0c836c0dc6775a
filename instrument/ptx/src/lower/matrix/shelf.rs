//! Shared memory in which the lanes of a warp leave registers for one another: a shuffle for each would make as many
//! points at which a kernel may stop.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Address, AddressBase, AluOp, Modifiers, Op, Operand, Ordering, WarpOp};
use hetckpt_ir::types::{Space, Type, Width};

use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::matrix::emit::{lane_id, pack, unpack, word};
use crate::lower::matrix::shape::LANES;

/// Bytes of a word of each lane.
const WARP_BYTES: u32 = 4 * LANES;
/// Warps of a block of which nothing is known.
const MOST_WARPS: u32 = 1024 / LANES;

/// Registers that all lanes have left.
pub(crate) struct Shelf {
    /// Where the words of the warp's first lane are, counted from each place.
    warp: Operand,
    /// Offsets of the places: one for each register, two if they have 64 bits.
    places: Vec<u32>,
    is_long: bool,
}

/// A lane that has left registers.
#[derive(Clone, Copy)]
pub(crate) struct Lane(RegId);

/// Leaves each of `parts`, whose registers have 64 bits if `is_long`.
pub(crate) fn leave<const N: usize>(
    k: &mut KernelLowering<'_, '_>,
    parts: [&[Operand]; N],
    is_long: bool,
) -> Result<[Shelf; N], Reason> {
    let warp = warp_number(k);
    let warp = word(k, AluOp::Mul, Type::U32, [warp, Operand::Imm(WARP_BYTES.into())]);
    let own = lane_id(k);
    let own = lane(k, warp, own);
    // Whoever still reads what was left before.
    meet(k);
    let mut next = 0;
    let mut shelves = vec![];
    for registers in parts {
        let mut places = vec![];
        for &register in registers {
            let words = match is_long {
                true => unpack(k, Type::B64, Width::W32, register).to_vec(),
                false => vec![register],
            };
            for src in words {
                let place = place(k, next)?;
                next += 1;
                places.push(place);
                k.emit(Op::Store {
                    space: Space::Shared,
                    ty: Type::B32,
                    ordering: Ordering::Weak,
                    addr: address(own, place),
                    srcs: vec![src],
                });
            }
        }
        shelves.push(Shelf { warp, places, is_long });
    }
    meet(k);
    shelves
        .try_into()
        .map_err(|_| Reason::Family("matrices of these registers"))
}

/// The warp's number in its block. `%warpid` is another: on a GPU it tells where the warp happens to run.
fn warp_number(k: &mut KernelLowering<'_, '_>) -> Operand {
    let thread = k.thread_number();
    word(
        k,
        AluOp::Shr,
        Type::U32,
        [thread, Operand::Imm(LANES.trailing_zeros().into())],
    )
}

fn meet(k: &mut KernelLowering<'_, '_>) {
    k.emit(Op::Warp {
        op: WarpOp::Sync,
        dst: None,
        dst_pred: None,
        srcs: vec![],
        mask: Operand::Imm(u32::MAX.into()),
        probe: None,
    });
}

/// Offset of the place with this number, with a word for each thread of the block.
fn place(k: &mut KernelLowering<'_, '_>, number: usize) -> Result<u32, Reason> {
    if let Some(&place) = k.shelves.get(number) {
        return Ok(place);
    }
    let warps = k
        .most_threads()
        .map_or(MOST_WARPS, |threads| threads.div_ceil(LANES))
        .min(MOST_WARPS);
    let place = k.place_unnamed_shared(warps * WARP_BYTES)?;
    k.shelves.push(place);
    Ok(place)
}

fn lane(k: &mut KernelLowering<'_, '_>, warp: Operand, number: Operand) -> Lane {
    let dst = k.scratch(Width::W32);
    k.emit_unguarded(Op::Alu {
        op: AluOp::Mad,
        ty: Type::U32,
        mods: Modifiers::default(),
        dst,
        srcs: vec![number, Operand::Imm(4), warp],
    });
    Lane(dst)
}

fn address(lane: Lane, place: u32) -> Address {
    Address {
        base: AddressBase::Reg(lane.0),
        offset: place.into(),
    }
}

impl Shelf {
    /// The lane with this number.
    pub(crate) fn lane(&self, k: &mut KernelLowering<'_, '_>, number: Operand) -> Lane {
        lane(k, self.warp, number)
    }

    /// What a lane has left of its register with this number.
    pub(crate) fn register(&self, k: &mut KernelLowering<'_, '_>, lane: Lane, number: usize) -> Operand {
        let mut load = |place: usize| {
            let dst = k.scratch(Width::W32);
            k.emit(Op::Load {
                space: Space::Shared,
                ty: Type::B32,
                ordering: Ordering::Weak,
                dsts: vec![Some(dst)],
                addr: address(lane, self.places[place]),
            });
            Operand::Reg(dst)
        };
        match self.is_long {
            false => load(number),
            true => {
                let words = [2 * number, 2 * number + 1].map(load);
                pack(k, Type::B64, words)
            }
        }
    }
}
