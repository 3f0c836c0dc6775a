//! Operands: registers, constants, symbols, addresses (PTX ISA, "Instruction Operands").

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Address, AddressBase, AluOp, Guard, Modifiers, Op, Operand};
use hetckpt_ir::types::{Space, Type, Width};

use crate::ast::{self, Const, DeclSpace};
use crate::error::Reason;
use crate::lower::functions;
use crate::lower::globals::HANDLE_TYPES;
use crate::lower::lowering::{KernelLowering, new_register};
use crate::lower::scope::{Symbol, bits, width_of};
use crate::lower::special_register::special_named;

/// Where a symbol's storage lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place<'a> {
    /// Inside the kernel.
    Own(Symbol),
    /// A module variable in device memory.
    Global(&'a str),
    /// A function, at this address.
    Function(u64),
}

/// Exactly `N` operands.
pub(crate) fn operands<'i, 'a, const N: usize>(
    inst: &'i ast::Instruction<'a>,
    expected: &'static str,
) -> Result<&'i [ast::Operand<'a>; N], Reason> {
    inst.operands.as_slice().try_into().map_err(|_| Reason::OperandCount {
        expected,
        found: inst.operands.len(),
    })
}

fn not_a(expected: &'static str, operand: &ast::Operand<'_>) -> Reason {
    Reason::Operand {
        expected,
        found: operand.describe(),
    }
}

/// An address without a register: the offset is all.
pub(crate) const fn absolute(offset: i64) -> Address {
    Address {
        base: AddressBase::Absolute,
        offset,
    }
}

impl<'a> KernelLowering<'_, 'a> {
    /// The guard of an instruction.
    pub(crate) fn guard_of(&mut self, inst: &ast::Instruction<'a>) -> Result<Option<Guard>, Reason> {
        inst.guard
            .map(|(name, negated)| {
                Ok(Guard {
                    pred: self.predicate_register(name)?,
                    negated,
                })
            })
            .transpose()
    }

    /// The register `name`, if it is one.
    pub(crate) fn register_named(&mut self, name: &str) -> Option<RegId> {
        let registers = &mut self.registers;
        self.scopes
            .iter_mut()
            .rev()
            .find_map(|scope| scope.register(name, |width| new_register(registers, width)))
    }

    fn expect_width(&self, name: &str, reg: RegId, expected: Width) -> Result<RegId, Reason> {
        let found = self.registers[reg.index()];
        if found == expected {
            return Ok(reg);
        }
        Err(Reason::Width {
            name: name.to_owned(),
            found: bits(found),
            expected: bits(expected),
        })
    }

    fn predicate_register(&mut self, name: &str) -> Result<RegId, Reason> {
        let reg = self
            .register_named(name)
            .ok_or_else(|| Reason::Undeclared(name.to_owned()))?;
        self.expect_width(name, reg, Width::Pred)
    }

    /// A register operand of any width.
    pub(crate) fn register(&mut self, operand: &ast::Operand<'_>) -> Result<RegId, Reason> {
        match operand {
            ast::Operand::Name(name, None) => self
                .register_named(name)
                .ok_or_else(|| Reason::Undeclared((*name).to_owned())),
            _ => Err(not_a("a register", operand)),
        }
    }

    /// A result of exactly `width`; `_` becomes a register that nobody reads.
    pub(crate) fn result(&mut self, operand: &ast::Operand<'_>, width: Width) -> Result<RegId, Reason> {
        match operand {
            ast::Operand::Name("_", None) => Ok(self.scratch(width)),
            _ => {
                let reg = self.register(operand)?;
                self.expect_width(&operand.describe(), reg, width)
            }
        }
    }

    /// A result of at least the width of `ty`, as loads and conversions have it.
    pub(crate) fn wide_result(&mut self, operand: &ast::Operand<'_>, ty: Type) -> Result<RegId, Reason> {
        if *operand == ast::Operand::Name("_", None) {
            return Ok(self.scratch(width_of(ty)));
        }
        let reg = self.register(operand)?;
        self.expect_wide(operand, reg, ty)
    }

    fn expect_wide(&self, operand: &ast::Operand<'_>, reg: RegId, ty: Type) -> Result<RegId, Reason> {
        let (found, least) = (self.registers[reg.index()], width_of(ty));
        if found == least || (least != Width::Pred && found > least) {
            return Ok(reg);
        }
        Err(Reason::Width {
            name: operand.describe(),
            found: bits(found),
            expected: bits(least),
        })
    }

    /// A source of type `ty`: a register of its width, a constant, a special register or a symbol's address.
    pub(crate) fn value(&mut self, operand: &ast::Operand<'a>, ty: Type) -> Result<Operand, Reason> {
        self.source(operand, ty, false)
    }

    /// A source whose register may be wider than `ty`, as stores and conversions have it.
    pub(crate) fn wide_value(&mut self, operand: &ast::Operand<'a>, ty: Type) -> Result<Operand, Reason> {
        self.source(operand, ty, true)
    }

    fn source(&mut self, operand: &ast::Operand<'a>, ty: Type, may_be_wider: bool) -> Result<Operand, Reason> {
        match operand {
            ast::Operand::Const(value) => constant(*value, ty)
                .map(Operand::Imm)
                .ok_or_else(|| not_a("a constant of the type", operand)),
            ast::Operand::Name("WARP_SZ", None) => Ok(Operand::Imm(32)),
            ast::Operand::Not(_) if ty == Type::Pred => Ok(Operand::Reg(self.plain_predicate(operand)?)),
            ast::Operand::Name(name, component) => {
                if component.is_none()
                    && let Some(reg) = self.register_named(name)
                {
                    let width = width_of(ty);
                    return Ok(Operand::Reg(if may_be_wider {
                        self.expect_wide(operand, reg, ty)?
                    } else {
                        self.expect_width(name, reg, width)?
                    }));
                }
                if let Some(special) = special_named(name, *component)? {
                    let dst = self.scratch(special.width());
                    let read = self.expect_width(&operand.describe(), dst, width_of(ty))?;
                    let read_special = self.read_special(special, dst);
                    self.emit_unguarded(read_special);
                    return Ok(Operand::Reg(read));
                }
                self.symbol_value(name, 0, ty)
            }
            ast::Operand::Offset(name, offset) => self.symbol_value(name, *offset, ty),
            _ => Err(not_a("a source", operand)),
        }
    }

    fn symbol_value(&mut self, name: &'a str, offset: i64, ty: Type) -> Result<Operand, Reason> {
        let place = self.place(name)?;
        let width = width_of(ty);
        let dst = self.scratch(width);
        let op = self.address_op(place, name, offset, dst, width)?;
        self.emit_unguarded(op);
        Ok(Operand::Reg(dst))
    }

    /// The instruction that puts a symbol's address into `dst`.
    pub(crate) fn address_op(
        &mut self,
        place: Place<'a>,
        name: &str,
        offset: i64,
        dst: RegId,
        width: Width,
    ) -> Result<Op, Reason> {
        let wide_enough = match place {
            Place::Global(_) | Place::Function(_) => width == Width::W64,
            Place::Own(_) => matches!(width, Width::W32 | Width::W64),
        };
        if !wide_enough {
            return Err(Reason::Width {
                name: name.to_owned(),
                found: bits(width),
                expected: 64,
            });
        }
        let add = |base: u32| i64::from(base).wrapping_add(offset);
        Ok(match place {
            Place::Function(address) => {
                self.holds_functions = true;
                Op::Mov {
                    ty: Type::B64,
                    dst,
                    src: Operand::Imm(address),
                }
            }
            Place::Global(variable) => Op::AddrOf {
                dst,
                space: Space::Global,
                addr: Address {
                    base: AddressBase::Global(variable.to_owned()),
                    offset,
                },
            },
            Place::Own(Symbol::Shared(at)) => Op::AddrOf {
                dst,
                space: Space::Shared,
                addr: absolute(add(at)),
            },
            Place::Own(Symbol::DynamicShared) => {
                self.uses_dynamic_shared = true;
                Op::AddrOf {
                    dst,
                    space: Space::Shared,
                    addr: absolute(offset),
                }
            }
            Place::Own(Symbol::Local(at) | Symbol::CallAggregate(at)) => Op::AddrOf {
                dst,
                space: Space::Local,
                addr: absolute(add(at)),
            },
            Place::Own(Symbol::Frame(at) | Symbol::FrameAggregate(at)) if width == Width::W64 => {
                let base = self.call_stack.base.ok_or(Reason::Lacks("a call stack"))?;
                Op::Alu {
                    op: AluOp::Add,
                    ty: Type::U64,
                    mods: Modifiers::default(),
                    dst,
                    srcs: vec![Operand::Reg(base.frame), Operand::Imm(add(at).cast_unsigned())],
                }
            }
            Place::Own(Symbol::Frame(_) | Symbol::FrameAggregate(_)) => {
                return Err(Reason::Width {
                    name: name.to_owned(),
                    found: bits(width),
                    expected: 64,
                });
            }
            // Addresses of parameters are offsets into the parameter buffer on every device.
            Place::Own(Symbol::Param(at)) => {
                let ty = if width == Width::W32 { Type::B32 } else { Type::B64 };
                Op::Mov {
                    ty,
                    dst,
                    src: Operand::Imm(truncate(add(at).cast_unsigned(), ty)),
                }
            }
            Place::Own(Symbol::CallScalar(..)) => {
                return Err(Reason::Operand {
                    expected: "a variable with an address",
                    found: name.to_owned(),
                });
            }
        })
    }

    /// The storage `name` stands for.
    pub(crate) fn place(&mut self, name: &'a str) -> Result<Place<'a>, Reason> {
        if let Some(symbol) = self.scopes.iter().rev().find_map(|s| s.symbol(name)) {
            return Ok(Place::Own(symbol));
        }
        self.names.check(name)?;
        let Some(variable) = self.names.variables.get(name).copied() else {
            let function = self.names.functions.get(name);
            return function
                .map(|function| Place::Function(functions::address(function)))
                .ok_or_else(|| Reason::Undeclared(name.to_owned()));
        };
        if HANDLE_TYPES.contains(&variable.ty) {
            return Err(Reason::Family("texture, sampler and surface references"));
        }
        match variable.space {
            DeclSpace::Global | DeclSpace::Const => Ok(Place::Global(variable.name)),
            DeclSpace::Shared => self.module_shared(variable).map(Place::Own),
            DeclSpace::Local | DeclSpace::Param => Err(Reason::Family("module-level local variables and parameters")),
        }
    }

    /// A predicate source as register and negation.
    pub(crate) fn predicate(&mut self, operand: &ast::Operand<'_>) -> Result<Guard, Reason> {
        match operand {
            ast::Operand::Name(name, None) => Ok(Guard {
                pred: self.predicate_register(name)?,
                negated: false,
            }),
            ast::Operand::Not(name) => Ok(Guard {
                pred: self.predicate_register(name)?,
                negated: true,
            }),
            _ => Err(not_a("a predicate", operand)),
        }
    }

    /// A predicate source as a register that needs no negation.
    pub(crate) fn plain_predicate(&mut self, operand: &ast::Operand<'_>) -> Result<RegId, Reason> {
        let Guard { pred, negated } = self.predicate(operand)?;
        if !negated {
            return Ok(pred);
        }
        let dst = self.scratch(Width::Pred);
        let (ty, mods, srcs) = (Type::Pred, Modifiers::default(), vec![Operand::Reg(pred)]);
        self.emit_unguarded(Op::Alu {
            op: AluOp::Not,
            ty,
            mods,
            dst,
            srcs,
        });
        Ok(dst)
    }
}

/// A constant's bits as `ty` reads them (PTX ISA, "Constants": integers are truncated, floats converted).
pub(crate) fn constant(value: Const, ty: Type) -> Option<u64> {
    match (value, ty) {
        (Const::Int(value), Type::Pred) => Some(u64::from(value != 0)),
        (Const::Int(_), Type::F32 | Type::F64) => None,
        (Const::Int(value), _) => Some(truncate(value, ty)),
        (Const::F32(bits), Type::F32 | Type::B32 | Type::U32 | Type::S32) => Some(u64::from(bits)),
        (Const::F64(bits), Type::F64 | Type::B64 | Type::U64 | Type::S64) => Some(bits),
        (Const::F32(bits), Type::F64) => Some(f64::from(f32::from_bits(bits)).to_bits()),
        #[allow(
            clippy::cast_possible_truncation,
            reason = "PTX narrows double constants the same way"
        )]
        (Const::F64(bits), Type::F32) => Some(u64::from((f64::from_bits(bits) as f32).to_bits())),
        _ => None,
    }
}

/// The low bits of `value`, as many as `ty` has.
pub(crate) const fn truncate(value: u64, ty: Type) -> u64 {
    match ty.size_bytes() {
        1 => value & 0xFF,
        2 => value & 0xFFFF,
        4 => value & 0xFFFF_FFFF,
        _ => value,
    }
}
