//! Functions that the CUDA driver supplies, or its library of device code. PTX texts declare and call them; their
//! bodies are here, in PTX, and are inlined like any other function's.
//!
//! `vprintf` and `__assertfail` put a record into a buffer in device memory, a variable of the module, which the driver
//! library empties when the program synchronises ([`hetckpt_abi` has the layout](hetckpt_abi::device_output)). So they
//! need nothing of a device, and what has not been printed at a dump is captured as memory is.

use std::fmt::Write as _;

use hetckpt_abi::device_output as layout;

use crate::ast::{DeclSpace, Module, Statement};
use crate::link::lacks_function;
use crate::lower::layout::size_and_align;

/// The name that `printf` calls.
pub(crate) const VPRINTF: &str = "vprintf";
const ASSERTFAIL: &str = "__assertfail";
const GROUP_HANDLE: &str = "cudaCGGetIntrinsicHandle";
const GROUP_SYNCHRONIZE: &str = "cudaCGSynchronize";
/// Handle of the whole grid, and its scope (`cooperative_groups.h`).
const GRID: u32 = 1;
/// Offset of the word for barriers in a grid's workspace (`cooperative_groups.h`).
const BARRIER_AT: u32 = 4;
/// Bytes that one call's arguments can take: 32 of 8 bytes (CUDA C++ Programming Guide, "Formatted Output").
const MAX_ARGUMENT_BYTES: u32 = 256;

/// True for a function that is supplied here.
pub(crate) fn is_ours(name: &str) -> bool {
    [VPRINTF, ASSERTFAIL, GROUP_HANDLE, GROUP_SYNCHRONIZE].contains(&name)
}

/// Bytes to be copied of a call's arguments. They lie in a variable of the caller's; which one, and how much of it
/// counts, only the format string knows.
fn argument_bytes(module: &Module<'_>) -> u32 {
    let statements = module.functions.iter().filter_map(|f| f.body.as_deref()).flatten();
    let sizes = statements.filter_map(|statement| match statement {
        Statement::Variable(variable) if variable.space == DeclSpace::Local => size_and_align(variable).ok(),
        _ => None,
    });
    let largest = sizes.map(|(size, _)| size).max().unwrap_or(0);
    match u32::try_from(largest) {
        Ok(bytes @ 0..MAX_ARGUMENT_BYTES) => bytes.next_multiple_of(8),
        _ => MAX_ARGUMENT_BYTES,
    }
}

/// What is supplied to a module.
pub(crate) struct Supplied {
    /// Bodies, and the buffer they write to, as PTX.
    pub(crate) text: String,
    /// What a call of `vprintf` reads from the address that it gets, bytes.
    pub(crate) printf_bytes: u32,
}

/// The bodies of what `module` declares and does not define; `None` if it needs none.
pub(crate) fn supply(module: &Module<'_>) -> Option<Supplied> {
    let (prints, asserts) = (lacks_function(module, VPRINTF), lacks_function(module, ASSERTFAIL));
    let groups = [GROUP_HANDLE, GROUP_SYNCHRONIZE].map(|name| lacks_function(module, name));
    if !prints && !asserts && groups == [false; 2] {
        return None;
    }
    let argument_bytes = argument_bytes(module);
    let least = if asserts { layout::ASSERT_BYTES } else { 0 };
    let record_bytes = layout::record_bytes(least.max(layout::ARGUMENTS + argument_bytes));
    let buffer = layout::name(record_bytes);
    let mut text = String::from(".version 8.0\n.target sm_75\n.address_size 64\n");
    if prints || asserts {
        let size = layout::buffer_bytes();
        let _ = writeln!(text, ".global .align 16 .b8 {buffer}[{size}];");
    }
    if groups[0] {
        group_handle(&mut text);
    }
    if groups[1] {
        group_synchronize(&mut text);
    }
    if prints {
        let parameters = ".param .b64 format, .param .b64 arguments";
        let _ = writeln!(text, ".func (.param .b32 result) {VPRINTF}({parameters})\n{{");
        reserve(&mut text, &buffer, record_bytes);
        text.push_str("\tld.param.b64 %d4, [format];\n");
        let _ = writeln!(text, "\tst.global.b64 [%d3+{}], %d4;", layout::FORMAT);
        if argument_bytes > 0 {
            text.push_str("\tld.param.b64 %d5, [arguments];\n\tcvta.to.local.u64 %d6, %d5;\n");
        }
        for at in (0..argument_bytes).step_by(8) {
            let _ = writeln!(text, "\tld.local.b64 %d7, [%d6+{at}];");
            let _ = writeln!(text, "\tst.global.b64 [%d3+{}], %d7;", layout::ARGUMENTS + at);
        }
        publish(&mut text);
        text.push_str("\tst.param.b32 [result], 0;\n\tret;\n$full:\n\tst.param.b32 [result], -1;\n\tret;\n}\n");
    }
    if asserts {
        let parameters =
            ".param .b64 message, .param .b64 file, .param .b32 line, .param .b64 function, .param .b64 width";
        let _ = writeln!(text, ".func {ASSERTFAIL}({parameters})\n{{");
        reserve(&mut text, &buffer, record_bytes);
        text.push_str("\tmov.b64 %d4, 0;\n");
        let _ = writeln!(text, "\tst.global.b64 [%d3+{}], %d4;", layout::FORMAT);
        for (name, at) in [("message", 0), ("file", 8), ("function", 16)] {
            let _ = writeln!(text, "\tld.param.b64 %d4, [{name}];");
            let _ = writeln!(text, "\tst.global.b64 [%d3+{}], %d4;", layout::ARGUMENTS + at);
        }
        text.push_str("\tld.param.b32 %r5, [line];\n");
        let _ = writeln!(text, "\tst.global.b32 [%d3+{}], %r5;", layout::ARGUMENTS + 24);
        let indices = ["ctaid.x", "ctaid.y", "ctaid.z", "tid.x", "tid.y", "tid.z"];
        for (register, at) in indices.into_iter().zip((28..).step_by(4)) {
            let _ = writeln!(text, "\tmov.u32 %r5, %{register};");
            let _ = writeln!(text, "\tst.global.b32 [%d3+{}], %r5;", layout::ARGUMENTS + at);
        }
        publish(&mut text);
        text.push_str("$full:\n\ttrap;\n\tret;\n}\n");
    }
    Some(Supplied {
        text,
        printf_bytes: argument_bytes,
    })
}

/// Of `cudadevrt`: the handle of the grid, or none.
fn group_handle(text: &mut String) {
    let _ = write!(
        text,
        ".func (.param .b64 result) {GROUP_HANDLE}(.param .b32 scope)
{{
	.reg .pred %p<2>;
	.reg .b32 %r<2>;
	.reg .b64 %d<2>;
	ld.param.b32 %r1, [scope];
	setp.eq.u32 %p1, %r1, {GRID};
	selp.b64 %d1, {GRID}, 0, %p1;
	st.param.b64 [result], %d1;
	ret;
}}
"
    );
}

/// Of `cudadevrt`: a barrier of the whole grid. One thread of each block adds to a word, whose highest bit changes with
/// the last one, and waits for that.
fn group_synchronize(text: &mut String) {
    let _ = write!(
        text,
        ".func (.param .b32 result) {GROUP_SYNCHRONIZE}(.param .b64 handle, .param .b32 flags)
{{
	.reg .pred %p<2>;
	.reg .b32 %r<10>;
	.reg .b64 %d<4>;
	ld.param.b64 %d1, [handle];
	setp.eq.u64 %p1, %d1, {GRID};
	@%p1 bra $grid;
	st.param.b32 [result], 1;
	ret;
$grid:
	barrier.sync 0;
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %tid.y;
	or.b32 %r1, %r1, %r2;
	mov.u32 %r2, %tid.z;
	or.b32 %r1, %r1, %r2;
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra $met;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ctaid.y;
	or.b32 %r1, %r1, %r2;
	mov.u32 %r2, %ctaid.z;
	or.b32 %r1, %r1, %r2;
	mov.u32 %r3, %nctaid.x;
	mov.u32 %r4, %nctaid.y;
	mul.lo.u32 %r3, %r3, %r4;
	mov.u32 %r4, %nctaid.z;
	mul.lo.u32 %r3, %r3, %r4;
	mov.u32 %r5, 0x80000001;
	sub.u32 %r5, %r5, %r3;
	setp.eq.u32 %p1, %r1, 0;
	selp.b32 %r5, %r5, 1, %p1;
	mov.u32 %r6, %envreg1;
	mov.u32 %r7, %envreg2;
	mov.b64 %d2, {{%r7, %r6}};
	membar.gl;
	atom.global.add.u32 %r8, [%d2+{BARRIER_AT}], %r5;
$wait:
	ld.volatile.global.u32 %r9, [%d2+{BARRIER_AT}];
	xor.b32 %r9, %r9, %r8;
	setp.ge.s32 %p1, %r9, 0;
	@%p1 bra $wait;
	membar.gl;
$met:
	barrier.sync 0;
	st.param.b32 [result], 0;
	ret;
}}
"
    );
}

/// Takes the next record: its address in `%d3`, its number plus one in `%r3`. Goes to `$full` if there is none free.
fn reserve(text: &mut String, buffer: &str, record_bytes: u32) {
    let num_records = layout::num_records(record_bytes);
    let _ = write!(
        text,
        "\t.reg .pred %p<2>;\n\t.reg .b32 %r<6>;\n\t.reg .b64 %d<8>;
	mov.u64 %d1, {buffer};
$again:
	ld.volatile.global.u32 %r1, [%d1+{taken}];
	ld.volatile.global.u32 %r2, [%d1+{printed}];
	sub.u32 %r2, %r1, %r2;
	setp.lt.u32 %p1, %r2, {num_records};
	@%p1 bra $free;
	red.global.add.u32 [%d1+{lost}], 1;
	bra.uni $full;
$free:
	add.u32 %r3, %r1, 1;
	atom.global.cas.b32 %r4, [%d1+{taken}], %r1, %r3;
	setp.ne.u32 %p1, %r4, %r1;
	@%p1 bra $again;
	and.b32 %r4, %r1, {mask};
	mul.wide.u32 %d2, %r4, {record_bytes};
	add.u64 %d3, %d1, %d2;
	add.u64 %d3, %d3, {header};
",
        taken = layout::TAKEN,
        printed = layout::PRINTED,
        lost = layout::LOST,
        mask = num_records - 1,
        header = layout::HEADER_BYTES,
    );
}

/// Marks the record as written.
fn publish(text: &mut String) {
    let _ = writeln!(
        text,
        "\tmembar.gl;\n\tst.volatile.global.u32 [%d3+{}], %r3;",
        layout::NUMBER
    );
}
