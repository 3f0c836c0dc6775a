//! hetIR to OpenCL C 1.2: a kernel becomes one text with one `__kernel`.
//!
//! The text reads like the kernel: a variable for each register, `for` and `if` where control flow has that form
//! ([`structure`]), the PTX line beside each statement. Registers are bits and instructions carry the types, so operands
//! are reinterpreted (`as_float(r3)`) where they are used. What PTX does in an instruction and OpenCL C in no operator is
//! a function put before the kernel ([`helpers`]). Every compiler of OpenCL C takes such text, while few take SPIR-V.
//!
//! * **Global memory** is one buffer, the arena. Programs hold addresses of hetIR's own range, so an access is to
//!   `arena + (address - arena_base)`, and pointers stored in memory mean the same on every device.
//! * **Shared memory** is one local array whose size the launch gives; the local frame is a private array; parameters are
//!   one structure. Addresses in these spaces are offsets.
//! * **Warps** have 32 lanes in the order of the threads. Their operations go through local memory and barriers, so all
//!   threads of the block must come to them together ([`meeting`]), as to barriers; those that the kernel sends elsewhere
//!   come along as absent ones ([`presence`]).
//!
//! Generic addresses are global ones, since hetIR knows the others' spaces. A trap sets a word and ends its thread.
//!
//! Only kernels without probes are written: the code runs to its end and cannot be paused. An [`Error`] that names the
//! place tells what has no form: clocks; barriers of part of the block; warp-level operations under a guard; barriers on
//! both sides of a divergent branch, or sides that share code; atomics of 8 and 16 bits; opaque instructions; loops with
//! several entries in a kernel whose threads wait for one another.

mod error;
mod control;
mod helpers;
mod inst;
mod meet;
mod meeting;
mod names;
mod presence;
mod structure;
mod writer;

pub use error::Error;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use hetckpt_ir::kernel::Kernel;

use presence::Presence;
use structure::Structure;
use writer::Writer;

/// What the device is known to have beyond OpenCL C 1.2's core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenClOptions {
    /// `cl_khr_int64_extended_atomics`; without it 64-bit minimum, maximum and logic are loops of compare-and-swap.
    pub has_int64_extended_atomics: bool,
}

/// An argument of the generated kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// `__global uchar *`: the buffer that backs device memory.
    Arena,
    /// `ulong`: the device address of its first byte.
    ArenaBase,
    /// A structure by value: the parameter buffer, filled up to this size.
    Params {
        /// Size of the structure in bytes.
        size_bytes: u32,
    },
    /// `__local`: static and dynamic shared memory; at least 16 bytes.
    Shared,
    /// `uint`: size of dynamic shared memory in bytes.
    DynamicSharedBytes,
    /// `__local`: room for exchange between lanes.
    Lanes {
        /// Size in bytes for each thread of a block.
        bytes_per_thread: u32,
    },
    /// `__global uint *`: a word that becomes 1 if a thread traps.
    Trapped,
}

/// What the device must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// `cl_khr_fp64`.
    pub fp64: bool,
    /// `cl_khr_int64_base_atomics`.
    pub int64_base_atomics: bool,
    /// `cl_khr_int64_extended_atomics`.
    pub int64_extended_atomics: bool,
    /// `CL_FP_DENORM` for `float`.
    pub f32_subnormals: bool,
    /// Built with `-cl-fp32-correctly-rounded-divide-sqrt`.
    pub correctly_rounded_divide_sqrt: bool,
}

/// Generated OpenCL C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenClKernel {
    /// The program's text.
    pub text: String,
    /// Name of the kernel in it.
    pub entry: String,
    /// Its arguments, in order.
    pub arguments: Vec<Argument>,
    /// What it needs beyond OpenCL C 1.2's core.
    pub requires: Requirements,
}

/// Writes `kernel`, which has no probes, as OpenCL C.
///
/// # Errors
/// [`Error`] if the kernel holds what OpenCL C has no form for.
pub fn generate(kernel: &Kernel, options: &OpenClOptions) -> Result<OpenClKernel, Error> {
    if !kernel.resume_points.is_empty() {
        return Err(Error::Probed {
            kernel: kernel.name.clone(),
        });
    }
    let presence = Presence::new(kernel)?;
    let kernel = &presence.kernel;
    let structure = Structure::new(kernel);
    if presence.facts.any && !structure.is_reducible() {
        return Err(Error::Irreducible {
            kernel: kernel.name.clone(),
        });
    }
    let mut writer = Writer::new(&presence, options, structure);
    writer.blocks()?;
    let body = writer.body();
    let helpers = helpers::needed_by(&body);
    let words: BTreeSet<&str> = helpers::identifiers(&body).collect();
    let arguments = arguments(kernel, &words, presence.has_absent());
    let entry = format!("hetckpt_{}", names::identifier(&kernel.name));

    let requires = requirements(&helpers, &body);
    let mut text = String::with_capacity(body.len() + helpers.len() + 2048);
    let _ = writeln!(text, "// {}", kernel.name);
    text.push_str(&preamble(&requires, &words));
    text.push_str(&helpers);
    if words.contains("params") || words.contains("PARAM") {
        text.push_str(&params_structure(kernel));
    }
    text.push_str(&head(kernel, &entry, &arguments));
    text.push_str("{\n");
    text.push_str(&locals(
        kernel,
        &words,
        writer.declarations() + &writer.absence_declarations(),
    ));
    text.push_str(&body);
    text.push_str("}\n");
    Ok(OpenClKernel {
        text,
        entry,
        arguments,
        requires,
    })
}

fn arguments(kernel: &Kernel, words: &BTreeSet<&str>, presence_rows: bool) -> Vec<Argument> {
    let mut arguments = vec![Argument::Arena, Argument::ArenaBase];
    let mut add = |is_used: bool, argument| {
        if is_used {
            arguments.push(argument);
        }
    };
    let has = |word| words.contains(word);
    let size_bytes = kernel.param_bytes().next_multiple_of(16);
    add(has("params") || has("PARAM"), Argument::Params { size_bytes });
    add(has("SHARED"), Argument::Shared);
    add(has("dynamic_shared_bytes"), Argument::DynamicSharedBytes);
    add(
        has("lanes"),
        Argument::Lanes {
            bytes_per_thread: if presence_rows { 32 } else { 16 },
        },
    );
    add(has("trapped"), Argument::Trapped);
    arguments
}

fn requirements(helpers: &str, body: &str) -> Requirements {
    let has = |word: &str| {
        [helpers, body]
            .iter()
            .any(|t| helpers::identifiers(t).any(|w| w == word))
    };
    let has_double = |t: &str| helpers::identifiers(t).any(|w| w.contains("double"));
    let extended = ["atom_min", "atom_max", "atom_and", "atom_or", "atom_xor"];
    Requirements {
        fp64: has_double(helpers) || has_double(body),
        int64_base_atomics: ["atom_add", "atom_xchg", "atom_cmpxchg"].iter().any(|w| has(w)),
        int64_extended_atomics: extended.iter().any(|w| has(w)),
        f32_subnormals: body.contains("as_float("),
        correctly_rounded_divide_sqrt: body.lines().any(divides_floats),
    }
}

/// True if a line of the body divides or takes a root in `float`.
fn divides_floats(line: &str) -> bool {
    let is_float = line.contains("as_uint(") || line.contains("_from_f32(");
    is_float && (line.contains(" / ") || line.contains("sqrt("))
}

fn preamble(requires: &Requirements, words: &BTreeSet<&str>) -> String {
    let mut text = String::from("#pragma OPENCL FP_CONTRACT OFF\n");
    let extensions = [
        (requires.fp64, "cl_khr_fp64"),
        (requires.int64_base_atomics, "cl_khr_int64_base_atomics"),
        (requires.int64_extended_atomics, "cl_khr_int64_extended_atomics"),
    ];
    for (_, name) in extensions.iter().filter(|(is_needed, _)| *is_needed) {
        let _ = writeln!(text, "#pragma OPENCL EXTENSION {name} : enable");
    }
    text.push('\n');
    let macros = [
        (
            "GLOBAL",
            "GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))",
        ),
        ("SHARED", "SHARED(type, offset) (*(__local type *)(shared + (offset)))"),
        ("FRAME", "FRAME(type, offset) (*(__private type *)(frame + (offset)))"),
        (
            "PARAM",
            "PARAM(type, offset) (*(__private const type *)((__private const uchar *)&params + (offset)))",
        ),
        (
            "block_barrier",
            "block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)",
        ),
        (
            "memory_fence",
            "memory_fence() mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)",
        ),
    ];
    for (_, definition) in macros.iter().filter(|(word, _)| words.contains(word)) {
        let _ = writeln!(text, "#define {definition}");
    }
    // Memory has no types: what is stored as one may be loaded as another.
    for (short, c) in [("u8", "uchar"), ("u16", "ushort"), ("u32", "uint"), ("u64", "ulong")] {
        for (suffix, elements) in [("", ""), ("x2", "2"), ("x4", "4"), ("x8", "8")] {
            let name = format!("{short}{suffix}");
            if words.contains(name.as_str()) {
                let _ = writeln!(text, "typedef {c}{elements} {name} __attribute__((may_alias));");
            }
        }
    }
    text.push('\n');
    text
}

/// The parameter buffer as a structure with the same layout.
fn params_structure(kernel: &Kernel) -> String {
    let mut text = String::from("typedef struct {\n");
    let mut at = 0;
    for (i, param) in kernel.params.iter().enumerate() {
        if param.offset > at {
            let _ = writeln!(text, "    uchar before_{i}[{}];", param.offset - at);
        }
        let is_scalar = param.align_bytes == param.size_bytes && matches!(param.size_bytes, 1 | 2 | 4 | 8);
        let declaration = if is_scalar {
            format!("{} param_{i};", names::unsigned(param.size_bytes))
        } else {
            format!("uchar param_{i}[{}];", param.size_bytes)
        };
        let _ = writeln!(text, "    {declaration} // {}", param.name);
        at = param.offset + param.size_bytes;
    }
    text.push_str("} __attribute__((packed, aligned(16))) params_type;\n\n");
    text
}

fn head(kernel: &Kernel, entry: &str, arguments: &[Argument]) -> String {
    let mut text = String::from("__kernel");
    if let Some([x, y, z]) = kernel.bounds.req_ntid {
        let _ = write!(text, " __attribute__((reqd_work_group_size({x}, {y}, {z})))");
    }
    let declared: Vec<&str> = arguments
        .iter()
        .map(|argument| match argument {
            Argument::Arena => "__global uchar *arena",
            Argument::ArenaBase => "ulong arena_base",
            Argument::Params { .. } => "params_type params",
            Argument::Shared => "__local ulong2 *shared_memory",
            Argument::DynamicSharedBytes => "uint dynamic_shared_bytes",
            Argument::Lanes { .. } => "__local ulong *lanes",
            Argument::Trapped => "__global uint *trapped",
        })
        .collect();
    let _ = writeln!(text, " void {entry}(\n    {})", declared.join(",\n    "));
    text
}

/// What stands before the first statement.
fn locals(kernel: &Kernel, words: &BTreeSet<&str>, registers: String) -> String {
    let mut text = registers;
    let has = |word: &str| words.contains(word);
    if has("FRAME") {
        let size = kernel.local.size_bytes.max(16);
        let _ = writeln!(text, "    __private uchar frame[{size}] __attribute__((aligned(16)));");
    }
    if has("SHARED") {
        text.push_str("    __local uchar *const shared = (__local uchar *)shared_memory;\n");
    }
    if ["thread", "lane", "lanes", "warp_size", "block_size"]
        .iter()
        .any(|w| has(w))
    {
        text.push_str("    const uint block_size = get_local_size(0) * get_local_size(1) * get_local_size(2);\n");
        text.push_str(
            "    const uint thread = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));\n",
        );
    }
    if ["lane", "lanes", "warp_size"].iter().any(|w| has(w)) {
        text.push_str("    const uint lane = thread & 31, warp_size = min(32u, block_size - (thread - lane));\n");
    }
    if has("turn_of_lanes") {
        text.push_str("    bool turn_of_lanes = false;\n");
    }
    if has("reduction") {
        text.push_str("    __local uint reduction[3];\n    uint turn = 0;\n");
        text.push_str("    if (thread == 0) reduction[0] = 0;\n    block_barrier();\n");
    }
    text.push('\n');
    text
}
