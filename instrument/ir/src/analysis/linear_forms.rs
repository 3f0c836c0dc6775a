//! Values as sums: terms times constants, plus a constant.
//!
//! Wrapping is not modelled, so a form says how a program computes an address, not what must be true of it. Registers
//! that are written more than once, or otherwise than by additions and multiplications by constants, are terms.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::definitions::Definitions;
use crate::entity::RegId;
use crate::inst::{Address, AddressBase, AluOp, Inst, Op, Operand, Ordering, SpecialReg};
use crate::kernel::Kernel;
use crate::types::{Space, Type};

/// What a form is a sum of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Term {
    /// A special register.
    Special(SpecialReg),
    /// A register.
    Register(RegId),
    /// A kernel parameter, by offset.
    Param(i64),
    /// The address of a module variable.
    Variable(String),
    /// What lies at this address, in memory that nobody writes while the kernel runs.
    Unwritten(Box<LinearForm>),
}

/// `sum of coefficient * term, plus constant`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinearForm {
    /// Terms and their coefficients, none of which is 0.
    pub terms: BTreeMap<Term, i64>,
    /// The constant.
    pub constant: i64,
}

impl LinearForm {
    fn of_constant(constant: i64) -> Self {
        Self {
            constant,
            ..Self::default()
        }
    }

    fn of_term(term: Term) -> Self {
        Self {
            terms: BTreeMap::from([(term, 1)]),
            constant: 0,
        }
    }

    /// `self + factor * other`.
    #[must_use]
    pub fn plus(mut self, other: &Self, factor: i64) -> Self {
        self.constant = self.constant.wrapping_add(other.constant.wrapping_mul(factor));
        for (term, coefficient) in &other.terms {
            let sum = self.terms.entry(term.clone()).or_insert(0);
            *sum = sum.wrapping_add(coefficient.wrapping_mul(factor));
        }
        self.terms.retain(|_, coefficient| *coefficient != 0);
        self
    }

    /// The constant, if it is nothing else.
    #[must_use]
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }
}

/// Registers that a form looks through, one after the other, at most: addresses need few, and kernels may have chains
/// without end.
const MAX_DEPTH: u32 = 64;
/// Terms of a form at most; a register with more is a term.
const MAX_TERMS: usize = 16;

/// The forms of a kernel's values.
#[derive(Debug)]
pub struct LinearForms<'a> {
    kernel: &'a Kernel,
    definitions: &'a Definitions,
    known: RefCell<BTreeMap<RegId, LinearForm>>,
    depth: Cell<u32>,
}

impl<'a> LinearForms<'a> {
    /// For `kernel`, whose definitions these are.
    #[must_use]
    pub fn new(kernel: &'a Kernel, definitions: &'a Definitions) -> Self {
        Self {
            kernel,
            definitions,
            known: RefCell::default(),
            depth: Cell::new(0),
        }
    }

    /// The form of an address.
    #[must_use]
    pub fn address(&self, address: &Address) -> LinearForm {
        let base = match &address.base {
            AddressBase::Reg(reg) => self.register(*reg),
            AddressBase::Global(name) => LinearForm::of_term(Term::Variable(name.clone())),
            AddressBase::Absolute => LinearForm::default(),
        };
        base.plus(&LinearForm::of_constant(address.offset), 1)
    }

    /// The form of a register.
    #[must_use]
    pub fn register(&self, reg: RegId) -> LinearForm {
        if let Some(form) = self.known.borrow().get(&reg) {
            return form.clone();
        }
        let as_term = LinearForm::of_term(Term::Register(reg));
        if self.depth.get() == MAX_DEPTH {
            return as_term;
        }
        self.depth.set(self.depth.get() + 1);
        // What comes back to itself finds this.
        self.known.borrow_mut().insert(reg, as_term.clone());
        let form = match self.definitions.of(reg) {
            [only] => only.inst(self.kernel).and_then(|inst| self.result(inst)),
            _ => None,
        };
        self.depth.set(self.depth.get() - 1);
        let form = form.filter(|form| form.terms.len() <= MAX_TERMS).unwrap_or(as_term);
        self.known.borrow_mut().insert(reg, form.clone());
        form
    }

    /// The form of an operand of an instruction on `ty`.
    #[must_use]
    pub fn operand(&self, operand: Operand, ty: Type) -> LinearForm {
        match operand {
            Operand::Reg(reg) => self.register(reg),
            Operand::Imm(bits) if ty.size_bytes() == 4 => LinearForm::of_constant(i64::from(bits as u32 as i32)),
            Operand::Imm(bits) => LinearForm::of_constant(bits.cast_signed()),
        }
    }

    /// Of an instruction that writes one register.
    fn result(&self, inst: &Inst) -> Option<LinearForm> {
        if inst.guard.is_some() {
            return None;
        }
        match &inst.op {
            Op::Mov { ty, src, .. } if !ty.is_float() => Some(self.operand(*src, *ty)),
            Op::AddrOf { addr, .. } => Some(self.address(addr)),
            Op::ReadSpecial { special, .. } => Some(LinearForm::of_term(Term::Special(*special))),
            Op::Cvt {
                dst_ty, src_ty, src, ..
            } if !dst_ty.is_float() && !src_ty.is_float() && dst_ty.size_bytes() >= src_ty.size_bytes() => {
                Some(self.operand(*src, *src_ty))
            }
            Op::Load {
                space: Space::Param,
                addr:
                    Address {
                        base: AddressBase::Absolute,
                        offset,
                    },
                dsts,
                ..
            } if dsts.len() == 1 => Some(LinearForm::of_term(Term::Param(*offset))),
            Op::Load {
                space: Space::Global,
                ordering: Ordering::NonCoherent,
                addr,
                dsts,
                ..
            } if dsts.len() == 1 => {
                let address = self.address(addr);
                let is_plain = |term: &Term| !matches!(term, Term::Unwritten(_));
                let is_plain = address.terms.keys().all(is_plain);
                is_plain.then(|| LinearForm::of_term(Term::Unwritten(Box::new(address))))
            }
            Op::Alu { op, ty, srcs, .. } if !ty.is_float() => self.arithmetic(*op, *ty, srcs),
            _ => None,
        }
    }

    fn arithmetic(&self, op: AluOp, ty: Type, srcs: &[Operand]) -> Option<LinearForm> {
        let form = |index: usize| srcs.get(index).map(|src| self.operand(*src, ty));
        let product = || {
            let (a, b) = (form(0)?, form(1)?);
            let scaled = |of: &LinearForm, by: &LinearForm| Some(LinearForm::default().plus(of, by.as_constant()?));
            scaled(&a, &b).or_else(|| scaled(&b, &a))
        };
        match op {
            AluOp::Add => Some(form(0)?.plus(&form(1)?, 1)),
            AluOp::Sub => Some(form(0)?.plus(&form(1)?, -1)),
            AluOp::Shl => {
                let amount = u32::try_from(form(1)?.as_constant()?).ok()?;
                Some(LinearForm::default().plus(&form(0)?, 1i64.checked_shl(amount)?))
            }
            AluOp::Mul | AluOp::MulWide => product(),
            AluOp::Mad | AluOp::MadWide => Some(product()?.plus(&form(2)?, 1)),
            _ => None,
        }
    }
}
