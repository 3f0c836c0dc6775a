//! What a PTX text says, before any meaning is given to it. Borrows its names from the text.

use crate::error::SyntaxError;

/// A PTX text.
#[derive(Debug, Default)]
pub(crate) struct Module<'a> {
    /// `.address_size` and its line.
    pub(crate) address_size: Option<(u64, u32)>,
    /// Module-level variables, in order.
    pub(crate) variables: Vec<Variable<'a>>,
    /// `.entry` and `.func`, prototypes included, in order.
    pub(crate) functions: Vec<Function<'a>>,
    /// Declarations that do not follow the grammar, but tell what they declare.
    pub(crate) broken: Vec<Broken<'a>>,
    /// Other syntax errors outside of bodies.
    pub(crate) errors: Vec<SyntaxError>,
}

/// A declaration that cannot be read.
#[derive(Debug)]
pub(crate) struct Broken<'a> {
    pub(crate) name: &'a str,
    pub(crate) is_entry: bool,
    pub(crate) error: SyntaxError,
}

/// State space of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeclSpace {
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// A variable or parameter.
#[derive(Clone, Debug)]
pub(crate) struct Variable<'a> {
    pub(crate) line: u32,
    pub(crate) name: &'a str,
    pub(crate) space: DeclSpace,
    /// Type without its dot.
    pub(crate) ty: &'a str,
    /// 2 or 4 for `.v2`, `.v4`; else 1.
    pub(crate) vector: u64,
    pub(crate) align: Option<u64>,
    /// Array dimensions; `None` is `[]`.
    pub(crate) dims: Vec<Option<u64>>,
    pub(crate) init: Option<Init<'a>>,
    pub(crate) is_extern: bool,
    /// `.attribute(.managed)`: the host reaches it at the same address.
    pub(crate) is_managed: bool,
}

/// Initialiser of a module variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Init<'a> {
    Value(Const),
    /// Address of a symbol: name, addend, and the mask of `0xFF00(name)`.
    Address {
        name: &'a str,
        addend: i64,
        mask: Option<u64>,
    },
    List(Vec<Init<'a>>),
}

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Const {
    /// Two's complement, 64 bits.
    Int(u64),
    F32(u32),
    F64(u64),
}

/// `.entry` or `.func`.
#[derive(Debug)]
pub(crate) struct Function<'a> {
    pub(crate) line: u32,
    pub(crate) name: &'a str,
    pub(crate) is_entry: bool,
    pub(crate) results: Vec<Variable<'a>>,
    pub(crate) params: Vec<Variable<'a>>,
    /// `.maxntid 256, 1, 1` and the like: name, numbers, line.
    pub(crate) directives: Vec<(&'a str, Vec<u64>, u32)>,
    /// `None`: a prototype.
    pub(crate) body: Option<Vec<Statement<'a>>>,
    /// The body's text, from its third token on.
    pub(crate) text: &'a str,
    /// Syntax errors in the body.
    pub(crate) errors: Vec<SyntaxError>,
}

/// A statement of a body; scopes are flat, so that nesting needs no recursion.
#[derive(Debug)]
pub(crate) enum Statement<'a> {
    Open,
    Close,
    Label(&'a str, u32),
    /// `.branchtargets a, b;`, which the label before it names.
    Targets(Vec<&'a str>),
    Registers(Registers<'a>),
    Variable(Variable<'a>),
    Instruction(Instruction<'a>),
}

/// `.reg .b32 %r<10>, a;`
#[derive(Debug)]
pub(crate) struct Registers<'a> {
    pub(crate) line: u32,
    /// Type without its dot.
    pub(crate) ty: &'a str,
    /// Names; with a count, `name0` to `name(count-1)`.
    pub(crate) names: Vec<(&'a str, Option<u64>)>,
}

/// `@p opcode.modifiers operands;`
#[derive(Debug)]
pub(crate) struct Instruction<'a> {
    pub(crate) line: u32,
    /// Predicate, and true if negated.
    pub(crate) guard: Option<(&'a str, bool)>,
    pub(crate) opcode: &'a str,
    /// Without their dots.
    pub(crate) modifiers: Vec<&'a str>,
    pub(crate) operands: Vec<Operand<'a>>,
}

impl Instruction<'_> {
    /// The instruction's full name, as messages quote it.
    pub(crate) fn name(&self) -> String {
        let mut name = self.opcode.to_owned();
        for modifier in &self.modifiers {
            name.push('.');
            name.push_str(modifier);
        }
        name
    }
}

/// Operand of an instruction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand<'a> {
    /// Register, symbol, label; with the component of `%tid.x`.
    Name(&'a str, Option<&'a str>),
    /// `!p`.
    Not(&'a str),
    /// `d|p`.
    Pair(&'a str, &'a str),
    /// `symbol+8`.
    Offset(&'a str, i64),
    Const(Const),
    Vector(Vec<Operand<'a>>),
    /// `[base+offset]`; without a base the offset is the address.
    Address(Option<&'a str>, i64),
    /// `(a, b)` of a call.
    List(Vec<Operand<'a>>),
    /// `[object, {x, y}]`: what textures, surfaces and tensor copies have.
    Brackets(Vec<Operand<'a>>),
}

impl Operand<'_> {
    /// The operand as messages quote it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Operand::Name(name, None) => (*name).to_owned(),
            Operand::Name(name, Some(component)) => format!("{name}.{component}"),
            Operand::Not(name) => format!("!{name}"),
            Operand::Pair(a, b) => format!("{a}|{b}"),
            Operand::Offset(name, offset) => format!("{name}+{offset}"),
            Operand::Const(Const::Int(value)) => value.cast_signed().to_string(),
            Operand::Const(Const::F32(bits)) => format!("0f{bits:08X}"),
            Operand::Const(Const::F64(bits)) => format!("0d{bits:016X}"),
            Operand::Vector(_) => "{…}".to_owned(),
            Operand::Address(name, offset) => format!("[{}+{offset}]", name.unwrap_or_default()),
            Operand::List(_) => "(…)".to_owned(),
            Operand::Brackets(_) => "[…]".to_owned(),
        }
    }
}
