//! Constants in place of registers among the operands of warp-level operations.
//!
//! nvcc loads member masks into registers (`mov.u32 %r47, -1; shfl.sync… %r47`). What may be probed depends on whether
//! the mask is all lanes, so this is the one place where the front end looks through a register: one whose only write,
//! unguarded, is a constant. A read before that write has no defined value, so the constant is as good.

use hetckpt_ir::inst::{Inst, Op, Operand};
use hetckpt_ir::kernel::Kernel;

/// Replaces such registers.
pub(crate) fn fold(kernel: &mut Kernel) {
    let constants = constants(kernel);
    let replace = |operand: &mut Operand| {
        if let Operand::Reg(reg) = operand
            && let Some(Definition::Constant(value)) = constants.get(reg.index())
        {
            *operand = Operand::Imm(*value);
        }
    };
    for inst in kernel.blocks.iter_mut().flat_map(|b| &mut b.insts) {
        if let Op::Warp { srcs, mask, .. } = &mut inst.op {
            srcs.iter_mut().for_each(replace);
            replace(mask);
        }
    }
}

#[derive(Clone, Copy)]
enum Definition {
    None,
    Constant(u64),
    Other,
}

fn constants(kernel: &Kernel) -> Vec<Definition> {
    let mut definitions = vec![Definition::None; kernel.registers.len()];
    for block in &kernel.blocks {
        for inst in &block.insts {
            let value = match inst {
                Inst {
                    op:
                        Op::Mov {
                            src: Operand::Imm(value),
                            ..
                        },
                    guard: None,
                    ..
                } => Some(*value),
                _ => None,
            };
            inst.for_each_def(|reg| {
                let definition = &mut definitions[reg.index()];
                *definition = match (*definition, value) {
                    (Definition::None, Some(value)) => Definition::Constant(value),
                    _ => Definition::Other,
                };
            });
        }
        if let Some(reg) = block.terminator.def() {
            definitions[reg.index()] = Definition::Other;
        }
    }
    definitions
}
