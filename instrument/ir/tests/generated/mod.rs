//! Random kernels: every id in range, every variant reachable, no meaning.

use hetckpt_ir::basic_block::{BarrierProbe, BarrierReduction, BarrierReductionOp, BasicBlock, Terminator};
use hetckpt_ir::entity::{BbId, RegId, ResumePointId, Span};
use hetckpt_ir::inst::{
    Address, AddressBase, AluOp, AtomOp, BoolOp, Comparison, Guard, Inst, Modifiers, Op, Operand, Ordering, ReduxOp,
    Rounding, Scope, SpecialReg, WarpOp, WarpProbe,
};
use hetckpt_ir::kernel::{
    Kernel, LaunchBounds, LocalFrame, Param, ResumePoint, ResumePointKind, SharedSegment, Variable,
};
use hetckpt_ir::text::names::TextName;
use hetckpt_ir::types::{Space, Type, Width};

/// Names to pick from; a value is picked by a name, so that every variant is reachable and every name is tried.
const ALU: &str = "add sub mul mul_hi mul_wide mad mad_hi mad_wide fma div rem min max abs neg sad and or xor not cnot \
    shl shr shf_l_wrap shf_l_clamp shf_r_wrap shf_r_clamp popc clz brev bfind bfind_shiftamt bfe bfi bmsk_clamp \
    bmsk_wrap prmt lop3 rcp sqrt rsqrt sin cos lg2 ex2 tanh copysign";
const TYPES: &str = "pred b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64";
const SPECIALS: &str = "tid_x tid_y tid_z ntid_x ntid_y ntid_z ctaid_x ctaid_y ctaid_z nctaid_x nctaid_y nctaid_z \
    laneid warpid nwarpid lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt clock clock64 globaltimer \
    dynamic_smem_size total_smem_size smid nsmid gridid";
const COMPARISONS: &str = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan";
const SPACES: &str = "global param shared local generic";
const ORDERINGS: &str = "weak nc volatile relaxed acquire release acq_rel";
const KINDS: &str = "entry loop barrier_arrive barrier_leave warp_arrive warp_leave";

/// The kernel that belongs to a seed.
pub fn kernel(seed: u64) -> Kernel {
    let mut g = Generator {
        state: seed,
        registers: 0,
        blocks: 0,
        resume_points: 0,
    };
    g.registers = 1 + g.below(40);
    g.blocks = 1 + g.below(8);
    g.resume_points = 1 + g.below(5);
    Kernel {
        name: g.text(),
        params: g.some(4, |g| Param {
            name: g.text(),
            offset: g.u32(),
            size_bytes: g.u32(),
            align_bytes: g.u32(),
        }),
        registers: (0..g.registers).map(|_| g.pick::<Width>("pred w16 w32 w64")).collect(),
        blocks: (0..g.blocks)
            .map(|_| BasicBlock {
                insts: g.some(12, Generator::inst),
                terminator: g.terminator(),
                span: g.span(),
            })
            .collect(),
        shared: SharedSegment {
            static_bytes: g.u32(),
            variables: g.some(3, Generator::variable),
        },
        local: LocalFrame {
            size_bytes: g.u32(),
            variables: g.some(3, Generator::variable),
        },
        bounds: LaunchBounds {
            max_ntid: g.perhaps(|g| [g.u32(), g.u32(), g.u32()]),
            req_ntid: g.perhaps(|g| [g.u32(), g.u32(), g.u32()]),
            min_cta_per_sm: g.perhaps(Generator::u32),
            max_registers: g.perhaps(Generator::u32),
        },
        multiplies_matrices: g.perhaps(Generator::u32).is_some(),
        reads_images: g.perhaps(Generator::u32).is_some(),
        holds_functions: g.perhaps(Generator::u32).is_some(),
        has_call_stack: g.perhaps(Generator::u32).is_some(),
        resume_points: (0..g.resume_points)
            .map(|_| ResumePoint {
                kind: g.pick::<ResumePointKind>(KINDS),
                block: g.bb(),
            })
            .collect(),
    }
}

struct Generator {
    state: u64,
    registers: u32,
    blocks: u32,
    resume_points: u32,
}

impl Generator {
    /// SplitMix64.
    fn u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn u32(&mut self) -> u32 {
        let shift = self.below(32);
        (self.u64() >> 32) as u32 >> shift
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.u64() % u64::from(n)) as u32
    }

    fn bool(&mut self) -> bool {
        self.below(2) == 1
    }

    fn perhaps<T>(&mut self, f: impl Fn(&mut Self) -> T) -> Option<T> {
        self.bool().then(|| f(self))
    }

    fn some<T>(&mut self, max: u32, f: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.below(max + 1)).map(|_| f(self)).collect()
    }

    fn pick<T: TextName>(&mut self, names: &str) -> T {
        let names: Vec<&str> = names.split_whitespace().collect();
        let name = names[self.below(names.len() as u32) as usize];
        T::from_text_name(name).expect(name)
    }

    fn text(&mut self) -> String {
        let alphabet: Vec<char> = "ab_$9 \"\\;!\n\t{}é\u{0}𝄞".chars().collect();
        self.some(9, |g| alphabet[g.below(alphabet.len() as u32) as usize])
            .into_iter()
            .collect()
    }

    fn variable(&mut self) -> Variable {
        Variable {
            name: self.text(),
            offset: self.u32(),
            size_bytes: self.u32(),
        }
    }

    fn span(&mut self) -> Span {
        Span {
            line: if self.bool() { 0 } else { self.u32() },
        }
    }

    fn reg(&mut self) -> RegId {
        RegId(self.below(self.registers))
    }

    fn bb(&mut self) -> BbId {
        BbId(self.below(self.blocks))
    }

    fn rp(&mut self) -> ResumePointId {
        ResumePointId(self.below(self.resume_points))
    }

    fn guard(&mut self) -> Guard {
        Guard {
            pred: self.reg(),
            negated: self.bool(),
        }
    }

    fn operand(&mut self) -> Operand {
        match self.below(3) {
            0 => Operand::Imm(u64::from(self.u32())),
            1 => Operand::Imm(self.u64()),
            _ => Operand::Reg(self.reg()),
        }
    }

    fn ty(&mut self) -> Type {
        self.pick(TYPES)
    }

    fn address(&mut self) -> Address {
        let base = match self.below(3) {
            0 => AddressBase::Reg(self.reg()),
            1 => AddressBase::Global(self.text()),
            _ => AddressBase::Absolute,
        };
        let offset = match self.below(4) {
            0 => 0,
            1 => i64::from(self.u32()),
            2 => -i64::from(self.u32()),
            _ => self.u64() as i64,
        };
        Address { base, offset }
    }

    fn modifiers(&mut self) -> Modifiers {
        Modifiers {
            rounding: self.perhaps(|g| g.pick::<Rounding>("rn rz rm rp rni rzi rmi rpi rna")),
            ftz: self.bool(),
            sat: self.bool(),
            approx: self.bool(),
            full: self.bool(),
        }
    }

    fn inst(&mut self) -> Inst {
        Inst {
            op: self.op(),
            guard: self.perhaps(Self::guard),
            span: self.span(),
        }
    }

    fn op(&mut self) -> Op {
        match self.below(16) {
            0 | 1 => Op::Alu {
                op: self.pick::<AluOp>(ALU),
                ty: self.ty(),
                mods: self.modifiers(),
                dst: self.reg(),
                srcs: self.some(4, Self::operand),
            },
            2 => Op::Mov {
                ty: self.ty(),
                dst: self.reg(),
                src: self.operand(),
            },
            3 => Op::Pack {
                ty: self.ty(),
                dst: self.reg(),
                srcs: self.some(4, Self::operand),
            },
            4 => Op::Unpack {
                ty: self.ty(),
                dsts: self.some(4, |g| g.perhaps(Self::reg)),
                src: self.operand(),
            },
            5 => Op::AddrOf {
                dst: self.reg(),
                space: self.pick(SPACES),
                addr: self.address(),
            },
            6 => Op::ReadSpecial {
                dst: self.reg(),
                special: self.pick::<SpecialReg>(SPECIALS),
            },
            7 => Op::Setp {
                cmp: self.pick::<Comparison>(COMPARISONS),
                ty: self.ty(),
                ftz: self.bool(),
                dst: self.reg(),
                dst_not: self.perhaps(Self::reg),
                a: self.operand(),
                b: self.operand(),
                combine: self.perhaps(|g| (g.pick::<BoolOp>("and or xor"), g.reg(), g.bool())),
            },
            8 => Op::Set {
                cmp: self.pick(COMPARISONS),
                dst_ty: self.ty(),
                ty: self.ty(),
                ftz: self.bool(),
                dst: self.reg(),
                a: self.operand(),
                b: self.operand(),
            },
            9 => Op::Selp {
                ty: self.ty(),
                dst: self.reg(),
                a: self.operand(),
                b: self.operand(),
                pred: self.reg(),
            },
            10 => Op::Cvt {
                dst_ty: self.ty(),
                src_ty: self.ty(),
                mods: self.modifiers(),
                dst: self.reg(),
                src: self.operand(),
            },
            11 => Op::Load {
                space: self.pick::<Space>(SPACES),
                ty: self.ty(),
                ordering: self.pick::<Ordering>(ORDERINGS),
                dsts: self.some(4, |g| g.perhaps(Self::reg)),
                addr: self.address(),
            },
            12 => Op::Store {
                space: self.pick(SPACES),
                ty: self.ty(),
                ordering: self.pick(ORDERINGS),
                addr: self.address(),
                srcs: self.some(4, Self::operand),
            },
            13 => Op::Atom {
                op: self.pick::<AtomOp>("add min max and or xor exch cas inc dec"),
                space: self.pick(SPACES),
                ty: self.ty(),
                ordering: self.pick(ORDERINGS),
                scope: self.pick("cta gpu sys"),
                dst: self.perhaps(Self::reg),
                addr: self.address(),
                srcs: self.some(2, Self::operand),
            },
            14 => match self.below(3) {
                0 => Op::Membar {
                    scope: self.pick::<Scope>("cta gpu sys"),
                },
                1 => Op::Nanosleep {
                    duration: self.operand(),
                },
                _ => Op::Opaque {
                    text: self.text(),
                    uses: self.some(3, Self::reg),
                    defs: self.some(3, Self::reg),
                },
            },
            _ => Op::Warp {
                op: self.warp_op(),
                dst: self.perhaps(Self::reg),
                dst_pred: self.perhaps(Self::reg),
                srcs: self.some(3, Self::operand),
                mask: self.operand(),
                probe: self.perhaps(|g| WarpProbe {
                    arrive: g.rp(),
                    leave: g.rp(),
                    poll: g.bool(),
                }),
            },
        }
    }

    fn warp_op(&mut self) -> WarpOp {
        match self.below(14) {
            0 => WarpOp::ShflUp,
            1 => WarpOp::ShflDown,
            2 => WarpOp::ShflBfly,
            3 => WarpOp::ShflIdx,
            4 => WarpOp::VoteAll,
            5 => WarpOp::VoteAny,
            6 => WarpOp::VoteUni,
            7 => WarpOp::VoteBallot,
            8 => WarpOp::MatchAny(self.ty()),
            9 => WarpOp::MatchAll(self.ty()),
            10 => WarpOp::Redux(self.pick::<ReduxOp>("add min max and or xor"), self.ty()),
            11 => WarpOp::ActiveMask,
            12 => WarpOp::Step,
            _ => WarpOp::Sync,
        }
    }

    fn terminator(&mut self) -> Terminator {
        match self.below(6) {
            0 => Terminator::Jump(self.bb()),
            1 => Terminator::Branch {
                guard: self.guard(),
                taken: self.bb(),
                not_taken: self.bb(),
            },
            2 => Terminator::Exit,
            3 => Terminator::Trap,
            4 => Terminator::Barrier {
                id: self.operand(),
                count: self.perhaps(Self::operand),
                reduction: self.perhaps(|g| BarrierReduction {
                    op: g.pick::<BarrierReductionOp>("and or popc"),
                    dst: g.reg(),
                    src: g.guard(),
                }),
                probe: self.perhaps(|g| BarrierProbe {
                    arrive: g.rp(),
                    leave: g.rp(),
                }),
                next: self.bb(),
            },
            _ => Terminator::Poll {
                resume_point: self.rp(),
                next: self.bb(),
            },
        }
    }
}
