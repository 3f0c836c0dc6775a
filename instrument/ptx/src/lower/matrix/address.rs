//! Places in memory that matrices lie at.

use hetckpt_ir::inst::{Address, AddressBase, AluOp, Op, Operand, Ordering};
use hetckpt_ir::types::{Space, Type, Width};

use crate::lower::lowering::KernelLowering;
use crate::lower::matrix::emit::{long, pack, word};

/// Where one begins.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    space: Space,
    /// 32 or 64 bits wide.
    pub(crate) address: Operand,
    /// How wide it is.
    pub(crate) width: Width,
}

impl Start {
    /// The address, in a register.
    pub(crate) fn new(k: &mut KernelLowering<'_, '_>, (space, address): (Space, Address)) -> Self {
        let width = match &address.base {
            AddressBase::Reg(register) => k.registers[register.index()],
            AddressBase::Global(_) => Width::W64,
            AddressBase::Absolute => Width::W32,
        };
        let offset = Operand::Imm(match width {
            Width::W64 => address.offset.cast_unsigned(),
            _ => address.offset.cast_unsigned() & u64::from(u32::MAX),
        });
        let address = match address.base {
            AddressBase::Reg(register) => add(k, width, Operand::Reg(register), offset),
            AddressBase::Absolute => offset,
            AddressBase::Global(_) => {
                let dst = k.scratch(width);
                k.emit_unguarded(Op::AddrOf {
                    dst,
                    space,
                    addr: address,
                });
                Operand::Reg(dst)
            }
        };
        Self { space, address, width }
    }

    /// So many bytes (32 bits) behind the address `start`, which is of the same kind as this one.
    pub(crate) fn behind(self, k: &mut KernelLowering<'_, '_>, start: Operand, bytes: Operand) -> Place {
        let bytes = match self.width {
            Width::W64 => pack(k, Type::B64, [bytes, Operand::Imm(0)]),
            _ => bytes,
        };
        Place {
            space: self.space,
            address: add(k, self.width, start, bytes),
        }
    }
}

fn add(k: &mut KernelLowering<'_, '_>, width: Width, a: Operand, b: Operand) -> Operand {
    match width {
        Width::W64 => long(k, AluOp::Add, Type::U64, [a, b]),
        _ => word(k, AluOp::Add, Type::U32, [a, b]),
    }
}

/// Where an element lies.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) space: Space,
    address: Operand,
}

impl Place {
    /// The address that accesses have.
    pub(crate) fn address(self) -> Address {
        match self.address {
            Operand::Reg(register) => Address {
                base: AddressBase::Reg(register),
                offset: 0,
            },
            Operand::Imm(bits) => Address {
                base: AddressBase::Absolute,
                offset: bits.cast_signed(),
            },
        }
    }

    /// Loads what is there, into a register of `width`.
    pub(crate) fn load(self, k: &mut KernelLowering<'_, '_>, ty: Type, width: Width) -> Operand {
        let dst = k.scratch(width);
        k.emit(Op::Load {
            space: self.space,
            ty,
            ordering: Ordering::Weak,
            dsts: vec![Some(dst)],
            addr: self.address(),
        });
        Operand::Reg(dst)
    }

    /// Stores `src` there.
    pub(crate) fn store(self, k: &mut KernelLowering<'_, '_>, ty: Type, src: Operand) {
        k.emit(Op::Store {
            space: self.space,
            ty,
            ordering: Ordering::Weak,
            addr: self.address(),
            srcs: vec![src],
        });
    }
}
