//! hetIR to PTX: a program becomes one module with one `.entry`.
//!
//! The text says what the kernel says, instruction by instruction, so that `ptxas` makes of it what it would have made
//! of the program's own PTX; what pausing needs stands beside it:
//!
//! * a hidden last parameter, the address of the launch's control block ([`hetckpt_abi::launch_control`]);
//! * the request to stop is asked for ahead: each probe tests the word that the probe before it has loaded, so that no
//!   probe waits for memory; the first load is the kernel's first instruction, tested as late as possible
//!   ([`entry_tests`]);
//! * what a stopping thread does is out of line ([`save`]);
//! * a continuation starts with the code that gives its threads back what they had ([`resume`]).
//!
//! Shared and local addresses are offsets in hetIR; here the constant base of the segment is added to the immediate of
//! each access.

pub mod inst;
mod error;
mod facts;
mod poll_plan;
mod barrier_plan;
mod block_order;
mod basic_block;
mod entry_tests;
pub(crate) mod chunks;
mod barriers_and_warps;
mod names;
mod resume;
mod save;
mod terminator;
mod barrier_probes;
mod loop_probes;
mod prologue;
mod writer;

pub use error::Error;

use std::fmt::Write as _;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_ir::kernel::Kernel;

use facts::Facts;
use writer::Writer;

/// First line of the text of a program that is launched over a list of blocks.
pub const BLOCK_LIST_MARK: &str = "// hetckpt: launched over a list of blocks";

/// First line of a program whose hidden parameter may be 0. It does not ask then whether to stop, and each of its
/// threads ends soon.
pub const ENDS_SOON_MARK: &str = "// hetckpt: each thread ends soon";

/// What the text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtxOptions {
    /// `.target`: 90 is `sm_90`.
    pub sm: u32,
    /// `.version`: `(8, 0)`.
    pub ptx_version: (u32, u32),
    /// Address of the first byte of dynamic shared memory on the device.
    pub shared_base: u32,
    /// The threads of a block, where they start, are in step: what one of them does next, the others do too. Always
    /// true at a kernel's start. Without it nothing is decided together.
    pub in_step: bool,
    /// Launched over a list of blocks, as continuations always are. Also for an ordinary program of which only some
    /// blocks are to be started.
    pub block_list: bool,
}

impl Default for PtxOptions {
    fn default() -> Self {
        Self {
            sm: 80,
            ptx_version: (8, 0),
            shared_base: 0,
            in_step: true,
            block_list: false,
        }
    }
}

/// Generated PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxKernel {
    /// The module's text.
    pub text: String,
    /// True if it is launched over a list of blocks.
    pub block_list: bool,
}

/// Bytes that PTX allows for a kernel's parameters, from version 8.1 on.
const MAX_PARAMETER_BYTES: u32 = 32_764;

/// True if the hidden parameter has room behind the kernel's own.
#[must_use]
pub fn has_room_for_control(kernel: &Kernel) -> bool {
    parameter_bytes(kernel) <= MAX_PARAMETER_BYTES
}

/// Bytes of the parameters, the hidden one with them.
fn parameter_bytes(kernel: &Kernel) -> u32 {
    let own = kernel.params.last().map_or(0, |last| last.offset + last.size_bytes);
    own.next_multiple_of(8) + 8
}

/// Writes `program` as PTX. A kernel without resume points is written without probes and without the hidden parameter.
///
/// # Errors
/// [`Error`] if the kernel holds what PTX, or pausing on a GPU, has no form for.
pub fn generate(program: &Program, layout: &ThreadStateLayout, options: &PtxOptions) -> Result<PtxKernel, Error> {
    let kernel = &program.kernel;
    let block_list = options.block_list || program.is_continuation();
    let facts = Facts::new(kernel, block_list)?;
    if block_list && !facts.is_probed {
        return Err(Error::NotProbed {
            kernel: kernel.name.clone(),
        });
    }
    let mut w = Writer::new(program, layout, options, facts);
    let order = block_order::block_order(kernel);
    w.local_frame();
    if facts.ends_soon {
        w.unasked(&order)?;
    }
    w.prologue();
    if block_list {
        w.block_list_prologue()?;
    }
    w.basic_blocks(&order)?;
    w.looks();
    w.save_paths()?;
    w.meeting();
    let (body, registers) = w.finish();

    let mut text = String::with_capacity(body.len() + 1024);
    if block_list {
        let _ = writeln!(text, "{BLOCK_LIST_MARK}");
    }
    if facts.ends_soon {
        let _ = writeln!(text, "{ENDS_SOON_MARK}");
    }
    // Up to 8.0 parameters may take 4096 bytes.
    let (major, minor) = if parameter_bytes(kernel) > 4096 {
        options.ptx_version.max((8, 1))
    } else {
        options.ptx_version
    };
    let _ = writeln!(
        text,
        ".version {major}.{minor}\n.target sm_{}\n.address_size 64\n",
        options.sm
    );
    text.push_str(".extern .shared .align 16 .b8 hetckpt_shared[];\n\n");
    entry_header(&mut text, program, facts.is_probed);
    let _ = writeln!(text, "{{");
    text.push_str(&registers);
    text.push_str(&body);
    text.push_str("}\n");
    Ok(PtxKernel { text, block_list })
}

fn entry_header(text: &mut String, program: &Program, is_probed: bool) {
    let kernel = &program.kernel;
    let mut params: Vec<String> = (0..kernel.params.len())
        .map(|i| names::param_declaration(kernel, i))
        .collect();
    if is_probed {
        params.push(format!(".param .u64 {}", names::CONTROL_PARAM));
    }
    let _ = writeln!(text, ".visible .entry {}(", kernel.name);
    let _ = writeln!(text, "\t{}\n)", params.join(",\n\t"));
    let bounds = &kernel.bounds;
    if let Some([x, y, z]) = bounds.max_ntid {
        let _ = writeln!(text, ".maxntid {x}, {y}, {z}");
    }
    if let Some([x, y, z]) = bounds.req_ntid {
        let _ = writeln!(text, ".reqntid {x}, {y}, {z}");
    }
    if let Some(n) = bounds
        .min_cta_per_sm
        .filter(|_| bounds.max_ntid.is_some() || bounds.req_ntid.is_some())
    {
        let _ = writeln!(text, ".minnctapersm {n}");
    }
    if let Some(n) = bounds.max_registers {
        let _ = writeln!(text, ".maxnreg {n}");
    }
}
