//! The text of one function while it is written: fresh names, registers, declarations.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Inst, Op, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Type, Width};

use super::float_facts::{FloatFacts, Form};
use super::types::{bits, int, int_of_bits, llvm, suffix, width_bits};

/// An LLVM value as an operand is written: `%v12`, `7`, `bitcast (i32 … to float)`.
pub type Value = String;

/// A function being written.
pub struct FunctionText<'k> {
    /// The kernel.
    pub kernel: &'k Kernel,
    /// Instructions before the first thread runs.
    pub prologue: String,
    /// Instructions of the threads.
    pub body: String,
    /// Functions used.
    pub declarations: BTreeSet<String>,
    /// What single-precision registers hold.
    pub facts: &'k FloatFacts,
    /// For each register, true if it lives in a float or double variable ([`float_registers`]).
    is_float: &'k [bool],
    /// For each register, true if the function reads or writes it.
    is_used: Vec<bool>,
    next_name: u32,
}

impl<'k> FunctionText<'k> {
    /// An empty function for a region of `kernel`.
    pub fn new(kernel: &'k Kernel, facts: &'k FloatFacts, is_float: &'k [bool]) -> Self {
        Self {
            kernel,
            facts,
            prologue: String::new(),
            body: String::new(),
            declarations: BTreeSet::new(),
            is_float,
            is_used: vec![false; kernel.registers.len()],
            next_name: 0,
        }
    }

    fn fresh(&mut self) -> String {
        self.next_name += 1;
        format!("%v{}", self.next_name)
    }

    /// A fresh label, without `%`.
    pub fn label(&mut self) -> String {
        self.next_name += 1;
        format!("l{}", self.next_name)
    }

    /// Writes an instruction that yields a value.
    pub fn def(&mut self, instruction: impl AsRef<str>) -> Value {
        let name = self.fresh();
        let _ = writeln!(self.body, "  {name} = {}", instruction.as_ref());
        name
    }

    /// As [`Self::def`], before the first thread runs; the value may be used anywhere.
    pub fn def_once(&mut self, instruction: impl AsRef<str>) -> Value {
        let name = self.fresh();
        let _ = writeln!(self.prologue, "  {name} = {}", instruction.as_ref());
        name
    }

    /// Writes an instruction without a value.
    pub fn put(&mut self, instruction: impl AsRef<str>) {
        let _ = writeln!(self.body, "  {}", instruction.as_ref());
    }

    /// Starts a basic block.
    pub fn begin(&mut self, label: &str) {
        let _ = writeln!(self.body, "{label}:");
    }

    /// Calls a function of LLVM or the C library, declaring it: `call("float", "llvm.fabs.f32", &["float %x"])`.
    pub fn call(&mut self, result: &str, name: &str, args: &[String]) -> Value {
        let types: Vec<&str> = args.iter().map(|a| argument_type(a)).collect();
        self.declarations
            .insert(format!("declare {result} @{name}({})", types.join(", ")));
        self.def(format!("call {result} @{name}({})", args.join(", ")))
    }

    /// LLVM type of the variable that holds a register.
    pub fn storage(&self, reg: RegId) -> &'static str {
        match (self.kernel.width(reg), self.is_float[reg.index()]) {
            (Width::W32, true) => "float",
            (Width::W64, true) => "double",
            (width, _) => int_of_bits(width_bits(width)),
        }
    }

    /// Reads a register as a value of `ty`, cut or zero-extended where the widths differ. The bits of what is not a
    /// number are the GPU's unless `ty` is `f32`; [`Self::read_bits`] has them there too.
    pub fn read_reg(&mut self, reg: RegId, ty: Type) -> Value {
        let value = self.load(reg);
        let value = if ty == Type::F32 {
            value
        } else {
            self.settle_register(reg, value)
        };
        self.stored_as(reg, value, ty)
    }

    /// Registers that have been read or written so far.
    pub fn used(&self) -> impl Iterator<Item = RegId> {
        let used = (0u32..).zip(&self.is_used).filter(|&(_, &is_used)| is_used);
        used.map(|(number, _)| RegId(number))
    }

    fn load(&mut self, reg: RegId) -> Value {
        self.is_used[reg.index()] = true;
        let storage = self.storage(reg);
        self.def(format!("load {storage}, ptr %r{}", reg.0))
    }

    fn stored_as(&mut self, reg: RegId, value: Value, ty: Type) -> Value {
        let storage = self.storage(reg);
        if storage == llvm(ty) {
            return value;
        }
        let from = width_bits(self.kernel.width(reg));
        let raw = self.cast_bits(value, storage, int_of_bits(from));
        let sized = self.resize(raw, from, bits(ty), false);
        self.cast_bits(sized, int(ty), llvm(ty))
    }

    /// The register's value with the GPU's form if it is a result that is not a number.
    fn settle_register(&mut self, reg: RegId, value: Value) -> Value {
        let flag = self.is_result(Operand::Reg(reg));
        if flag == "false" {
            return value;
        }
        let storage = self.storage(reg);
        let single = self.cast_bits(value, storage, "float");
        let settled = self.settle_if(&flag, &single);
        self.cast_bits(settled, "float", storage)
    }

    /// Whether an operand of 32 bits holds a result, as an `i1`.
    pub fn is_result(&mut self, operand: Operand) -> Value {
        let Operand::Reg(reg) = operand else {
            return "false".to_owned();
        };
        match self.facts.form(reg) {
            Form::Bits => "false".to_owned(),
            Form::Results => "true".to_owned(),
            Form::Either => {
                self.is_used[reg.index()] = true;
                self.def(format!("load i1, ptr %n{}", reg.0))
            }
        }
    }

    /// Notes whether a register holds a result.
    fn set_is_result(&mut self, reg: RegId, flag: &str) {
        if self.facts.form(reg) == Form::Either {
            self.put(format!("store i1 {flag}, ptr %n{}", reg.0));
        }
    }

    /// Reads an operand as a value of `ty`.
    pub fn read(&mut self, operand: Operand, ty: Type) -> Value {
        match operand {
            Operand::Reg(reg) => self.read_reg(reg, ty),
            Operand::Imm(bits) => constant(bits, ty),
        }
    }

    /// As [`Self::read`], for an instruction that looks at the bits.
    pub fn read_bits(&mut self, operand: Operand, ty: Type) -> Value {
        match operand {
            Operand::Reg(reg) if ty == Type::F32 => {
                let value = self.load(reg);
                let value = self.settle_register(reg, value);
                self.stored_as(reg, value, ty)
            }
            _ => self.read(operand, ty),
        }
    }

    /// Writes a result of single-precision arithmetic.
    pub fn write_result(&mut self, reg: RegId, value: Value) {
        self.write_copy(reg, Type::F32, value, "true");
    }

    /// A single-precision number in the GPU's form, if it is not a number.
    pub fn settle(&mut self, value: &str) -> Value {
        self.settle_if("true", value)
    }

    /// The same if the `i1` `flag` holds. That it hardly ever does, LLVM is told, and makes a branch of it where it
    /// does not vectorise.
    fn settle_if(&mut self, flag: &str, value: &str) -> Value {
        let is_nan = self.def(format!("fcmp uno float {value}, 0.0"));
        let changes = if flag == "true" {
            is_nan
        } else {
            self.def(format!("and i1 {is_nan}, {flag}"))
        };
        let nan = constant(0x7fff_ffff, Type::F32);
        self.def(format!("select i1 {changes}, float {nan}, float {value}, !prof !32"))
    }

    /// As [`Self::settle`], of a root. All on integers: LLVM compares a root's operand instead of it, and then takes
    /// the processor's form for the GPU's.
    pub fn settle_root(&mut self, value: &str) -> Value {
        let bits = self.def(format!("bitcast float {value} to i32"));
        let magnitude = self.def(format!("shl i32 {bits}, 1"));
        let is_nan = self.def(format!("icmp ugt i32 {magnitude}, {}", 0xff00_0000u32));
        let settled = self.def(format!("select i1 {is_nan}, i32 {}, i32 {bits}", 0x7fff_ffff));
        self.def(format!("bitcast i32 {settled} to float"))
    }

    /// Writes a value of `ty` to a register; a wider register gets it sign- or zero-extended, as `ty` says.
    pub fn write(&mut self, reg: RegId, ty: Type, value: Value) {
        self.write_copy(reg, ty, value, "false");
    }

    /// As [`Self::write`], of a value that is a single-precision result if the `i1` `is_result` holds.
    pub fn write_copy(&mut self, reg: RegId, ty: Type, value: Value, is_result: &str) {
        self.is_used[reg.index()] = true;
        self.set_is_result(reg, is_result);
        let storage = self.storage(reg);
        let to = width_bits(self.kernel.width(reg));
        let value = if storage == llvm(ty) {
            value
        } else {
            let raw = self.cast_bits(value, llvm(ty), int(ty));
            let sized = self.resize(raw, bits(ty), to, ty.is_signed());
            self.cast_bits(sized, int_of_bits(to), storage)
        };
        self.put(format!("store {storage} {value}, ptr %r{}", reg.0));
    }

    /// Same bits, another type.
    pub fn cast_bits(&mut self, value: Value, from: &str, to: &str) -> Value {
        if from == to {
            value
        } else {
            self.def(format!("bitcast {from} {value} to {to}"))
        }
    }

    /// An integer made wider or narrower.
    pub fn resize(&mut self, value: Value, from: u32, to: u32, signed: bool) -> Value {
        let (a, b) = (int_of_bits(from), int_of_bits(to));
        match from.cmp(&to) {
            std::cmp::Ordering::Equal => value,
            std::cmp::Ordering::Greater => self.def(format!("trunc {a} {value} to {b}")),
            std::cmp::Ordering::Less if signed => self.def(format!("sext {a} {value} to {b}")),
            std::cmp::Ordering::Less => self.def(format!("zext {a} {value} to {b}")),
        }
    }
}

/// LLVM's intrinsic `name` of one operand.
pub fn unary(f: &mut FunctionText<'_>, name: &str, ty: Type, a: &str) -> Value {
    f.call(
        llvm(ty),
        &format!("llvm.{name}.{}", suffix(ty)),
        &[format!("{} {a}", llvm(ty))],
    )
}

/// A constant of `ty` with these bits.
pub fn constant(value: u64, ty: Type) -> Value {
    let width = bits(ty);
    let masked = if width >= 64 { value } else { value & ((1 << width) - 1) };
    match ty {
        Type::Pred => if masked == 1 { "true" } else { "false" }.to_owned(),
        Type::Bf16 => masked.to_string(),
        ty if ty.is_float() => format!("bitcast ({} {masked} to {})", int(ty), llvm(ty)),
        _ => masked.to_string(),
    }
}

fn argument_type(argument: &str) -> &str {
    if argument.starts_with("metadata") {
        return "metadata";
    }
    if let Some(end) = argument.strip_prefix('<').and_then(|a| a.find('>')) {
        return &argument[..end + 2];
    }
    argument.split(' ').next().unwrap_or(argument)
}

/// Registers that are mostly used as floats: kept in float variables, so that loops carry no bit casts.
pub fn float_registers(kernel: &Kernel) -> Vec<bool> {
    let mut votes = vec![0i32; kernel.registers.len()];
    for block in &kernel.blocks {
        for inst in &block.insts {
            let vote = if type_of(inst).is_some_and(|ty| matches!(ty, Type::F32 | Type::F64)) {
                1
            } else {
                -1
            };
            if matches!(inst.op, Op::Mov { .. } | Op::Warp { .. }) {
                continue;
            }
            let weigh = |r: RegId| votes[r.index()] += vote;
            let mut weigh = weigh;
            if let Op::Load { dsts, .. } = &inst.op {
                dsts.iter().flatten().copied().for_each(weigh);
            } else if let Op::Store { srcs, .. } = &inst.op {
                srcs.iter()
                    .filter_map(|s| if let Operand::Reg(r) = s { Some(*r) } else { None })
                    .for_each(weigh);
            } else if let Op::Cvt {
                dst_ty,
                src_ty,
                dst,
                src,
                ..
            } = &inst.op
            {
                let as_float = |ty: &Type| if matches!(ty, Type::F32 | Type::F64) { 1 } else { -1 };
                votes[dst.index()] += as_float(dst_ty);
                if let Operand::Reg(r) = src {
                    votes[r.index()] += as_float(src_ty);
                }
            } else {
                inst.for_each_def(&mut weigh);
                inst.op.for_each_use(&mut weigh);
            }
        }
    }
    votes.into_iter().map(|v| v > 0).collect()
}

fn type_of(inst: &Inst) -> Option<Type> {
    match &inst.op {
        Op::Alu { ty, .. }
        | Op::Setp { ty, .. }
        | Op::Set { ty, .. }
        | Op::Selp { ty, .. }
        | Op::Load { ty, .. }
        | Op::Store { ty, .. }
        | Op::Atom { ty, .. } => Some(*ty),
        _ => None,
    }
}
