//! `malloc` and `free`, which the CUDA driver supplies to kernels as it does `vprintf`. Their bodies, in PTX, are here,
//! and are inlined like any other function's. The heap is device memory ([`hetckpt_abi::device_heap`] has its layout),
//! which the driver library sets aside; so all devices have it, and snapshots hold it.

use hetckpt_abi::device_heap as layout;

use crate::ast::Module;
use crate::link::lacks_function;

const MALLOC: &str = "malloc";
const FREE: &str = "free";

/// True for a function that is supplied here.
pub(crate) fn is_ours(name: &str) -> bool {
    name == MALLOC || name == FREE
}

/// The bodies of what `module` declares and does not define, and the variable that they need, as PTX; `None` if it
/// needs none.
pub(crate) fn supply(module: &Module<'_>) -> Option<String> {
    let bodies: String = [(MALLOC, malloc as fn() -> String), (FREE, free)]
        .into_iter()
        .filter(|&(name, _)| lacks_function(module, name))
        .map(|(_, body)| body())
        .collect();
    let head = ".version 8.0\n.target sm_75\n.address_size 64\n";
    (!bodies.is_empty()).then(|| format!("{head}.global .align 8 .u64 {};\n{bodies}", layout::NAME))
}

/// Registers, and the heap's address in `%d1`; goes to `$none` if there is none.
fn begin() -> String {
    format!(
        "\t.reg .pred %p<2>;\n\t.reg .b32 %r<6>;\n\t.reg .b64 %d<12>;
	mov.u64 %d1, {};
	ld.global.u64 %d1, [%d1];
	setp.eq.u64 %p1, %d1, 0;
	@%p1 bra $none;
",
        layout::NAME
    )
}

/// The address of the first free block's place in `%d5`, for the class in `%r1`.
fn list_of_class() -> String {
    format!(
        "\tmul.wide.u32 %d5, %r1, 8;
	add.u64 %d5, %d5, %d1;
	add.u64 %d5, %d5, {};
",
        layout::FREE
    )
}

/// Exchanges what stands at the head of the list, `%d6`, for the place in `%r3`, whose number is the next; goes to
/// `$again` if another thread was faster.
fn exchange_head() -> &'static str {
    "\tshr.u64 %d8, %d6, 32;
	add.u64 %d8, %d8, 1;
	shl.b64 %d8, %d8, 32;
	cvt.u64.u32 %d9, %r3;
	or.b64 %d8, %d8, %d9;
	atom.global.cas.b64 %d10, [%d5], %d6, %d8;
	setp.ne.u64 %p1, %d10, %d6;
	@%p1 bra $again;
"
}

fn malloc() -> String {
    format!(
        ".func (.param .b64 result) {MALLOC}(.param .b64 size)
{{
{begin}	ld.param.b64 %d2, [size];
	setp.eq.u64 %p1, %d2, 0;
	@%p1 bra $none;
	setp.ge.u64 %p1, %d2, {largest};
	@%p1 bra $none;
	add.u64 %d3, %d2, {header_less_one};
	shr.u64 %d4, %d3, {smallest_bits};
	clz.b64 %r1, %d4;
	sub.u32 %r1, 64, %r1;
{list}$again:
	ld.volatile.global.u64 %d6, [%d5];
	cvt.u32.u64 %r2, %d6;
	setp.eq.u32 %p1, %r2, 0;
	@%p1 bra $fresh;
	mul.wide.u32 %d7, %r2, 16;
	add.u64 %d7, %d7, %d1;
	ld.volatile.global.u32 %r3, [%d7+{next}];
{exchange}	bra.uni $got;
$fresh:
	mov.u64 %d8, {smallest};
	shl.b64 %d8, %d8, %r1;
	ld.global.u64 %d11, [%d1+{heap_size}];
	ld.volatile.global.u64 %d9, [%d1+{used}];
$more:
	add.u64 %d10, %d9, %d8;
	setp.gt.u64 %p1, %d10, %d11;
	@%p1 bra $none;
	atom.global.cas.b64 %d6, [%d1+{used}], %d9, %d10;
	setp.eq.u64 %p1, %d6, %d9;
	mov.b64 %d9, %d6;
	@!%p1 bra $more;
	add.u64 %d7, %d1, %d9;
	st.global.u32 [%d7+{class}], %r1;
$got:
	add.u64 %d7, %d7, {header};
	st.param.b64 [result], %d7;
	ret;
$none:
	st.param.b64 [result], 0;
	ret;
}}
",
        begin = begin(),
        list = list_of_class(),
        exchange = exchange_head(),
        largest = layout::LARGEST_BYTES,
        header_less_one = layout::BLOCK_HEADER_BYTES - 1,
        smallest_bits = layout::SMALLEST_BLOCK_BYTES.ilog2(),
        smallest = layout::SMALLEST_BLOCK_BYTES,
        next = layout::NEXT,
        class = layout::CLASS,
        header = layout::BLOCK_HEADER_BYTES,
        heap_size = layout::SIZE,
        used = layout::USED,
    )
}

/// What is not of this heap, such as memory that machine code has taken from the driver's, is left as it is.
fn free() -> String {
    format!(
        ".func {FREE}(.param .b64 pointer)
{{
{begin}	ld.param.b64 %d2, [pointer];
	sub.u64 %d3, %d2, %d1;
	ld.global.u64 %d4, [%d1+{heap_size}];
	setp.ge.u64 %p1, %d3, %d4;
	@%p1 bra $none;
	sub.u64 %d7, %d2, {header};
	sub.u64 %d3, %d3, {header};
	shr.u64 %d3, %d3, 4;
	cvt.u32.u64 %r3, %d3;
	ld.global.u32 %r1, [%d7+{class}];
{list}	membar.gl;
$again:
	ld.volatile.global.u64 %d6, [%d5];
	cvt.u32.u64 %r2, %d6;
	st.volatile.global.u32 [%d7+{next}], %r2;
	membar.gl;
{exchange}$none:
	ret;
}}
",
        begin = begin(),
        list = list_of_class(),
        exchange = exchange_head(),
        heap_size = layout::SIZE,
        header = layout::BLOCK_HEADER_BYTES,
        class = layout::CLASS,
        next = layout::NEXT,
    )
}
