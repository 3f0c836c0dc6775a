//! `.global` and `.const` variables with their initialisers (PTX ISA, "Initializers").

use std::collections::{HashMap, HashSet};

use hetckpt_ir::module::Global;

use crate::ast::{Const, DeclSpace, Init, Module, Variable};
use crate::error::Reason;
use crate::lower::functions;
use crate::lower::layout::{element_bytes, size_and_align};
use crate::lower::names::ModuleNames;

/// Opaque handle types, which are no memory; a kernel that uses one is rejected where it does.
pub(crate) const HANDLE_TYPES: [&str; 3] = ["texref", "samplerref", "surfref"];

/// Lowers the module's variables, in the order of the text. Those that cannot be laid out, and those that hold an
/// address of one of them, are left out and noted in `names`.
pub(crate) fn lower_globals<'a>(ast: &Module<'a>, names: &mut ModuleNames<'_, 'a>) -> Vec<Global> {
    let mut globals = Vec::new();
    let mut done = HashSet::new();
    for variable in &ast.variables {
        let is_memory = matches!(variable.space, DeclSpace::Global | DeclSpace::Const);
        if !is_memory || HANDLE_TYPES.contains(&variable.ty) {
            continue;
        }
        // Of several declarations the definition counts, at its own place.
        let defining = names
            .variables
            .get(variable.name)
            .is_some_and(|v| std::ptr::eq(*v, variable));
        if !defining || !done.insert(variable.name) {
            continue;
        }
        match lower_global(variable, names) {
            Ok(global) => globals.push((variable.name, global)),
            Err(reason) => {
                let why = format!("line {}: {reason}", variable.line);
                names.broken.entry(variable.name).or_insert(why);
            }
        }
    }
    spread(&globals, names);
    globals.retain(|(name, _)| !names.broken.contains_key(name));
    globals.into_iter().map(|(_, global)| global).collect()
}

/// Notes variables that hold addresses of those that cannot be used.
fn spread<'a>(globals: &[(&'a str, Global)], names: &mut ModuleNames<'_, 'a>) {
    let mut holders: HashMap<&str, Vec<&'a str>> = HashMap::new();
    for (name, global) in globals {
        for (_, target, _) in &global.relocations {
            holders.entry(target).or_default().push(name);
        }
    }
    let mut work: Vec<&str> = names.broken.keys().copied().collect();
    while let Some(target) = work.pop() {
        for name in holders.remove(target).unwrap_or_default() {
            if !names.broken.contains_key(name) {
                let why = format!("it holds the address of `{target}`, which cannot be used either");
                names.broken.insert(name, why);
                work.push(name);
            }
        }
    }
}

fn lower_global(variable: &Variable<'_>, names: &ModuleNames<'_, '_>) -> Result<Global, Reason> {
    let (mut size_bytes, align_bytes) = size_and_align(variable)?;
    let element = element_bytes(variable)? / variable.vector;
    let mut image = Image {
        bytes: Vec::new(),
        relocations: Vec::new(),
        pending: None,
        element,
        names,
    };
    if let Some(init) = &variable.init {
        image.fill(init, 0, size_bytes, &variable.dims)?;
    }
    let unsized_array = variable.dims.iter().any(Option::is_none);
    if unsized_array {
        size_bytes = image.bytes.len() as u64;
    }
    if image.bytes.len() as u64 > size_bytes {
        return Err(Reason::Initialiser("is larger than the variable"));
    }
    if image.pending.is_some() {
        return Err(Reason::Initialiser("holds part of an address only"));
    }
    Ok(Global {
        name: variable.name.to_owned(),
        is_constant: variable.space == DeclSpace::Const,
        is_extern: variable.is_extern,
        is_managed: variable.is_managed,
        size_bytes,
        align_bytes,
        init: image.bytes,
        relocations: image.relocations,
    })
}

/// An address given byte by byte, `0xFF(name), 0xFF00(name), …`: name, addend, next byte.
type Pending<'a> = (&'a str, i64, u32);

struct Image<'m, 'a> {
    bytes: Vec<u8>,
    relocations: Vec<(u64, String, i64)>,
    pending: Option<Pending<'m>>,
    element: u64,
    names: &'m ModuleNames<'m, 'a>,
}

impl<'m> Image<'m, '_> {
    /// Writes `init` at `offset`; `size` is the room it has, if known.
    fn fill(&mut self, init: &'m Init<'_>, offset: u64, size: u64, dims: &[Option<u64>]) -> Result<(), Reason> {
        match init {
            Init::List(list) => {
                let (inner_size, inner_dims) = match dims {
                    // Braces of a vector element, or of a scalar.
                    [] | [_] => (self.element, &[][..]),
                    [Some(count), rest @ ..] => (size.checked_div(*count).unwrap_or(0), rest),
                    [None, rest @ ..] => {
                        let count = rest.iter().fold(1u64, |n, d| n.saturating_mul(d.unwrap_or(0)));
                        (count.saturating_mul(self.element), rest)
                    }
                };
                let mut at = offset;
                for item in list {
                    self.fill(item, at, inner_size, inner_dims)?;
                    // Elements of a flat list follow one another, whatever the dimensions say.
                    let step = if matches!(item, Init::List(_)) {
                        inner_size
                    } else {
                        self.element
                    };
                    at = at.saturating_add(step);
                }
                Ok(())
            }
            Init::Value(value) => self.put(offset, constant_bytes(*value, self.element)?),
            Init::Address { name, addend, mask } => self.address(offset, name, *addend, *mask),
        }
    }

    fn put(&mut self, offset: u64, value: u64) -> Result<(), Reason> {
        const LIMIT: u64 = 1 << 30;
        let width = usize::try_from(self.element).unwrap_or(8).min(8);
        let end = offset.saturating_add(width as u64);
        let too_long = Reason::Limit {
            what: "an initialiser",
            found: end,
            limit: LIMIT,
        };
        let (offset, end) = match (usize::try_from(offset), usize::try_from(end)) {
            (Ok(offset), Ok(at_end)) if end <= LIMIT => (offset, at_end),
            _ => return Err(too_long),
        };
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        for (byte, source) in self
            .bytes
            .iter_mut()
            .skip(offset)
            .zip(value.to_le_bytes().iter().take(width))
        {
            *byte = *source;
        }
        Ok(())
    }

    fn address(&mut self, offset: u64, name: &'m str, addend: i64, mask: Option<u64>) -> Result<(), Reason> {
        self.put(offset, 0)?;
        // Of those that cannot be used, `spread` tells.
        let is_variable = self.names.variables.contains_key(name) || self.names.broken.contains_key(name);
        let function = self.names.functions.get(name).filter(|_| !is_variable);
        if !is_variable && function.is_none() {
            return Err(Reason::Undeclared(name.to_owned()));
        }
        let start = match mask {
            None if self.element == 8 => Some(offset),
            None => return Err(Reason::Initialiser("holds an address in less than 64 bits")),
            Some(mask) => self.address_byte(offset, name, addend, mask)?,
        };
        let Some(start) = start else { return Ok(()) };
        let Some(function) = function else {
            self.relocations.push((start, name.to_owned(), addend));
            return Ok(());
        };
        let element = std::mem::replace(&mut self.element, 8);
        let put = self.put(start, functions::address(function).wrapping_add_signed(addend));
        self.element = element;
        put
    }

    /// One byte of an address; the address's offset with its last byte.
    fn address_byte(&mut self, offset: u64, name: &'m str, addend: i64, mask: u64) -> Result<Option<u64>, Reason> {
        let expected = match self.pending {
            None => 0,
            Some((pending_name, pending_addend, byte)) if pending_name == name && pending_addend == addend => byte,
            Some(_) => return Err(Reason::Initialiser("mixes the bytes of two addresses")),
        };
        if self.element != 1 || mask != 0xFF << (8 * expected) {
            return Err(Reason::Initialiser("holds an address in a form that is not supported"));
        }
        if expected == 7 {
            self.pending = None;
            return Ok(offset.checked_sub(7));
        }
        self.pending = Some((name, addend, expected + 1));
        Ok(None)
    }
}

fn constant_bytes(value: Const, element: u64) -> Result<u64, Reason> {
    match (value, element) {
        (Const::Int(value), _) => Ok(value),
        (Const::F32(bits), 4) => Ok(u64::from(bits)),
        (Const::F64(bits), 8) => Ok(bits),
        (Const::F32(bits), 8) => Ok(f64::from(f32::from_bits(bits)).to_bits()),
        #[allow(
            clippy::cast_possible_truncation,
            reason = "PTX narrows double constants the same way"
        )]
        (Const::F64(bits), 4) => Ok(u64::from((f64::from_bits(bits) as f32).to_bits())),
        _ => Err(Reason::Initialiser("holds a float in an element of another size")),
    }
}
