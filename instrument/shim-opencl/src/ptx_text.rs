//! The compiler's PTX made ready for the driver API.
//!
//! * Every kernel gets one more parameter, [`NDRANGE`]: the launch's offset and dimensions, which the prelude reads.
//! * A `__local` argument is a distance into the block's dynamic shared memory: where a kernel loads it, the memory's
//!   address is added.
//! * Constant memory becomes global memory: a `__constant` argument is a buffer, and the driver API gives those out in
//!   global memory only.
//! * Rotations by a variable that LLVM puts together from shifts get their distance masked, which LLVM 14 and 15
//!   forget: PTX's shifts by more than the width give 0.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::device_printf::VPRINTF;
use crate::metadata::{Declaration, Space};

/// Name of the parameter that every kernel has behind its own: three offsets and the number of dimensions.
pub const NDRANGE: &str = "hetckpt_ndrange";
/// Its size.
pub const NDRANGE_BYTES: usize = 32;
/// What the pieces of dynamic shared memory are aligned to.
pub const LOCAL_ALIGNMENT: usize = 16;

const LOCAL: &str = "hetckpt_opencl_local";

/// Why the compiler's PTX cannot be given to the device.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PtxError {
    /// The offset of a launch is known in kernels only: the compiler's fault, which was told to inline all.
    #[error(
        "function `{function}` uses a work-item function such as get_global_id, but clang did not inline it into its kernel: try another clang (HETCKPT_CLANG)"
    )]
    NotInlined {
        /// The function.
        function: String,
    },
    /// The program calls a function that there is not: the program's fault.
    #[error("function `{function}` has no body and is not a built-in function of OpenCL C here")]
    NoBody {
        /// The function.
        function: String,
    },
    /// A kernel of the source is missing: the compiler's fault.
    #[error("kernel `{kernel}` is not found in the compiler's PTX")]
    NoKernel {
        /// The kernel.
        kernel: String,
    },
    /// This version of the compiler writes a `__local` argument in a way that is not known: the host's fault.
    #[error(
        "`__local` argument {index} (`{argument}`) of kernel `{kernel}` {found} in the compiler's PTX; \
         HETCKPT_CLANG can name another clang"
    )]
    LocalArgument {
        /// Place of the argument.
        index: usize,
        /// Its name.
        argument: String,
        /// The kernel.
        kernel: String,
        /// What is found of it.
        found: FoundLocal,
    },
}

/// What is found of a `__local` argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundLocal {
    /// No parameter of its name.
    NoParameter,
    /// A line that does not just load it.
    Read {
        /// The line.
        line: String,
    },
}

impl std::fmt::Display for FoundLocal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoParameter => f.write_str("is not declared as expected"),
            Self::Read { line } => write!(f, "is read by `{line}`"),
        }
    }
}

/// Where in the text a line is.
enum Place {
    /// Outside of any function.
    Module,
    /// Between the brackets of a kernel's parameters; those read so far.
    Params { kernel: String, lines: Vec<String> },
    /// In a kernel.
    Kernel(String),
    /// In another function.
    Function(String),
}

/// Prepares `ptx`, whose kernels are `declared`, for the driver API.
///
/// # Errors
/// What is wrong with the text: all functions without a body, or the first of anything else.
pub fn prepare(ptx: &str, declared: &[Declaration]) -> Result<String, Vec<PtxError>> {
    let mut out = String::with_capacity(ptx.len() + 1024);
    let mut found = BTreeSet::new();
    let mut missing = Vec::new();
    let mut place = Place::Module;
    for line in ptx.lines() {
        let line = line.replace(".const", ".global");
        let line = with_masked_distance(&line).unwrap_or(line);
        let mut next = None;
        match &mut place {
            Place::Module => {
                if let Some(head) = line.strip_prefix(".visible .entry ").or(line.strip_prefix(".entry ")) {
                    let kernel = head.trim_end_matches(['(', ')', ' ']).to_owned();
                    // Without parameters both brackets may be in this line.
                    let has_end = line.ends_with("()");
                    out.push_str(line.trim_end_matches(')'));
                    out.push('\n');
                    place = if has_end {
                        out.push_str(&end_of_params(&[], &kernel, declared).map_err(one)?);
                        found.insert(kernel.clone());
                        Place::Kernel(kernel)
                    } else {
                        let lines = Vec::new();
                        Place::Params { kernel, lines }
                    };
                    continue;
                } else if line.starts_with(".extern .func") {
                    missing.extend(Some(function_name(&line)).filter(|name| name != VPRINTF));
                } else if line.contains(".func ") {
                    next = Some(Place::Function(function_name(&line)));
                }
                out.push_str(&line);
                out.push('\n');
                if line.starts_with(".address_size") {
                    out.push_str(&format!(".extern .shared .align {LOCAL_ALIGNMENT} .b8 {LOCAL}[];\n"));
                }
            }
            Place::Params { kernel, lines } => {
                let text = line.trim().trim_end_matches(',');
                if text == ")" {
                    out.push_str(&end_of_params(lines, kernel, declared).map_err(one)?);
                    found.insert(kernel.clone());
                    next = Some(Place::Kernel(kernel.clone()));
                } else if !text.is_empty() {
                    lines.push(text.to_owned());
                }
            }
            Place::Kernel(kernel) => {
                out.push_str(&line);
                out.push('\n');
                let declaration = declared.iter().find(|declaration| declaration.name == *kernel);
                let register = declaration.map(|kernel| loaded_local(&line, kernel)).transpose();
                let register = register.map_err(one)?;
                if let Some(register) = register.flatten() {
                    out.push_str(&format!(
                        "\t{{ .reg .b64 %hetckpt; mov.u64 %hetckpt, {LOCAL}; add.s64 {register}, {register}, %hetckpt; }}\n"
                    ));
                }
            }
            Place::Function(name) if line.contains(NDRANGE) => {
                let function = name.clone();
                return Err(one(PtxError::NotInlined { function }));
            }
            Place::Function(_) => {
                out.push_str(&line);
                out.push('\n');
            }
        }
        // A semicolon alone ends the declaration of a function that has its body elsewhere.
        if line == "}" || (line == ";" && matches!(place, Place::Function(_))) {
            next = Some(Place::Module);
        }
        if let Some(next) = next {
            place = next;
        }
    }
    if !missing.is_empty() {
        let errors = missing.into_iter().map(|function| PtxError::NoBody { function });
        return Err(errors.collect());
    }
    let mut names = declared.iter().map(|declaration| &declaration.name);
    match names.find(|name| !found.contains(*name)) {
        Some(name) => Err(one(PtxError::NoKernel { kernel: name.clone() })),
        None => Ok(out),
    }
}

fn one(error: PtxError) -> Vec<PtxError> {
    vec![error]
}

/// A kernel's parameters, one more than it has, and what follows them.
fn end_of_params(lines: &[String], kernel: &str, declared: &[Declaration]) -> Result<String, PtxError> {
    let declaration = declared.iter().find(|declaration| declaration.name == kernel);
    declaration.map_or(Ok(()), |kernel| check_names(lines, kernel))?;
    let own: String = lines.iter().map(|line| format!("\t{line},\n")).collect();
    let mut end = format!("{own}\t.param .align 8 .b8 {NDRANGE}[{NDRANGE_BYTES}]\n)\n");
    if let Some([x, y, z]) = declaration.and_then(|declaration| declaration.required_group) {
        // The compiler leaves it to us, and the driver's can spend registers accordingly.
        end.push_str(&format!(".reqntid {x}, {y}, {z}\n"));
    }
    Ok(end)
}

/// A line of a rotation by a register, as LLVM puts it together in a scope of its own from `%lhs`, `%rhs` and, for what
/// is left of the width, `%amt2`; with the distance masked.
///
/// # Source
/// LLVM 14, `NVPTXInstrInfo.td`, `ROTL64reg_sw` and its like.
fn with_masked_distance(line: &str) -> Option<String> {
    let text = line.trim().strip_suffix(';')?;
    let (instruction, operands) = text.split_once('\t')?;
    let operands: Vec<&str> = operands.split(", ").collect();
    let [to, from, distance] = operands[..] else {
        return None;
    };
    if !distance.starts_with('%') || distance == "%amt2" {
        return None;
    }
    match (instruction.trim_end(), to, from) {
        (shift @ ("shl.b32" | "shr.b32" | "shl.b64" | "shr.b64"), "%lhs", value) => {
            let most = if shift.ends_with("64") { 63 } else { 31 };
            Some(format!(
                "\tand.b32 \t%amt2, {distance}, {most};\n\t{shift} \t%lhs, {value}, %amt2;"
            ))
        }
        (minus @ ("sub.u32" | "sub.s32"), "%amt2", width) => Some(format!("\t{minus} \t%amt2, {width}, %amt2;")),
        _ => None,
    }
}

/// Name in a line `.func (…) name(` or `.func name`.
fn function_name(line: &str) -> String {
    let after = match line.rsplit_once(") ") {
        Some((_, after)) => after,
        None => line.rsplit(' ').next().unwrap_or_default(),
    };
    after.trim_matches(['(', ')', ' ', '\t', ';']).to_owned()
}

/// Shows that each `__local` argument of `kernel` has the name by which its loads are found.
fn check_names(params: &[String], kernel: &Declaration) -> Result<(), PtxError> {
    for (index, argument) in kernel.arguments.iter().enumerate() {
        let is_named = |param: &String| identifiers(param).any(|word| argument_index(word, kernel) == Some(index));
        if argument.space == Space::Local && !params.get(index).is_some_and(is_named) {
            return Err(not_placed(index, kernel, FoundLocal::NoParameter));
        }
    }
    Ok(())
}

/// The register into which a line loads a `__local` argument of `kernel`, if it does.
///
/// # Errors
/// If it does anything else with one: the memory's address would be missing.
fn loaded_local<'a>(line: &'a str, kernel: &Declaration) -> Result<Option<&'a str>, PtxError> {
    let is_local = |&index: &usize| {
        let argument = kernel.arguments.get(index);
        argument.is_some_and(|argument| argument.space == Space::Local)
    };
    let mut indices = identifiers(line).filter_map(|word| argument_index(word, kernel));
    match indices.find(is_local) {
        None => Ok(None),
        Some(index) => match loaded_register(line) {
            Some(register) => Ok(Some(register)),
            None => {
                let line = line.trim().to_owned();
                Err(not_placed(index, kernel, FoundLocal::Read { line }))
            }
        },
    }
}

/// The register of a line `ld.param.b64 %rd1, [name];`; older compilers write `u64`.
fn loaded_register(line: &str) -> Option<&str> {
    let load = line.trim().strip_prefix("ld.param.")?;
    let load = ["b64", "u64", "s64"]
        .iter()
        .find_map(|width| load.strip_prefix(*width))?;
    let (register, source) = load.split_once(',')?;
    let name = source.trim().strip_prefix('[')?.strip_suffix("];")?;
    let is_whole = |text: &str| text.chars().all(is_of_identifier);
    (is_whole(name) && register.trim().strip_prefix('%').is_some_and(is_whole)).then_some(register.trim())
}

/// Which argument of `kernel` the compiler calls `word`.
fn argument_index(word: &str, kernel: &Declaration) -> Option<usize> {
    word.strip_prefix(&*kernel.name)?.strip_prefix("_param_")?.parse().ok()
}

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !is_of_identifier(c))
}

fn is_of_identifier(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$')
}

fn not_placed(index: usize, kernel: &Declaration, found: FoundLocal) -> PtxError {
    PtxError::LocalArgument {
        index,
        argument: kernel.arguments[index].name.clone(),
        kernel: kernel.name.clone(),
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Argument;

    fn argument(space: Space) -> Argument {
        Argument {
            space,
            type_name: String::new(),
            name: String::new(),
            qualifiers: 0,
        }
    }

    fn kernel(spaces: &[Space]) -> Declaration {
        Declaration {
            name: "k".to_owned(),
            arguments: spaces.iter().map(|&space| argument(space)).collect(),
            ..Declaration::default()
        }
    }

    const HEAD: &str = ".version 3.2\n.target sm_20\n.address_size 64\n\n";

    #[test]
    fn local_arguments_point_into_dynamic_shared_memory() {
        // As LLVM 14 writes it, and as LLVM 22 does.
        for (attributes, load) in [("", "u64"), (" .ptr .shared .align 4", "b64")] {
            let text = format!(
                "{HEAD}.visible .entry k(\n\t.param .u64 k_param_0,\n\t.param .u64{attributes} k_param_1\n)\n{{\n\
                 \tld.param.{load} \t%rd1, [k_param_0];\n\tld.param.{load} \t%rd2, [k_param_1];\n\tret;\n}}\n"
            );
            let prepared = prepare(&text, &[kernel(&[Space::Global, Space::Local])]).unwrap();
            assert_eq!(prepared.matches("add.s64 %rd2, %rd2, %hetckpt").count(), 1);
            assert!(!prepared.contains("add.s64 %rd1"));
            assert!(prepared.contains(".address_size 64\n.extern .shared .align 16 .b8 hetckpt_opencl_local[];"));
            assert!(prepared.contains(" k_param_1,\n\t.param .align 8 .b8 hetckpt_ndrange[32]\n)\n{"));
        }
    }

    #[test]
    fn local_arguments_that_cannot_be_placed_are_errors() {
        let local = [kernel(&[Space::Local])];
        let text = |param: &str, line: &str| format!("{HEAD}.entry k(\n\t.param .u64 {param}\n)\n{{\n\t{line}\n}}\n");
        for line in [
            "ld.param.v2.b64 \t{%rd1, %rd2}, [k_param_0];",
            "ld.param.b32 \t%r1, [k_param_0+4];",
            "mov.b64 \t%rd1, k_param_0;",
        ] {
            assert!(
                prepare(&text("k_param_0", line), &local).unwrap_err()[0]
                    .to_string()
                    .contains(line),
                "{line}"
            );
        }
        assert!(
            prepare(&text("other", "ret;"), &local).unwrap_err()[0]
                .to_string()
                .contains("is not declared")
        );
        // One that is not used is not loaded; others' names may end alike.
        let prepared = prepare(&text("k_param_0", "mov.b64 \t%rd1, other_k_param_0;"), &local).unwrap();
        assert!(!prepared.contains("add.s64"));
    }

    #[test]
    fn every_declared_kernel_is_found() {
        let text = format!(
            "{HEAD}.visible .func f\n(\n\t.param .b64 f_param_0\n)\n;\n.visible .entry k(\n\n)\n{{\n\tret;\n}}\n"
        );
        assert!(prepare(&text, &[kernel(&[])]).unwrap().contains(NDRANGE));
        let other = Declaration {
            name: "other".to_owned(),
            ..Declaration::default()
        };
        assert!(prepare(&text, &[other]).unwrap_err()[0].to_string().contains("`other`"));
    }

    #[test]
    fn kernels_without_parameters_get_one() {
        // As LLVM 14 writes it, and as LLVM 22 does.
        for brackets in ["()", "(\n\n)"] {
            let text =
                format!("{HEAD}.visible .entry k{brackets}\n{{\n\tret;\n}}\n.entry other{brackets}\n{{\n\tret;\n}}\n");
            let prepared = prepare(&text, &[kernel(&[])]).unwrap();
            assert_eq!(
                prepared.split_once("local[];\n").unwrap().1.trim_start(),
                ".visible .entry k(\n\t.param .align 8 .b8 hetckpt_ndrange[32]\n)\n{\n\tret;\n}\n\
                 .entry other(\n\t.param .align 8 .b8 hetckpt_ndrange[32]\n)\n{\n\tret;\n}\n"
            );
        }
    }

    #[test]
    fn rotations_by_a_register_have_their_distance_masked() {
        let text = |first: &str, minus: &str, second: &str, distance: &str| {
            format!(
                "{HEAD}.visible .entry k(\n\n)\n{{\n\t{{\n\t.reg .b64 %lhs;\n\t.reg .b64 %rhs;\n\t.reg .u32 %amt2;\n\
                 \t{first} \t%lhs, %rd1, {distance};\n\t{minus}, {distance};\n\t{second} \t%rhs, %rd1, %amt2;\n\
                 \tadd.u64 \t%rd2, %lhs, %rhs;\n\t}}\n}}\n"
            )
        };
        for (first, minus, second, most) in [
            ("shl.b64", "sub.u32 \t%amt2, 64", "shr.b64", 63),
            ("shr.b64", "sub.u32 \t%amt2, 64", "shl.b64", 63),
            ("shl.b32", "sub.s32 \t%amt2, 32", "shr.b32", 31),
        ] {
            let prepared = prepare(&text(first, minus, second, "%r3"), &[kernel(&[])]).unwrap();
            let expected = format!(
                "\tand.b32 \t%amt2, %r3, {most};\n\t{first} \t%lhs, %rd1, %amt2;\n\t{minus}, %amt2;\n\
                 \t{second} \t%rhs, %rd1, %amt2;\n\tadd.u64 \t%rd2, %lhs, %rhs;\n"
            );
            assert!(prepared.contains(&expected), "{prepared}");
        }
        // Later versions mask it themselves.
        let masked = text("shl.b64", "sub.u32 \t%amt2, 64", "shr.b64", "%amt2");
        assert!(!prepare(&masked, &[kernel(&[])]).unwrap().contains("and.b32"));
    }

    #[test]
    fn a_required_group_is_said() {
        let text = format!("{HEAD}.visible .entry k(\n\n)\n{{\n\tret;\n}}\n");
        let declared = Declaration {
            required_group: Some([8, 4, 1]),
            ..kernel(&[])
        };
        assert!(prepare(&text, &[declared]).unwrap().contains(")\n.reqntid 8, 4, 1\n{"));
    }

    #[test]
    fn constant_memory_becomes_global() {
        let text = format!(
            "{HEAD}.visible .const .align 4 .b8 t[4] = {{1}};\n.visible .entry k(\n\t.param .u64 k_param_0\n)\n{{\n\
             \tld.const.f32 \t%f4, [%rd21];\n}}\n"
        );
        let prepared = prepare(&text, &[kernel(&[Space::Constant])]).unwrap();
        assert!(prepared.contains(".visible .global .align 4 .b8 t[4]"));
        assert!(prepared.contains("ld.global.f32 \t%f4"));
    }

    #[test]
    fn functions_without_a_body_are_named() {
        let text =
            format!("{HEAD}.extern .func  (.param .b32 func_retval0) printf\n(\n\t.param .b64 printf_param_0\n)\n;\n");
        assert!(prepare(&text, &[]).unwrap_err()[0].to_string().contains("`printf`"));
    }

    #[test]
    fn the_launch_is_known_in_kernels_only() {
        let text = format!(
            "{HEAD}.func  (.param .b64 func_retval0) f(\n\t.param .b64 f_param_0\n)\n{{\n\
             \tld.param.u64 %rd1, [hetckpt_ndrange+0];\n}}\n"
        );
        assert!(prepare(&text, &[]).unwrap_err()[0].to_string().contains("`f`"));
    }
}
