//! What the single-precision numbers in registers can be: subnormal, or not a number in another form than the GPU's.
//!
//! GPUs have one result that is not a number, 0x7fffffff; processors have many. Bringing each result into that form
//! would cost as much as the arithmetic. So results keep the processor's form, and get the GPU's where somebody looks
//! at their bits: stores, integer instructions, what is saved at a resume point. What was loaded, or made by an
//! instruction that works on bits, stays as it is. A register that holds now the one and now the other
//! ([`Form::Either`]) has a flag beside it that says which, in a variable of its own; LLVM finds it constant nearly
//! everywhere.
//!
//! `.ftz` makes zero of subnormal operands, which takes four instructions each. Results of `.ftz` instructions are
//! never subnormal, so most operands need none of them.

use hetckpt_ir::analysis::reg_set::RegSet;
use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, Op, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Type, Width};

/// What a register holds as far as it is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Bits to be kept.
    Bits,
    /// Results of arithmetic.
    Results,
    /// One or the other, as its flag says.
    Either,
}

/// The facts, by register.
pub struct FloatFacts {
    holds_bits: Vec<bool>,
    holds_results: Vec<bool>,
    is_never_subnormal: Vec<bool>,
}

/// What an instruction leaves in a register of 32 bits.
enum Origin {
    /// A result of single-precision arithmetic.
    Result { never_subnormal: bool },
    /// A number of a conversion that keeps the payload of what is not a number.
    Carried { never_subnormal: bool },
    /// One of these.
    Copy(Vec<Operand>),
    /// Any bits.
    Bits,
}

impl FloatFacts {
    /// Of a kernel; registers in `entered` hold bits from elsewhere, perhaps from code that is no longer there.
    pub fn new(kernel: &Kernel, entered: &RegSet) -> Self {
        let num_registers = kernel.registers.len();
        let is_word = |r: usize| kernel.registers[r] == Width::W32;
        let mut facts = Self {
            holds_bits: vec![false; num_registers],
            holds_results: vec![false; num_registers],
            is_never_subnormal: (0..num_registers).map(is_word).collect(),
        };
        for reg in entered.iter() {
            facts.hold_bits(reg);
        }
        let mut copies: Vec<(RegId, Vec<Operand>)> = Vec::new();
        for block in &kernel.blocks {
            for inst in &block.insts {
                inst.for_each_def(&mut |reg: RegId| {
                    if !is_word(reg.index()) {
                        return;
                    }
                    match origin(&inst.op) {
                        Origin::Result { never_subnormal } => {
                            facts.holds_results[reg.index()] = true;
                            facts.is_never_subnormal[reg.index()] &= never_subnormal;
                        }
                        Origin::Carried { never_subnormal } => {
                            facts.holds_bits[reg.index()] = true;
                            facts.is_never_subnormal[reg.index()] &= never_subnormal;
                        }
                        Origin::Copy(from) => copies.push((reg, from)),
                        Origin::Bits => facts.hold_bits(reg),
                    }
                });
            }
            if let Some(reg) = block.terminator.def() {
                facts.hold_bits(reg);
            }
        }
        facts.spread(&copies);
        facts
    }

    /// Copies are whatever they are copies of.
    fn spread(&mut self, copies: &[(RegId, Vec<Operand>)]) {
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); self.holds_bits.len()];
        for (i, (_, from)) in copies.iter().enumerate() {
            for operand in from {
                if let Operand::Reg(reg) = operand {
                    users[reg.index()].push(i);
                }
            }
        }
        let mut work: Vec<usize> = (0..copies.len()).collect();
        while let Some(i) = work.pop() {
            let (dst, from) = &copies[i];
            let dst = dst.index();
            let before = (
                self.holds_bits[dst],
                self.holds_results[dst],
                self.is_never_subnormal[dst],
            );
            for operand in from {
                let (bits, results) = match operand {
                    Operand::Reg(reg) => (self.holds_bits[reg.index()], self.holds_results[reg.index()]),
                    Operand::Imm(bits) => (is_nan(*bits), false),
                };
                self.holds_bits[dst] |= bits;
                self.holds_results[dst] |= results;
                self.is_never_subnormal[dst] &= self.never_subnormal(*operand);
            }
            let after = (
                self.holds_bits[dst],
                self.holds_results[dst],
                self.is_never_subnormal[dst],
            );
            if after != before {
                work.extend_from_slice(&users[dst]);
            }
        }
    }

    fn hold_bits(&mut self, reg: RegId) {
        self.holds_bits[reg.index()] = true;
        self.is_never_subnormal[reg.index()] = false;
    }

    /// What the register holds.
    pub fn form(&self, reg: RegId) -> Form {
        match (self.holds_bits[reg.index()], self.holds_results[reg.index()]) {
            (_, false) => Form::Bits,
            (false, true) => Form::Results,
            (true, true) => Form::Either,
        }
    }

    /// True if the single-precision number is never subnormal.
    pub fn never_subnormal(&self, operand: Operand) -> bool {
        match operand {
            Operand::Reg(reg) => self.is_never_subnormal[reg.index()],
            Operand::Imm(bits) => bits & 0x7f80_0000 != 0 || bits & 0x007f_ffff == 0,
        }
    }
}

const fn is_nan(bits: u64) -> bool {
    bits & 0x7fff_ffff > 0x7f80_0000
}

fn origin(op: &Op) -> Origin {
    match op {
        // Bits of the operands.
        Op::Alu {
            op: AluOp::And | AluOp::Or | AluOp::Xor | AluOp::Not | AluOp::Copysign,
            ..
        } => Origin::Bits,
        Op::Alu {
            ty: Type::F32, mods, ..
        } => Origin::Result {
            never_subnormal: mods.ftz,
        },
        Op::Cvt {
            dst_ty: Type::F32,
            src_ty,
            mods,
            ..
        } => match src_ty {
            Type::Bf16 => Origin::Bits,
            Type::F64 => Origin::Carried {
                never_subnormal: mods.ftz,
            },
            Type::F32 => Origin::Result {
                never_subnormal: mods.ftz,
            },
            // Halves and integers are no less than the smallest normal number.
            _ => Origin::Result { never_subnormal: true },
        },
        Op::Set { dst_ty: Type::F32, .. } => Origin::Result { never_subnormal: true },
        Op::Mov { src, .. } => Origin::Copy(vec![*src]),
        Op::Selp { a, b, .. } => Origin::Copy(vec![*a, *b]),
        _ => Origin::Bits,
    }
}
