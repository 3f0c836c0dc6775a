//! Textures and surfaces (PTX ISA, "Texture Instructions", "Surface Instructions"). For each component there is a call
//! of a function that does the same in software ([`crate::images`]).

use std::collections::HashMap;

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Op, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::{self, Instruction, Statement};
use crate::error::Reason;
use crate::images::{BeyondSurface, PREFIX};
use crate::lower::call::Call;
use crate::lower::lowering::KernelLowering;
use crate::lower::matrix::emit::pack;
use crate::lower::memory::{Scalar, transfer};
use crate::lower::modifiers::{ModifierList, type_named};
use crate::lower::scope::{Symbol, width_of};

/// What an instruction's address names.
struct Location<'i, 'a> {
    object: Operand,
    coordinates: &'i [ast::Operand<'a>],
}

/// Shape of an image, as instructions name it.
#[derive(Clone, Copy, PartialEq)]
struct Geometry {
    name: &'static str,
    /// Coordinates behind the layer, if there is one.
    dimensions: usize,
    is_layered: bool,
}

const GEOMETRIES: [Geometry; 7] = [
    geometry("1d", 1, false),
    geometry("2d", 2, false),
    geometry("3d", 3, false),
    geometry("a1d", 1, true),
    geometry("a2d", 2, true),
    geometry("cube", 3, false),
    geometry("acube", 3, true),
];

const fn geometry(name: &'static str, dimensions: usize, is_layered: bool) -> Geometry {
    Geometry {
        name,
        dimensions,
        is_layered,
    }
}

/// A call's argument.
type Argument = (Operand, Type);

/// Lowers such an instruction.
pub(super) fn lower<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    k.reads_images = true;
    let not_taken = k.branch_on_guard();
    match inst.opcode {
        "tex" => tex(k, inst)?,
        "tld4" => gather(k, inst)?,
        "txq" | "suq" => query(k, inst)?,
        "suld" => surface_load(k, inst)?,
        "sust" => surface_store(k, inst)?,
        _ => return Err(Reason::Family("atomic operations on surfaces")),
    }
    k.leave_guard(not_taken);
    Ok(())
}

fn take_geometry(list: &mut ModifierList<'_>) -> Result<Geometry, Reason> {
    let named = GEOMETRIES.map(|geometry| (geometry.name, geometry));
    list.take_from(&named)
        .ok_or(Reason::Lacks("a shape of images that is modelled"))
}

/// What `[object, {coordinates}]` names.
fn location<'i, 'a>(k: &mut KernelLowering<'_, 'a>, operand: &'i ast::Operand<'a>) -> Result<Location<'i, 'a>, Reason> {
    let refused = || Reason::Operand {
        expected: "the address of a texture or surface object and coordinates",
        found: operand.describe(),
    };
    let ast::Operand::Brackets(parts) = operand else {
        return Err(refused());
    };
    let (object, coordinates): (_, &[_]) = match parts.as_slice() {
        [object, ast::Operand::Vector(coordinates)] => (object, coordinates),
        [object, coordinate] => (object, std::slice::from_ref(coordinate)),
        _ => return Err(refused()),
    };
    let object = k.value(object, Type::B64)?;
    Ok(Location { object, coordinates })
}

impl<'a> Location<'_, 'a> {
    /// The layer, if the shape has any, and the coordinates.
    fn split(&self, k: &mut KernelLowering<'_, 'a>, shape: Geometry, ty: Type) -> Result<Vec<Argument>, Reason> {
        let layers = usize::from(shape.is_layered);
        let count = layers + shape.dimensions;
        // Vectors of three are not there: the fourth is not looked at.
        if self.coordinates.len() != count && !(count == 3 && self.coordinates.len() == 4) {
            return Err(Reason::OperandCount {
                expected: "as many coordinates as the shape has",
                found: self.coordinates.len(),
            });
        }
        let typed = self.coordinates.iter().take(count).enumerate();
        typed
            .map(|(at, operand)| {
                let ty = if at < layers { Type::S32 } else { ty };
                Ok((k.value(operand, ty)?, ty))
            })
            .collect()
    }
}

/// PTX ISA, "tex". Of a mipmapped image without `.level` the first level is read, as there are no gradients.
fn tex<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    if list.take("grad") {
        return Err(Reason::Family("gradients of textures"));
    }
    let has_level = list.take("level");
    list.take("base");
    let shape = take_geometry(&mut list)?;
    if !list.take("v4") {
        return Err(Reason::Lacks(".v4"));
    }
    let (result, coordinate) = (list.ty()?, list.ty()?);
    list.finish()?;
    ensure_word(result)?;
    let (function, level_type) = match coordinate {
        Type::F32 => ("tex", Type::F32),
        Type::S32 if shape.dimensions < 3 || shape.name == "3d" => ("fetch", Type::S32),
        _ => return Err(Reason::Type(coordinate.name().to_owned())),
    };
    let (dsts, place, level) = match (inst.operands.as_slice(), has_level) {
        ([ast::Operand::Vector(dsts), place], false) => (dsts, place, None),
        ([ast::Operand::Vector(dsts), place, level], true) => (dsts, place, Some(level)),
        (operands, _) => {
            return Err(Reason::OperandCount {
                expected: "2, or 3 with .level",
                found: operands.len(),
            });
        }
    };
    let at = location(k, place)?;
    let coordinates = at.split(k, shape, coordinate)?;
    let level = level.map_or(Ok(Operand::Imm(0)), |level| k.value(level, level_type))?;
    let name = format!("{PREFIX}{function}_{}", shape.name);
    for (component, dst) in (0..).zip(dsts) {
        let first = [
            (at.object, Type::B64),
            (Operand::Imm(component), Type::U32),
            (level, level_type),
        ];
        result_of(k, &name, first.into_iter().chain(coordinates.iter().copied()), dst)?;
    }
    Ok(())
}

/// PTX ISA, "tld4".
fn gather<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let components = [("r", 0), ("g", 1), ("b", 2), ("a", 3)];
    let component = list.take_from(&components).ok_or(Reason::Lacks("a component"))?;
    let shape = take_geometry(&mut list)?;
    if shape.name != "2d" || !list.take("v4") {
        return Err(Reason::Family(
            "four elements of images that are not plain ones of two dimensions",
        ));
    }
    let (result, coordinate) = (list.ty()?, list.ty()?);
    list.finish()?;
    ensure_word(result)?;
    let [ast::Operand::Vector(dsts), place] = inst.operands.as_slice() else {
        return Err(Reason::OperandCount {
            expected: "2",
            found: inst.operands.len(),
        });
    };
    if coordinate != Type::F32 {
        return Err(Reason::Type(coordinate.name().to_owned()));
    }
    let at = location(k, place)?;
    let coordinates = at.split(k, shape, coordinate)?;
    for (corner, dst) in (0..).zip(dsts) {
        let first = [at.object, Operand::Imm(component), Operand::Imm(corner)].into_iter();
        let first = first.zip([Type::B64, Type::U32, Type::U32]);
        result_of(
            k,
            &format!("{PREFIX}tld4_2d"),
            first.chain(coordinates.iter().copied()),
            dst,
        )?;
    }
    Ok(())
}

/// PTX ISA, "txq" and "suq".
fn query<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let sizes = [("width", 0), ("height", 1), ("depth", 2), ("array_size", 2)];
    let size = list.take_from(&sizes);
    if size.is_none() && !list.take("num_mipmap_levels") {
        return Err(Reason::Family("this property of images"));
    }
    let result = list.ty()?;
    list.finish()?;
    ensure_word(result)?;
    let [dst, ast::Operand::Address(Some(object), 0)] = inst.operands.as_slice() else {
        return Err(Reason::OperandCount {
            expected: "2",
            found: inst.operands.len(),
        });
    };
    let object = (k.value(&ast::Operand::Name(object, None), Type::B64)?, Type::B64);
    match size {
        Some(dimension) => {
            let arguments = [object, (Operand::Imm(dimension), Type::U32)];
            result_of(k, &format!("{PREFIX}size"), arguments, dst)
        }
        None => result_of(k, &format!("{PREFIX}num_levels"), [object], dst),
    }
}

/// What `suld.b` and `sust.b` have in common.
struct SurfaceAccess {
    shape: Geometry,
    element: Type,
    num_elements: usize,
    beyond: BeyondSurface,
}

impl SurfaceAccess {
    fn read(inst: &Instruction<'_>) -> Result<Self, Reason> {
        let mut list = ModifierList::new(inst);
        if !list.take("b") {
            return Err(Reason::Family("surfaces with formats"));
        }
        let shape = take_geometry(&mut list)?;
        if shape.name.contains("cube") {
            return Err(Reason::Modifier(shape.name.to_owned()));
        }
        let num_elements = list.take_from(&[("v2", 2), ("v4", 4)]).unwrap_or(1);
        let beyond = [
            ("zero", BeyondSurface::Zero),
            ("clamp", BeyondSurface::Clamp),
            ("trap", BeyondSurface::Trap),
        ];
        let beyond = list
            .take_from(&beyond)
            .ok_or(Reason::Lacks("what is beyond the surface"))?;
        // How they are cached.
        for policy in ["ca", "cg", "cs", "cv", "wb", "wt"] {
            list.take(policy);
        }
        let element = list.ty()?;
        list.finish()?;
        match element {
            Type::B8 | Type::B16 | Type::B32 | Type::B64 => Ok(Self {
                shape,
                element,
                num_elements,
                beyond,
            }),
            _ => Err(Reason::Type(element.name().to_owned())),
        }
    }

    /// Parts of an element, one a call: each has as many bytes as the first number says.
    fn parts(&self) -> (u32, u32) {
        match self.element.size_bytes() {
            8 => (4, 2),
            size => (size, 1),
        }
    }

    /// The call's arguments, but a value that is stored.
    fn arguments<'a>(
        &self,
        k: &mut KernelLowering<'_, 'a>,
        at: &Location<'_, 'a>,
        first_byte: u32,
    ) -> Result<Vec<Argument>, Reason> {
        let (part_bytes, _) = self.parts();
        let all_bytes = self.element.size_bytes() * u32::try_from(self.num_elements).unwrap_or(1);
        let numbers = [all_bytes, first_byte, part_bytes, self.beyond as u32];
        let numbers = numbers.map(|number| (Operand::Imm(number.into()), Type::U32));
        let given = at.split(k, self.shape, Type::S32)?;
        let zero = (Operand::Imm(0), Type::S32);
        let [x, y, z] = match (self.shape.name, given.as_slice()) {
            ("a1d", &[layer, x]) => [x, zero, layer],
            ("a2d", &[layer, x, y]) => [x, y, layer],
            (_, &[x]) => [x, zero, zero],
            (_, &[x, y]) => [x, y, zero],
            (_, &[x, y, z]) => [x, y, z],
            _ => return Err(Reason::Lacks("coordinates")),
        };
        Ok([(at.object, Type::B64)]
            .into_iter()
            .chain(numbers)
            .chain([x, y, z])
            .collect())
    }
}

/// The elements of an operand.
fn elements<'i, 'a>(operand: &'i ast::Operand<'a>) -> &'i [ast::Operand<'a>] {
    match operand {
        ast::Operand::Vector(elements) => elements,
        single => std::slice::from_ref(single),
    }
}

fn expect_elements(found: &[ast::Operand<'_>], access: &SurfaceAccess) -> Result<(), Reason> {
    match found.len() == access.num_elements {
        true => Ok(()),
        false => Err(Reason::OperandCount {
            expected: "as many elements as the vector has",
            found: found.len(),
        }),
    }
}

/// PTX ISA, "suld".
fn surface_load<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let access = SurfaceAccess::read(inst)?;
    let [dsts, place] = inst.operands.as_slice() else {
        return Err(Reason::OperandCount {
            expected: "2",
            found: inst.operands.len(),
        });
    };
    let (dsts, at) = (elements(dsts), location(k, place)?);
    expect_elements(dsts, &access)?;
    let (part_bytes, num_parts) = access.parts();
    // All of it before the first result, which may be a coordinate.
    let mut loaded = Vec::with_capacity(dsts.len());
    for number in (0..).take(dsts.len()) {
        let mut parts = Vec::with_capacity(2);
        for part in 0..num_parts {
            let arguments = access.arguments(k, &at, (number * num_parts + part) * part_bytes)?;
            let result = k.scratch(Width::W32);
            call(k, &format!("{PREFIX}suld"), arguments, Some((result, Type::B32)))?;
            parts.push(Operand::Reg(result));
        }
        loaded.push(parts);
    }
    for (dst, parts) in dsts.iter().zip(loaded) {
        let reg = k.wide_result(dst, access.element)?;
        match *parts.as_slice() {
            [low, high] => {
                let src = pack(k, Type::B64, [low, high]);
                k.emit(Op::Mov {
                    ty: Type::B64,
                    dst: reg,
                    src,
                });
            }
            [word] => {
                let dst = Scalar {
                    reg,
                    ty: access.element,
                };
                transfer(k, dst, word, Type::B32, access.element)?;
            }
            _ => return Err(Reason::Instruction),
        }
    }
    Ok(())
}

/// PTX ISA, "sust".
fn surface_store<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let access = SurfaceAccess::read(inst)?;
    let [place, srcs] = inst.operands.as_slice() else {
        return Err(Reason::OperandCount {
            expected: "2",
            found: inst.operands.len(),
        });
    };
    let (srcs, at) = (elements(srcs), location(k, place)?);
    expect_elements(srcs, &access)?;
    let (part_bytes, num_parts) = access.parts();
    for (number, src) in (0..).zip(srcs) {
        let value = k.wide_value(src, access.element)?;
        for (part, word) in (0..).zip(words(k, value, access.element)?) {
            let mut arguments = access.arguments(k, &at, (number * num_parts + part) * part_bytes)?;
            arguments.push((word, Type::B32));
            call(k, &format!("{PREFIX}sust"), arguments, None)?;
        }
    }
    Ok(())
}

/// The words of a value, the lowest first.
fn words(k: &mut KernelLowering<'_, '_>, value: Operand, ty: Type) -> Result<Vec<Operand>, Reason> {
    if ty == Type::B64 {
        let parts = [k.scratch(Width::W32), k.scratch(Width::W32)];
        k.emit(Op::Unpack {
            ty,
            dsts: parts.map(Some).to_vec(),
            src: value,
        });
        return Ok(parts.map(Operand::Reg).to_vec());
    }
    let reg = k.scratch(Width::W32);
    transfer(k, Scalar { reg, ty: Type::B32 }, value, ty, ty)?;
    Ok(vec![Operand::Reg(reg)])
}

/// Fails for a result that is not one word.
fn ensure_word(ty: Type) -> Result<(), Reason> {
    match ty {
        Type::B32 | Type::U32 | Type::S32 | Type::F32 => Ok(()),
        _ => Err(Reason::Type(ty.name().to_owned())),
    }
}

/// Calls a function for its result, a word, unless nobody looks at that.
fn result_of<'a>(
    k: &mut KernelLowering<'_, 'a>,
    name: &str,
    arguments: impl IntoIterator<Item = Argument>,
    dst: &ast::Operand<'a>,
) -> Result<(), Reason> {
    if is_unread(k, dst) {
        return Ok(());
    }
    let reg = k.result(dst, Width::W32)?;
    call(k, name, arguments, Some((reg, Type::B32)))
}

/// Calls a function. Arguments are copied: its result may be one of them.
fn call(
    k: &mut KernelLowering<'_, '_>,
    name: &str,
    arguments: impl IntoIterator<Item = Argument>,
    result: Option<(RegId, Type)>,
) -> Result<(), Reason> {
    let callee = *k
        .names
        .functions
        .get(name)
        .ok_or_else(|| Reason::Undeclared(name.to_owned()))?;
    let results = callee.results.iter().zip(result);
    let mut bindings: Vec<_> = results
        .map(|(formal, (reg, ty))| (formal.name, Symbol::CallScalar(reg, ty)))
        .collect();
    for (formal, (src, ty)) in callee.params.iter().zip(arguments) {
        let held = type_named(formal.ty).ok_or_else(|| Reason::Type(formal.ty.to_owned()))?;
        let dst = k.scratch(width_of(ty));
        k.emit(Op::Mov { ty, dst, src });
        bindings.push((formal.name, Symbol::CallScalar(dst, held)));
    }
    k.inline(Call { callee, bindings })
}

/// True if the function that is lowered names a result nowhere else.
fn is_unread<'a>(k: &mut KernelLowering<'_, 'a>, dst: &ast::Operand<'a>) -> bool {
    let &ast::Operand::Name(name, None) = dst else {
        return false;
    };
    let function = k.frames.last().map_or("", |frame| frame.name);
    let body = match k.names.functions.get(function) {
        Some(function) => *function,
        None => k.entry,
    };
    let mentions = k
        .mentions
        .entry(function)
        .or_insert_with(|| mentions(body.body.as_deref().unwrap_or_default()));
    name == "_" || mentions.get(name) == Some(&1)
}

/// How often each name stands in `statements` as an operand.
fn mentions<'a>(statements: &[Statement<'a>]) -> HashMap<&'a str, usize> {
    let mut found = HashMap::new();
    for statement in statements {
        let Statement::Instruction(inst) = statement else {
            continue;
        };
        if let Some((name, _)) = inst.guard {
            *found.entry(name).or_default() += 1;
        }
        inst.operands.iter().for_each(|operand| note(operand, &mut found));
    }
    found
}

fn note<'a>(operand: &ast::Operand<'a>, found: &mut HashMap<&'a str, usize>) {
    let mut count = |name| *found.entry(name).or_default() += 1;
    match operand {
        ast::Operand::Name(name, _)
        | ast::Operand::Not(name)
        | ast::Operand::Offset(name, _)
        | ast::Operand::Address(Some(name), _) => count(name),
        ast::Operand::Pair(first, second) => [first, second].into_iter().for_each(|name| count(name)),
        ast::Operand::Const(_) | ast::Operand::Address(None, _) => {}
        ast::Operand::Vector(parts) | ast::Operand::List(parts) | ast::Operand::Brackets(parts) => {
            parts.iter().for_each(|part| note(part, found));
        }
    }
}
