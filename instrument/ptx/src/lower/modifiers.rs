//! Reading an instruction's modifiers: each lowering takes those it knows; what is left over rejects the instruction.

use hetckpt_ir::inst::{Modifiers, Ordering, Rounding, Scope};
use hetckpt_ir::types::{Space, Type};

use crate::ast::Instruction;
use crate::error::Reason;

/// A fundamental type by its PTX name without the dot.
pub(crate) fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "pred" => Type::Pred,
        "b8" => Type::B8,
        "b16" => Type::B16,
        "b32" => Type::B32,
        "b64" => Type::B64,
        "u8" => Type::U8,
        "u16" => Type::U16,
        "u32" => Type::U32,
        "u64" => Type::U64,
        "s8" => Type::S8,
        "s16" => Type::S16,
        "s32" => Type::S32,
        "s64" => Type::S64,
        "f16" => Type::F16,
        "f16x2" => Type::F16x2,
        "bf16" => Type::Bf16,
        "bf16x2" => Type::Bf16x2,
        "f32" => Type::F32,
        "f64" => Type::F64,
        _ => return None,
    })
}

const ROUNDINGS: [(&str, Rounding); 9] = [
    ("rn", Rounding::Rn),
    ("rz", Rounding::Rz),
    ("rm", Rounding::Rm),
    ("rp", Rounding::Rp),
    ("rni", Rounding::Rni),
    ("rzi", Rounding::Rzi),
    ("rmi", Rounding::Rmi),
    ("rpi", Rounding::Rpi),
    ("rna", Rounding::Rna),
];

const SPACES: [(&str, Space); 9] = [
    ("global", Space::Global),
    ("const", Space::Global),
    ("shared", Space::Shared),
    ("shared::cta", Space::Shared),
    // Nothing here makes an address in another block of the cluster: `mapa` is refused.
    ("shared::cluster", Space::Shared),
    ("local", Space::Local),
    ("param", Space::Param),
    ("param::entry", Space::Param),
    ("param::func", Space::Param),
];

const ORDERINGS: [(&str, Ordering); 6] = [
    ("weak", Ordering::Weak),
    ("volatile", Ordering::Volatile),
    ("relaxed", Ordering::Relaxed),
    ("acquire", Ordering::Acquire),
    ("release", Ordering::Release),
    ("acq_rel", Ordering::AcqRel),
];

const SCOPES: [(&str, Scope); 5] = [
    ("cta", Scope::Cta),
    // Some blocks: more is never wrong.
    ("cluster", Scope::Gpu),
    ("gpu", Scope::Gpu),
    ("gl", Scope::Gpu),
    ("sys", Scope::Sys),
];

/// The modifiers not taken yet.
pub(crate) struct ModifierList<'a> {
    left: Vec<&'a str>,
}

impl<'a> ModifierList<'a> {
    pub(crate) fn new(instruction: &Instruction<'a>) -> Self {
        Self {
            left: instruction.modifiers.clone(),
        }
    }

    /// Takes a modifier if it is there.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        let found = self.left.iter().position(|m| *m == name);
        if let Some(at) = found {
            self.left.remove(at);
        }
        found.is_some()
    }

    /// Takes the first modifier that is `name`, or `name::` and more.
    pub(crate) fn take_prefixed(&mut self, name: &str) -> bool {
        let is_it = |m: &&str| {
            m.strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let found = self.left.iter().position(is_it);
        if let Some(at) = found {
            self.left.remove(at);
        }
        found.is_some()
    }

    /// Takes the first modifier that `table` knows.
    pub(crate) fn take_from<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        let lookup = |m: &&str| table.iter().find(|(name, _)| name == m).map(|(_, value)| *value);
        let at = self.left.iter().position(|m| lookup(m).is_some())?;
        lookup(&self.left.remove(at))
    }

    /// Takes the first type.
    pub(crate) fn ty(&mut self) -> Result<Type, Reason> {
        let at = self.left.iter().position(|m| type_named(m).is_some());
        let Some(at) = at else {
            // A type of a newer PTX, if the last modifier looks like one.
            return Err(match self.left.last() {
                Some(last) if last.bytes().any(|c| c.is_ascii_digit()) => Reason::Type((*last).to_owned()),
                _ => Reason::Lacks("a type"),
            });
        };
        type_named(self.left.remove(at)).ok_or(Reason::Lacks("a type"))
    }

    /// `.rnd`, `.ftz`, `.sat`, `.approx`, `.full`, as far as they are there.
    pub(crate) fn arithmetic(&mut self) -> Modifiers {
        Modifiers {
            rounding: self.take_from(&ROUNDINGS),
            ftz: self.take("ftz"),
            sat: self.take("sat"),
            approx: self.take("approx"),
            full: self.take("full"),
        }
    }

    /// The state space; none: generic. True beside it for `.const`.
    pub(crate) fn space(&mut self) -> (Space, bool) {
        let is_constant = self.left.contains(&"const");
        (self.take_from(&SPACES).unwrap_or(Space::Generic), is_constant)
    }

    /// `.weak`, `.volatile`, `.relaxed`, …
    pub(crate) fn ordering(&mut self) -> Option<Ordering> {
        self.take_from(&ORDERINGS)
    }

    /// `.cta`, `.cluster`, `.gpu`, `.sys`; `.gl` is `membar`'s name of `.gpu`.
    pub(crate) fn scope(&mut self) -> Option<Scope> {
        self.take_from(&SCOPES)
    }

    /// Drops what only advises caches (PTX ISA, "Cache Operators", "Cache Eviction Priority Hints").
    pub(crate) fn drop_cache_hints(&mut self) {
        self.left.retain(|m| {
            let operator = matches!(*m, "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt");
            !(operator || m.starts_with("L1::") || m.starts_with("L2::"))
        });
    }

    /// All must have been taken.
    pub(crate) fn finish(self) -> Result<(), Reason> {
        self.left
            .first()
            .map_or(Ok(()), |m| Err(Reason::Modifier((*m).to_owned())))
    }
}
