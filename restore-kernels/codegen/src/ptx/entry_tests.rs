//! Where the entry probe tests: as late as nothing has happened yet.
//!
//! A thread that stops at its entry starts over, so the test may stand behind anything that only computes or reads.
//! Standing behind the first loads matters: the load of the request and the program's own then wait together, and a
//! short kernel spends nearly all its time in that wait. The test is pushed from the end of `bb0` through basic blocks
//! to which there is no other way; a way that ends the thread without an effect needs no test.
//!
//! What is read before the test may be stale: the kernel before this one in its stream may have stopped before it wrote
//! it. Nothing may hang on it, neither an address, which might be anything, nor whether the thread has anything to do.
//! So the test stands before the first access or branch that depends on a loaded value.

use std::collections::BTreeSet;

use hetckpt_abi::program::Program;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, RegId};
use hetckpt_ir::inst::{Inst, Op, Ordering};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Space;

/// For each basic block: the instruction before which it tests, the number of its instructions for its end.
pub(super) fn entry_tests(program: &Program, votes: bool) -> Vec<Option<usize>> {
    let kernel = &program.kernel;
    let mut tests = vec![None; kernel.blocks.len()];
    let is_entry_probe =
        |t: &Terminator| matches!(t, Terminator::Poll { resume_point, .. } if *resume_point == Kernel::ENTRY_POINT);
    let probe = kernel
        .iter_blocks()
        .find(|(_, block)| is_entry_probe(&block.terminator));
    let Some((id, block)) = probe else { return tests };
    let at_once = |mut tests: Vec<Option<usize>>| {
        tests.fill(None);
        tests[id.index()] = Some(block.insts.len());
        tests
    };
    let ways_in = ways_in(program);
    match block.terminator.successors().first() {
        Some(next) if ways_in[next.index()] == 1 => push(kernel, &ways_in, *next, &mut tests),
        _ => return at_once(tests),
    }
    // Where a warp votes, all its lanes must come to one test.
    if votes && tests.iter().flatten().count() > 1 {
        at_once(tests)
    } else {
        tests
    }
}

/// Places the test in `first`, or behind it: a basic block is passed if it only computes, and looked at once all ways
/// to it come from blocks that are passed.
fn push(kernel: &Kernel, ways_in: &[u32], first: BbId, tests: &mut [Option<usize>]) {
    let mut passed_ways = vec![0; kernel.blocks.len()];
    let mut passed = Vec::new();
    let mut loaded = Loaded::new();
    let mut work = vec![first];
    while let Some(id) = work.pop() {
        let block = &kernel.blocks[id.index()];
        let acts_at = block.insts.iter().position(|inst| !loaded.passes(inst));
        match &block.terminator {
            _ if acts_at.is_some() => tests[id.index()] = acts_at,
            Terminator::Exit => {}
            Terminator::Branch { guard, .. } if loaded.contains(guard.pred) => {
                tests[id.index()] = Some(block.insts.len());
            }
            Terminator::Jump(_) | Terminator::Branch { .. } => {
                passed.push(id);
                for next in goes_on_at(kernel, id) {
                    passed_ways[next.index()] += 1;
                    if passed_ways[next.index()] == ways_in[next.index()] {
                        work.push(next);
                    }
                }
            }
            _ => tests[id.index()] = Some(block.insts.len()),
        }
    }
    // Blocks that are also reached otherwise, as a loop's header is, must be reached tested.
    for id in passed {
        if goes_on_at(kernel, id).any(|next| passed_ways[next.index()] != ways_in[next.index()]) {
            tests[id.index()] = Some(kernel.blocks[id.index()].insts.len());
        }
    }
}

/// Registers whose values depend on what was read from memory.
struct Loaded(BTreeSet<RegId>);

impl Loaded {
    fn new() -> Self {
        Self(BTreeSet::new())
    }

    fn contains(&self, reg: RegId) -> bool {
        self.0.contains(&reg)
    }

    /// True if the test may stand behind `inst`, whose results are noted then.
    fn passes(&mut self, inst: &Inst) -> bool {
        let mut depends = false;
        inst.for_each_use(|reg| depends |= self.contains(reg));
        let accesses = matches!(inst.op, Op::Load { .. } | Op::Store { .. });
        if depends && accesses || !only_computes(inst) {
            return false;
        }
        if depends
            || accesses
                && !matches!(
                    inst.op,
                    Op::Load {
                        space: Space::Param,
                        ..
                    }
                )
        {
            inst.for_each_def(|reg| {
                self.0.insert(reg);
            });
        }
        true
    }
}

/// Successors of `id`, less those where the thread ends without doing anything.
fn goes_on_at(kernel: &Kernel, id: BbId) -> impl Iterator<Item = BbId> + '_ {
    kernel.blocks[id.index()]
        .terminator
        .successors()
        .into_iter()
        .filter(|next| !only_ends(kernel, *next))
}

/// True if the thread ends there without doing anything.
fn only_ends(kernel: &Kernel, id: BbId) -> bool {
    let block = &kernel.blocks[id.index()];
    block.insts.iter().all(only_computes) && block.terminator == Terminator::Exit
}

/// True if doing it again changes nothing, and no other thread can tell. A store to shared memory qualifies as long as
/// the thread has read nothing from there: it stores the same again.
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

    fn tests_of(text: &str, votes: bool) -> Vec<Option<usize>> {
        let kernel = hetckpt_ir::text::parse::kernel(text).unwrap();
        entry_tests(&Program::from_start(kernel), votes)
    }

    const LOADED_COUNT: &str = include_str!("../../tests/filetests/loaded_count.ir");

    #[test]
    fn tests_before_a_loaded_value_decides_anything() {
        let kernel = hetckpt_ir::text::parse::kernel(LOADED_COUNT).unwrap();
        let tests = tests_of(LOADED_COUNT, false);
        let (block, at) = tests.iter().enumerate().find_map(|(b, t)| t.map(|t| (b, t))).unwrap();
        assert_eq!(tests.iter().flatten().count(), 1);
        let insts = &kernel.blocks[block].insts;
        assert!(
            insts[..at].iter().any(|inst| matches!(inst.op, Op::Load { .. })),
            "waits with the load"
        );
        assert_eq!(at, insts.len(), "before the branch");
    }

    const EARLY_EXIT: &str = include_str!("../../tests/filetests/early_exit.ir");

    #[test]
    fn tests_behind_an_early_exit_and_the_first_load() {
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
