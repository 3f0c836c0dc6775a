//! The compiler's PTX made ready for the driver API.
//!
//! * Every kernel gets one more parameter, [`NDRANGE`]: the launch's offset and dimensions, which the prelude reads.
//! * A `__local` argument is a distance into the block's dynamic shared memory: where a kernel loads it, the memory's
//!   address is added.
//! * Constant memory becomes global memory: a `__constant` argument is a buffer, and the driver API gives those out in
//!   global memory only.

use std::collections::BTreeMap;

use crate::device_printf::VPRINTF;
use crate::metadata::{Declaration, Space};

/// Name of the parameter that every kernel has behind its own: three offsets and the number of dimensions.
pub const NDRANGE: &str = "hetckpt_ndrange";
/// Its size.
pub const NDRANGE_BYTES: usize = 32;
/// What the pieces of dynamic shared memory are aligned to.
pub const LOCAL_ALIGNMENT: usize = 16;

const LOCAL: &str = "hetckpt_opencl_local";

/// PTX for the driver API.
#[derive(Debug)]
pub struct Prepared {
    /// The text.
    pub ptx: String,
    /// Sizes of each kernel's own parameters.
    pub param_bytes: BTreeMap<String, Vec<usize>>,
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

/// Prepares `ptx`, whose kernels are `declared`.
///
/// # Errors
/// What the text asks for that there is not, for the build log.
pub fn prepare(ptx: &str, declared: &[Declaration]) -> Result<Prepared, String> {
    let mut out = String::with_capacity(ptx.len() + 1024);
    let mut param_bytes = BTreeMap::new();
    let mut missing = Vec::new();
    let mut place = Place::Module;
    for line in ptx.lines() {
        let line = line.replace(".const", ".global");
        let mut next = None;
        match &mut place {
            Place::Module => {
                if let Some(kernel) = line.strip_prefix(".visible .entry ").or(line.strip_prefix(".entry ")) {
                    next = Some(Place::Params {
                        kernel: kernel.trim_end_matches(['(', ')', ' ']).to_owned(),
                        lines: Vec::new(),
                    });
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
                    param_bytes.insert(kernel.clone(), lines.iter().map(|line| size_of_param(line)).collect());
                    lines.push(format!(".param .align 8 .b8 {NDRANGE}[{NDRANGE_BYTES}]"));
                    out.push_str(&format!("\t{}\n)\n", lines.join(",\n\t")));
                    let declaration = declared.iter().find(|declaration| declaration.name == *kernel);
                    if let Some([x, y, z]) = declaration.and_then(|declaration| declaration.required_group) {
                        // The compiler leaves it to us, and the driver's can spend registers accordingly.
                        out.push_str(&format!(".reqntid {x}, {y}, {z}\n"));
                    }
                    next = Some(Place::Kernel(kernel.clone()));
                } else if !text.is_empty() {
                    lines.push(text.to_owned());
                }
            }
            Place::Kernel(kernel) => {
                out.push_str(&line);
                out.push('\n');
                let declaration = declared.iter().find(|declaration| declaration.name == *kernel);
                if let Some(register) = declaration.and_then(|kernel| local_argument(&line, kernel)) {
                    out.push_str(&format!(
                        "\t{{ .reg .b64 %hetckpt; mov.u64 %hetckpt, {LOCAL}; add.s64 {register}, {register}, %hetckpt; }}\n"
                    ));
                }
            }
            Place::Function(name) if line.contains(NDRANGE) => {
                return Err(format!(
                    "error: function `{name}` asks for the place in the launch and is not inlined into its kernel\n"
                ));
            }
            Place::Function(_) => {
                out.push_str(&line);
                out.push('\n');
            }
        }
        if line == "}" {
            next = Some(Place::Module);
        }
        if let Some(next) = next {
            place = next;
        }
    }
    if missing.is_empty() {
        Ok(Prepared { ptx: out, param_bytes })
    } else {
        let error =
            |name: &String| format!("error: function `{name}` has no body, and OpenCL C here has no such function\n");
        Err(missing.iter().map(error).collect())
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

/// Size of what a line `.param .u32 name` or `.param .align 8 .b8 name[24]` declares.
fn size_of_param(line: &str) -> usize {
    if let Some((_, count)) = line.split_once('[') {
        return count.trim_end_matches(']').parse().unwrap_or(0);
    }
    let bits = line.split_whitespace().find_map(|word| {
        let digits = word.strip_prefix('.')?.strip_prefix(['u', 's', 'b', 'f'])?;
        digits.parse::<usize>().ok()
    });
    bits.unwrap_or(0) / 8
}

/// The register into which a line loads a `__local` argument of `kernel`, if it does.
fn local_argument<'a>(line: &'a str, kernel: &Declaration) -> Option<&'a str> {
    let (register, source) = line.trim().strip_prefix("ld.param.u64")?.split_once(',')?;
    let name = source.trim().strip_prefix('[')?.strip_suffix("];")?;
    let index: usize = name
        .strip_prefix(&*kernel.name)?
        .strip_prefix("_param_")?
        .parse()
        .ok()?;
    let argument = kernel.arguments.get(index)?;
    (argument.space == Space::Local).then_some(register.trim())
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
        let text = format!(
            "{HEAD}.visible .entry k(\n\t.param .u64 k_param_0,\n\t.param .u64 k_param_1\n)\n{{\n\
             \tld.param.u64 \t%rd1, [k_param_0];\n\tld.param.u64 \t%rd2, [k_param_1];\n\tret;\n}}\n"
        );
        let prepared = prepare(&text, &[kernel(&[Space::Global, Space::Local])]).unwrap();
        assert_eq!(prepared.param_bytes["k"], [8, 8]);
        assert_eq!(prepared.ptx.matches("add.s64 %rd2, %rd2, %hetckpt").count(), 1);
        assert!(!prepared.ptx.contains("add.s64 %rd1"));
        assert!(
            prepared
                .ptx
                .contains(".address_size 64\n.extern .shared .align 16 .b8 hetckpt_opencl_local[];")
        );
        assert!(
            prepared
                .ptx
                .contains("\t.param .u64 k_param_1,\n\t.param .align 8 .b8 hetckpt_ndrange[32]\n)\n{")
        );
    }

    #[test]
    fn sizes_are_those_of_the_declarations() {
        let text = format!(
            "{HEAD}.visible .entry k(\n\t.param .u8 k_param_0,\n\t.param .align 16 .b8 k_param_1[48],\n\
             \t.param .f64 k_param_2,\n\t.param .u16 k_param_3\n)\n{{\n\tret;\n}}\n.visible .entry e(\n\n)\n{{\n\tret;\n}}\n"
        );
        let prepared = prepare(&text, &[]).unwrap();
        assert_eq!(prepared.param_bytes["k"], [1, 48, 8, 2]);
        assert!(prepared.param_bytes["e"].is_empty());
        assert!(
            prepared
                .ptx
                .contains(".visible .entry e(\n\t.param .align 8 .b8 hetckpt_ndrange[32]\n)")
        );
    }

    #[test]
    fn a_required_group_is_said() {
        let text = format!("{HEAD}.visible .entry k(\n\n)\n{{\n\tret;\n}}\n");
        let declared = Declaration {
            required_group: Some([8, 4, 1]),
            ..kernel(&[])
        };
        assert!(
            prepare(&text, &[declared])
                .unwrap()
                .ptx
                .contains(")\n.reqntid 8, 4, 1\n{")
        );
    }

    #[test]
    fn constant_memory_becomes_global() {
        let text = format!(
            "{HEAD}.visible .const .align 4 .b8 t[4] = {{1}};\n.visible .entry k(\n\t.param .u64 k_param_0\n)\n{{\n\
             \tld.const.f32 \t%f4, [%rd21];\n}}\n"
        );
        let prepared = prepare(&text, &[kernel(&[Space::Constant])]).unwrap();
        assert!(prepared.ptx.contains(".visible .global .align 4 .b8 t[4]"));
        assert!(prepared.ptx.contains("ld.global.f32 \t%f4"));
    }

    #[test]
    fn functions_without_a_body_are_named() {
        let text =
            format!("{HEAD}.extern .func  (.param .b32 func_retval0) printf\n(\n\t.param .b64 printf_param_0\n)\n;\n");
        assert!(prepare(&text, &[]).unwrap_err().contains("`printf`"));
    }

    #[test]
    fn the_launch_is_known_in_kernels_only() {
        let text = format!(
            "{HEAD}.func  (.param .b64 func_retval0) f(\n\t.param .b64 f_param_0\n)\n{{\n\
             \tld.param.u64 %rd1, [hetckpt_ndrange+0];\n}}\n"
        );
        assert!(prepare(&text, &[]).unwrap_err().contains("`f`"));
    }
}
