//! Names inside functions: registers, variables, labels, in nested `{ }` (PTX ISA, "Identifiers", "Statements").

use std::collections::HashMap;

use hetckpt_ir::entity::RegId;
use hetckpt_ir::types::{Type, Width};

use crate::error::Reason;
use crate::lower::control_flow::DraftId;

/// What a name stands for inside a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Symbol {
    /// Offset in the shared segment.
    Shared(u32),
    /// Offset in dynamic shared memory: the start of it.
    DynamicShared,
    /// Offset in the local frame.
    Local(u32),
    /// Kernel parameter: offset in the parameter buffer.
    Param(u32),
    /// Scalar parameter or result of an inlined call, kept in a register.
    CallScalar(RegId, Type),
    /// Aggregate parameter or result of an inlined call, kept in the local frame.
    CallAggregate(u32),
    /// Variable of a function that may call itself: offset in its frame of the call stack.
    Frame(u32),
    /// The same of an aggregate parameter or result, of that function or of a call in it.
    FrameAggregate(u32),
}

/// Registers `prefix0` … `prefix(count-1)`; each gets its id at its first use, so that unused ones cost nothing.
struct Range {
    count: u64,
    width: Width,
    used: HashMap<u64, RegId>,
}

/// Digits a register's number may have.
const MAX_DIGITS: usize = 10;

/// One `{ }`.
#[derive(Default)]
pub(crate) struct Scope<'a> {
    single: HashMap<&'a str, (Width, Option<RegId>)>,
    ranges: HashMap<&'a str, Range>,
    symbols: HashMap<&'a str, Symbol>,
    labels: HashMap<&'a str, DraftId>,
    targets: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> Scope<'a> {
    /// Declares `.reg` names.
    pub(crate) fn declare_registers(&mut self, name: &'a str, count: Option<u64>, width: Width) -> Result<(), Reason> {
        match count {
            Some(count) => {
                let used = HashMap::new();
                if self.ranges.insert(name, Range { count, width, used }).is_some() {
                    return Err(Reason::Redeclared(name.to_owned()));
                }
            }
            None => {
                if self.single.insert(name, (width, None)).is_some() {
                    return Err(Reason::Redeclared(name.to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Declares a variable or parameter.
    pub(crate) fn declare_symbol(&mut self, name: &'a str, symbol: Symbol) -> Result<(), Reason> {
        match self.symbols.insert(name, symbol) {
            None => Ok(()),
            Some(_) => Err(Reason::Redeclared(name.to_owned())),
        }
    }

    /// Declares a label.
    pub(crate) fn declare_label(&mut self, name: &'a str, block: DraftId) -> Result<(), Reason> {
        match self.labels.insert(name, block) {
            None => Ok(()),
            Some(_) => Err(Reason::Redeclared(name.to_owned())),
        }
    }

    /// Declares a list of labels, for indirect branches.
    pub(crate) fn declare_targets(&mut self, name: &'a str, labels: &[&'a str]) {
        self.targets.insert(name, labels.to_vec());
    }

    pub(crate) fn targets(&self, name: &str) -> Option<&[&'a str]> {
        self.targets.get(name).map(Vec::as_slice)
    }

    pub(crate) fn label(&self, name: &str) -> Option<DraftId> {
        self.labels.get(name).copied()
    }

    pub(crate) fn symbol(&self, name: &str) -> Option<Symbol> {
        self.symbols.get(name).copied()
    }

    /// The register `name`; `allocate` makes a new one of a width.
    pub(crate) fn register(&mut self, name: &str, allocate: impl FnOnce(Width) -> RegId) -> Option<RegId> {
        if let Some((width, id)) = self.single.get_mut(name) {
            return Some(*id.get_or_insert_with(|| allocate(*width)));
        }
        let digits = name
            .bytes()
            .rev()
            .take_while(u8::is_ascii_digit)
            .take(MAX_DIGITS)
            .count();
        for at in name.len() - digits..name.len() {
            let (prefix, number) = (name.get(..at)?, name.get(at..)?);
            if number.len() > 1 && number.starts_with('0') {
                continue;
            }
            let Some(range) = self.ranges.get_mut(prefix) else {
                continue;
            };
            let number: u64 = number.parse().ok()?;
            if number < range.count {
                let width = range.width;
                return Some(*range.used.entry(number).or_insert_with(|| allocate(width)));
            }
        }
        None
    }
}

/// Width of a register declared with `.reg .ty`.
pub(crate) fn register_width(ty: &str) -> Result<Width, Reason> {
    let ty = super::modifiers::type_named(ty).ok_or_else(|| Reason::Type(ty.to_owned()))?;
    Ok(width_of(ty))
}

/// Width of the register that holds a value of `ty`; 8-bit values lie in 16-bit registers.
pub(crate) const fn width_of(ty: Type) -> Width {
    match ty {
        Type::Pred => Width::Pred,
        Type::B8 | Type::U8 | Type::S8 | Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => Width::W16,
        Type::B32 | Type::U32 | Type::S32 | Type::F16x2 | Type::Bf16x2 | Type::F32 => Width::W32,
        Type::B64 | Type::U64 | Type::S64 | Type::F64 => Width::W64,
    }
}

/// Bits of a register, for messages.
pub(crate) const fn bits(width: Width) -> u32 {
    match width {
        Width::Pred => 1,
        Width::W16 => 16,
        Width::W32 => 32,
        Width::W64 => 64,
    }
}
