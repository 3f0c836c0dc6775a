//! Opcode → family. One line per opcode group; the families' files know the rest. Calls are the kernel's, as they are
//! made of statements.

use hetckpt_ir::inst::{AluOp, Op};
use hetckpt_ir::types::Type;

use crate::ast::Instruction;
use crate::error::Reason;
use crate::lower::arithmetic::check_type;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;
use crate::lower::{
    arithmetic, async_copy, async_update, atomic, barrier, bits, carry, compare, convert, eight_bits, halves, images,
    matrix, memory, memory_barrier, moves, tf32, video, warp,
};

/// Lowers one instruction.
pub(crate) fn lower<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    match inst.opcode {
        "add" | "addc" | "sub" | "subc" | "mad" | "madc" if carry::is_carry_chain(inst) => carry::carry_chain(k, inst),
        "add" | "fma" | "min" | "max" | "ex2" | "tanh" if halves::has(inst) => halves::lower(k, inst),
        "add" => arithmetic::add_sub(k, inst, AluOp::Add),
        "sub" => arithmetic::add_sub(k, inst, AluOp::Sub),
        "mul" => arithmetic::mul(k, inst),
        "mad" => arithmetic::mad(k, inst),
        "fma" => arithmetic::fma(k, inst),
        "div" => arithmetic::div_rem(k, inst, AluOp::Div),
        "rem" => arithmetic::div_rem(k, inst, AluOp::Rem),
        "min" => arithmetic::min_max(k, inst, AluOp::Min),
        "max" => arithmetic::min_max(k, inst, AluOp::Max),
        "abs" => arithmetic::sign(k, inst, AluOp::Abs),
        "neg" => arithmetic::sign(k, inst, AluOp::Neg),
        "sad" => arithmetic::sad(k, inst),
        "dp2a" | "dp4a" => arithmetic::dot_product(k, inst),
        "mul24" => arithmetic::product_of_24_bits(k, inst, false),
        "mad24" => arithmetic::product_of_24_bits(k, inst, true),
        opcode if video::has(opcode) => video::lower(k, inst),
        "rcp" => arithmetic::transcendental(k, inst, AluOp::Rcp),
        "sqrt" => arithmetic::transcendental(k, inst, AluOp::Sqrt),
        "rsqrt" => arithmetic::transcendental(k, inst, AluOp::Rsqrt),
        "sin" => arithmetic::transcendental(k, inst, AluOp::Sin),
        "cos" => arithmetic::transcendental(k, inst, AluOp::Cos),
        "lg2" => arithmetic::transcendental(k, inst, AluOp::Lg2),
        "ex2" => arithmetic::transcendental(k, inst, AluOp::Ex2),
        "tanh" => arithmetic::transcendental(k, inst, AluOp::Tanh),
        "copysign" => arithmetic::copysign(k, inst),
        "and" => bits::logic(k, inst, AluOp::And, 2),
        "or" => bits::logic(k, inst, AluOp::Or, 2),
        "xor" => bits::logic(k, inst, AluOp::Xor, 2),
        "not" => bits::logic(k, inst, AluOp::Not, 1),
        "cnot" => bits::logic(k, inst, AluOp::Cnot, 1),
        "shl" => bits::shift(k, inst, AluOp::Shl),
        "shr" => bits::shift(k, inst, AluOp::Shr),
        "shf" => bits::funnel_shift(k, inst),
        "popc" => bits::count(k, inst, AluOp::Popc),
        "clz" => bits::count(k, inst, AluOp::Clz),
        "brev" => bits::reverse(k, inst),
        "bfind" => bits::find(k, inst),
        "bfe" => bits::extract(k, inst),
        "bfi" => bits::insert(k, inst),
        "bmsk" => bits::mask(k, inst),
        "fns" => bits::find_nth(k, inst),
        "prmt" => bits::permute(k, inst),
        "szext" => bits::extend(k, inst),
        "lop3" => bits::lop3(k, inst),
        "setp" => compare::setp(k, inst),
        "testp" => compare::testp(k, inst),
        "set" => compare::set(k, inst),
        "selp" => compare::selp(k, inst),
        "slct" => compare::slct(k, inst),
        "cvt" if tf32::has(inst) => tf32::cvt(k, inst),
        "cvt" if eight_bits::has(inst) => eight_bits::cvt(k, inst),
        "cvt" if inst.modifiers.first() == Some(&"pack") => convert::cvt_pack(k, inst),
        "cvt" => convert::cvt(k, inst),
        "mov" => moves::mov(k, inst),
        "cvta" => moves::cvta(k, inst),
        "isspacep" => moves::isspacep(k, inst),
        "ld" | "ldu" => memory::load(k, inst),
        "st" | "red" | "cp" if async_update::has(inst) => async_update::lower(k, inst),
        "st" => memory::store(k, inst),
        "membar" | "fence" => memory::fence(k, inst),
        // Advice, whose content may be lost (`discard`), and events for profilers. Launches that may begin before what
        // they depend on has ended do not.
        "prefetch" | "prefetchu" | "applypriority" | "discard" | "pmevent" | "griddepcontrol" => Ok(()),
        "createpolicy" => memory::create_policy(k, inst),
        "elect" => warp::elect(k, inst),
        "nanosleep" => nanosleep(k, inst),
        "atom" => atomic::atom(k, inst, true),
        "red" => atomic::atom(k, inst, false),
        "shfl" => warp::shuffle(k, inst),
        "vote" => warp::vote(k, inst),
        "match" => warp::match_lanes(k, inst),
        "redux" => warp::redux(k, inst),
        "activemask" => warp::active_mask(k, inst),
        "bar" | "barrier" => barrier::barrier(k, inst),
        "bra" => moves::bra(k, inst),
        "brx" => moves::brx(k, inst),
        "ret" | "exit" | "trap" => moves::end(k, inst),
        _ if crate::images::is_needed_by(inst) => images::lower(k, inst),
        "wmma" | "mma" | "ldmatrix" | "stmatrix" | "movmatrix" => matrix::lower(k, inst),
        "wgmma" | "tcgen05" => Err(Reason::Family("tensor core instructions")),
        "cp" => async_copy::cp(k, inst),
        "mbarrier" => memory_barrier::mbarrier(k, inst),
        _ => Err(Reason::Instruction),
    }
}

/// PTX ISA, "nanosleep".
fn nanosleep<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let ty = list.ty()?;
    list.finish()?;
    check_type(ty, &[&[Type::U32]])?;
    let [duration] = operands(inst, "1")?;
    let duration = k.value(duration, Type::U32)?;
    k.emit(Op::Nanosleep { duration });
    Ok(())
}
