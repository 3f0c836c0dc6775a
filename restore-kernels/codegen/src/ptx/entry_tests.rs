//! Where the entry probe tests: as late as nothing has happened yet.
//!
//! A thread that stops at its entry starts over, so the test may stand behind anything that only computes or reads. Standing
//! behind the first loads matters: the load of the request and the program's own then wait together, and a short kernel
//! spends nearly all its time in that wait. The test is pushed from the end of `bb0` through basic blocks that have no
//! other way in; a way that ends the thread without an effect needs no test.

use hetckpt_abi::program::Program;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::inst::{Inst, Op, Ordering};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Space;

/// For each basic block: the instruction before which it tests, the number of its instructions for its end.
pub(super) fn entry_tests(program: &Program, has_warp_op: bool) -> Vec<Option<usize>> {
    let kernel = &program.kernel;
    let mut tests = vec![None; kernel.blocks.len()];
    let has_entry_probe =
        |t: &Terminator| matches!(t, Terminator::Poll { resume_point, .. } if *resume_point == Kernel::ENTRY_POINT);
    let ways_in = ways_in(program);
    for (id, block) in kernel.iter_blocks() {
        let Terminator::Poll { next, .. } = &block.terminator else {
            continue;
        };
        if !has_entry_probe(&block.terminator) {
            continue;
        }
        if ways_in[next.index()] == 1 {
            push(kernel, &ways_in, has_warp_op, *next, &mut tests);
        } else {
            tests[id.index()] = Some(block.insts.len());
        }
    }
    tests
}

/// Places the test in `id`, to which control comes in one way only, or behind it.
fn push(kernel: &Kernel, ways_in: &[u32], has_warp_op: bool, id: BbId, tests: &mut [Option<usize>]) {
    let mut work = vec![id];
    while let Some(id) = work.pop() {
        let block = &kernel.blocks[id.index()];
        if let Some(at) = block.insts.iter().position(|inst| !only_computes(inst)) {
            tests[id.index()] = Some(at);
            continue;
        }
        let (ends, goes_on): (Vec<BbId>, Vec<BbId>) = match &block.terminator {
            Terminator::Exit => continue,
            Terminator::Jump(_) | Terminator::Branch { .. } => block
                .terminator
                .successors()
                .into_iter()
                .partition(|s| only_ends(kernel, *s)),
            _ => (Vec::new(), Vec::new()),
        };
        // The warp's lanes vote, so they must come to one test.
        let is_apart = has_warp_op && goes_on.len() > 1;
        let can_follow = goes_on.iter().all(|s| ways_in[s.index()] == 1 && *s != id);
        if (ends.is_empty() && goes_on.is_empty()) || is_apart || !can_follow {
            tests[id.index()] = Some(block.insts.len());
        } else {
            work.extend(goes_on);
        }
    }
}

/// True if the thread ends there without doing anything.
fn only_ends(kernel: &Kernel, id: BbId) -> bool {
    let block = &kernel.blocks[id.index()];
    block.insts.iter().all(only_computes) && block.terminator == Terminator::Exit
}

/// True if doing it again changes nothing, and no other thread can tell. A store to shared memory qualifies as long as the
/// thread has read nothing from there: it stores the same again.
fn only_computes(inst: &Inst) -> bool {
    match &inst.op {
        Op::Load {
            space: Space::Shared | Space::Generic,
            ..
        } => false,
        Op::Load { ordering, .. } => matches!(ordering, Ordering::Weak | Ordering::NonCoherent),
        Op::Store {
            space: Space::Local, ..
        } => true,
        Op::Store {
            space: Space::Shared,
            ordering,
            ..
        } => *ordering == Ordering::Weak,
        op => !op.has_side_effect(),
    }
}

/// Number of edges to each basic block, starts of a continuation included.
fn ways_in(program: &Program) -> Vec<u32> {
    let mut count = vec![0; program.kernel.blocks.len()];
    let edges = program.kernel.blocks.iter().flat_map(|b| b.terminator.successors());
    let starts = program.entries.iter().map(|&(_, block)| block);
    for block in edges.chain(starts) {
        count[block.index()] += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn tests_of(text: &str, has_warp_op: bool) -> Vec<Option<usize>> {
        let kernel = hetckpt_ir::text::parse::kernel(text).unwrap();
        entry_tests(&Program::from_start(kernel), has_warp_op)
    }

    const EARLY_EXIT: &str = include_str!("../../tests/filetests/early_exit.ir");

    #[test]
    fn tests_before_the_first_store_behind_an_early_exit() {
        let tests = tests_of(EARLY_EXIT, false);
        assert_eq!(tests.iter().flatten().count(), 1);
        let kernel = hetckpt_ir::text::parse::kernel(EARLY_EXIT).unwrap();
        let (block, at) = tests.iter().enumerate().find_map(|(b, t)| t.map(|t| (b, t))).unwrap();
        assert!(matches!(kernel.blocks[block].insts[at].op, Op::Store { .. }));
        assert_eq!(
            tests_of(EARLY_EXIT, true),
            tests,
            "lanes that ended take no part in a vote"
        );
    }
}
