//! hetIR to OpenCL C 1.2: a program becomes one text with one `__kernel` ([`hetckpt_abi::opencl_program`]).
//!
//! The text reads like the kernel: a variable for each register, `for` and `if` where control flow has that form
//! ([`structure`]), the PTX line beside each statement. Registers are bits and instructions carry the types, so
//! operands are reinterpreted (`as_float(r3)`) where they are used. What PTX does in an instruction and OpenCL C in no
//! operator is a function put before the kernel ([`helpers`]). Every compiler of OpenCL C takes such text, while few
//! take SPIR-V.
//!
//! * **Global memory** is one buffer, the arena, or several that follow one another
//!   ([`OpenClProgram::with_memory_in`]). Programs hold addresses of hetIR's own range, so an access is to
//!   `arena + (address - arena_base)`, and pointers stored in memory mean the same on every device.
//! * **Shared memory** is one local array whose size the launch gives; the local frame is a private array; parameters
//!   are one structure. Addresses in these spaces are offsets.
//! * **Kernels whose threads wait for no one** are written as they are; each thread stops on its own, and a
//!   continuation starts with a switch over its resume points.
//! * **Kernels with barriers, warp-level operations or shared memory** stop as blocks. Where all threads of a block can
//!   come to each such place [together](native_barriers), they are written as they are. Others, and those that go on,
//!   go in [`rounds`], until they come together in a [`landing`].
//! * **Votes** of warps are those of sub-groups where the device has them of 32 threads, and each block finds that they
//!   are its warps. Shuffles go through local memory: on the one such device here, Intel's runtime for CPUs, those of
//!   sub-groups took four to five times as long, while votes took about half the time.
//!
//! Generic addresses are global ones, since hetIR knows the others' spaces. A trap sets a word and ends its thread.
//!
//! An [`Error`] that names the place tells what has no form: opaque instructions, rounding of ties away from zero,
//! conversions of pairs, atomics of 8 bits, and of 16 bits but compare-and-swap.

mod error;
mod control;
mod divergent_branches;
mod helpers;
mod inst;
mod region_registers;
mod landing;
mod leave_rounds;
mod predication;
mod names;
mod join_barriers;
mod rematerialization;
mod rounds;
mod start;
mod state;
mod structure;
mod native_barriers;
mod writer;

pub use error::Error;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use hetckpt_abi::opencl_program::{Argument, MEMORY_IN_ONE_BUFFER, OpenClProgram, Requirements, STOP_ASKED, Stops};
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::{FINISHED, ThreadStateLayout};
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::inst::Op;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Space;

use divergent_branches::DivergentBranches;
use landing::Landing;
use rematerialization::Rematerialization;
use rounds::Meetings;
use writer::Writer;

/// Orders accesses to all memory, also for other blocks.
const DEVICE_FENCE: &str = "device_fence";
/// OpenCL C 1.2 has no fence that does so for certain.
const DEVICE_FENCE_MACRO: &str = "\
#if __OPENCL_C_VERSION__ >= 200
#define device_fence() atomic_work_item_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE, memory_order_seq_cst, memory_scope_device)
#else
#define device_fence() mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif
";

/// What the device is known to have beyond OpenCL C 1.2's core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenClOptions {
    /// `cl_khr_int64_extended_atomics`; without it 64-bit minimum, maximum and logic are loops of compare-and-swap.
    pub has_int64_extended_atomics: bool,
    /// Sub-groups of 32 can be asked for and vote: `cl_intel_required_subgroup_size`, `cl_khr_subgroup_ballot`. Whether
    /// they are the block's warps, each block looks first.
    pub has_votes_of_sub_groups: bool,
    /// Groups are told their blocks, some of which go on from where they stopped.
    pub block_list: bool,
    /// Looks at the pause word are counted, for devices whose kernels do not see the host's writes.
    pub counts_looks: bool,
    /// Nothing stops, not even before the start: for measuring what probes cost. Kernels whose threads do not come to
    /// their barriers all together need their probes all the same.
    pub never_stops: bool,
}

/// How threads of `kernel` stop.
#[must_use]
pub fn stops(kernel: &Kernel) -> Stops {
    let uses_shared = |op: &Op| {
        matches!(
            op,
            Op::Load {
                space: Space::Shared,
                ..
            } | Op::Store {
                space: Space::Shared,
                ..
            } | Op::Atom {
                space: Space::Shared,
                ..
            } | Op::Warp { .. }
        )
    };
    let block_wide = kernel.blocks.iter().any(|block| {
        matches!(block.terminator, Terminator::Barrier { .. }) || block.insts.iter().any(|inst| uses_shared(&inst.op))
    });
    if block_wide || kernel.shared.static_bytes > 0 {
        Stops::Blocks
    } else {
        Stops::Threads
    }
}

const PARTIAL_BARRIER: &str = "a barrier that is not number 0, or not for the whole block, or a memory barrier object";

/// Writes a program as OpenCL C. With a list of blocks, and where threads stop as blocks ([`stops`]), it can start them
/// at any resume point, whatever its entries are.
///
/// # Errors
/// [`Error`] if the kernel holds what OpenCL C has no form for.
pub fn generate(
    program: &Program,
    layout: &ThreadStateLayout,
    options: &OpenClOptions,
) -> Result<OpenClProgram, Error> {
    let kernel = &program.kernel;
    if let Some(span) = kernel.partial_barrier() {
        return Err(Error::NoForm {
            kernel: kernel.name.clone(),
            span,
            what: PARTIAL_BARRIER.to_owned(),
        });
    }
    let stops = stops(kernel);
    let meetings = Meetings::of(kernel);
    // From the fastest form that there may be to the one that there always is.
    let forms: &[Form] = match (stops, options.block_list) {
        (Stops::Threads, _) => &[Form::Plain],
        (Stops::Blocks, true) => &[Form::RoundsWithLandings, Form::Plain],
        (Stops::Blocks, false) => &[Form::Together, Form::RoundsWithLandings, Form::Plain],
    };
    let mut writer = Writer::new(kernel, layout, options, stops);
    for form in forms {
        writer = Writer::new(kernel, layout, options, stops);
        if !writer.take_form(*form) {
            continue;
        }
        check_probes(&writer)?;
        write(&mut writer, program, &meetings)?;
        if !writer.has_no_form {
            break;
        }
    }
    let body = writer.body();
    let helpers = helpers::needed_by(&body);
    let words: BTreeSet<&str> = helpers::identifiers(&body).collect();
    let lane_bytes = if writer.goes_in_rounds() {
        meetings.lane_bytes()
    } else {
        native_barriers::LANE_BYTES
    };
    let arguments = arguments(kernel, &words, lane_bytes);
    let entry = format!("hetckpt_{}", names::short_identifier(&kernel.name));

    let requires = requirements(kernel, &helpers, &body);
    let mut text = String::with_capacity(body.len() + helpers.len() + 2048);
    let _ = writeln!(text, "// {}", kernel.name);
    text.push_str(&preamble(&requires, &words));
    let asks_for_sub_groups = words.contains("sub_group_ballot");
    text.push_str(&helpers);
    if words.contains("params") || words.contains("PARAM") {
        text.push_str(&params_structure(kernel));
    }
    text.push_str(&head(kernel, &entry, &arguments, asks_for_sub_groups));
    text.push_str("{\n");
    let declarations = if writer.goes_in_rounds() {
        String::new()
    } else {
        writer.declarations()
    };
    text.push_str(&locals(kernel, &words, declarations));
    text.push_str(&body);
    text.push_str("}\n");
    Ok(OpenClProgram {
        text,
        entry,
        arguments,
        requires,
        stops,
        orders_for_device: words.contains(DEVICE_FENCE),
    })
}

/// How control flow is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Threads of a block come to all places where they wait together.
    Together,
    /// In rounds until they do.
    RoundsWithLandings,
    /// In rounds; each on its own where no thread waits.
    Plain,
}

impl Writer<'_> {
    /// Sets out to write a form; false if the kernel has none.
    fn take_form(&mut self, form: Form) -> bool {
        if self.stops == Stops::Blocks {
            self.rematerialization = Rematerialization::of(self.kernel);
        }
        match form {
            Form::Together => {
                self.divergence = DivergentBranches::of(self.kernel, Kernel::ENTRY);
                self.together = self.divergence.is_some();
                let mut insts = self.kernel.insts();
                self.votes_in_sub_groups = self.together
                    && self.options.has_votes_of_sub_groups
                    && insts.any(|inst| matches!(&inst.op, Op::Warp { op, .. } if native_barriers::is_vote(*op)));
                self.together
            }
            Form::RoundsWithLandings => {
                self.landings = Landing::all(self.kernel);
                !self.landings.is_empty()
            }
            Form::Plain => true,
        }
    }
}

/// Probes say where threads stop, and where they wait for one another.
fn check_probes(writer: &Writer<'_>) -> Result<(), Error> {
    let needs_probes = writer.stops == Stops::Blocks && !writer.never_stops();
    if needs_probes && writer.kernel.resume_points.is_empty() {
        return Err(Error::NotProbed {
            kernel: writer.kernel.name.clone(),
        });
    }
    Ok(())
}

fn write(writer: &mut Writer<'_>, program: &Program, meetings: &Meetings<'_>) -> Result<(), Error> {
    let block_list = writer.options.block_list;
    writer.start(block_list || writer.goes_in_rounds());
    match writer.stops {
        Stops::Blocks if !writer.together => writer.rounds(program, meetings),
        Stops::Threads if block_list => writer.entries(program),
        Stops::Blocks | Stops::Threads => writer.region(None, Kernel::ENTRY),
    }
}

fn arguments(kernel: &Kernel, words: &BTreeSet<&str>, lane_bytes: u32) -> Vec<Argument> {
    let has = |word: &str| words.contains(word);
    let size_bytes = kernel.param_bytes().next_multiple_of(16);
    let all = [
        (true, Argument::Arena),
        (true, Argument::ArenaBase),
        (has("params") || has("PARAM"), Argument::Params { size_bytes }),
        (has("SHARED") || has("shared_memory"), Argument::Shared),
        (has("dynamic_shared_bytes"), Argument::DynamicSharedBytes),
        (
            has("lanes"),
            Argument::Lanes {
                bytes_per_thread: lane_bytes,
            },
        ),
        (true, Argument::Counts),
        (true, Argument::Pause),
        (has("look_price"), Argument::LookPrice),
        (has("host_clock"), Argument::HostClock),
        (true, Argument::Grid),
        (has("resumed"), Argument::Resumed),
        (has("resumed_slots"), Argument::ResumedSlots),
        (true, Argument::TurnedAway),
        (has("stopped"), Argument::Stopped),
        (has("num_stopped"), Argument::NumStopped),
    ];
    all.into_iter()
        .filter(|(is_used, _)| *is_used)
        .map(|(_, argument)| argument)
        .collect()
}

fn requirements(kernel: &Kernel, helpers: &str, body: &str) -> Requirements {
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
        // What is a `float` or a `double` and not only bits may be calculated with. Halves are normal `float`s, while
        // most subnormal numbers of bf16 are subnormal there too. Helpers compute in `double` what is not small.
        f32_subnormals: body.contains("as_float(") || has("ptx_f32_from_bf16") || has("ptx_atom_add_f32_local"),
        f64_subnormals: body.contains("as_double(") || has("ptx_atom_add_f64_global") || has("ptx_atom_add_f64_local"),
        correctly_rounded_divide_sqrt: kernel.insts().any(|inst| inst::is_nearest_quotient_or_root(&inst.op)),
    }
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
    if words.contains("sub_group_ballot") {
        text.push_str("#pragma OPENCL EXTENSION cl_khr_subgroup_ballot : enable\n");
    }
    text.push('\n');
    let macros = [
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
        ("FINISHED", &format!("FINISHED {FINISHED:#x}u")),
        (
            "block_fence",
            "block_fence() mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)",
        ),
    ];
    text.push_str(MEMORY_IN_ONE_BUFFER);
    for (_, definition) in macros.iter().filter(|(word, _)| words.contains(word)) {
        let _ = writeln!(text, "#define {definition}");
    }
    if words.contains(DEVICE_FENCE) {
        text.push_str(DEVICE_FENCE_MACRO);
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
    if words.contains("stop_asked") {
        text.push_str(STOP_ASKED);
    }
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

fn head(kernel: &Kernel, entry: &str, arguments: &[Argument], asks_for_sub_groups: bool) -> String {
    let mut text = String::from("__kernel");
    if asks_for_sub_groups {
        text.push_str(" __attribute__((intel_reqd_sub_group_size(32)))");
    }
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
            Argument::Counts => "__global uint *counts",
            Argument::Pause if arguments.contains(&Argument::LookPrice) => "__global volatile uint *pause",
            Argument::Pause => "__global const volatile uint *pause",
            Argument::LookPrice => "uint look_price",
            Argument::HostClock => "__global const volatile ulong *host_clock",
            Argument::Grid => "uint4 grid",
            Argument::Resumed => "__global const uint *resumed",
            Argument::ResumedSlots => "__global const uchar *resumed_slots",
            Argument::TurnedAway => "__global uint *turned_away",
            Argument::Stopped => "__global uchar *stopped",
            Argument::NumStopped => "uint num_stopped",
        })
        .collect();
    let _ = writeln!(
        text,
        " void {entry}(\n    {}\n    MORE_ARENAS)",
        declared.join(",\n    ")
    );
    text
}

/// What stands before the first statement.
fn locals(kernel: &Kernel, words: &BTreeSet<&str>, registers: String) -> String {
    let mut text = registers;
    let has = |word: &str| words.contains(word);
    if has("FRAME") || has("frame") {
        let size = kernel.local.size_bytes.max(16);
        let _ = writeln!(text, "    __private uchar frame[{size}] __attribute__((aligned(16)));");
    }
    if has("SHARED") {
        text.push_str("    __local uchar *const shared = (__local uchar *)shared_memory;\n");
    }
    text.push_str("    const uint block_size = get_local_size(0) * get_local_size(1) * get_local_size(2);\n");
    text.push_str(
        "    const uint thread = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));\n",
    );
    if ["lane", "lanes", "warp_size"].iter().any(|w| has(w)) {
        text.push_str("    const uint lane = thread & 31, warp_size = min(32u, block_size - (thread - lane));\n");
    }
    text.push('\n');
    text
}
