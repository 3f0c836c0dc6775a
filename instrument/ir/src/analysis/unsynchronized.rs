//! Reads of what other threads of the block have written, with no place between at which threads meet.
//!
//! That is a data race in CUDA's memory model. On a GPU such programs often get what they count on all the same,
//! because lanes run in step, and warps nearly so; where threads run one after another they do not. What is found are
//! three kinds of pairs of a store and a load whose addresses are sums of the thread's index and other terms
//! ([`super::linear_forms`]):
//!
//! * each thread stores at a place of its own, and one place is loaded, other than the first thread's: a thread reads
//!   for all;
//! * the load is a few places beside the store: a thread reads its neighbour's;
//! * both go through an array in loops of their own, in strides of which one is no multiple of the other, as columns
//!   are summed up of what was stored row by row.
//!
//! Loads at other indices may well be of what the thread has written itself, and are not taken for such.

use std::collections::{BTreeMap, BTreeSet};

use super::cfg::Cfg;
use super::definitions::{Definitions, Location};
use super::linear_forms::{LinearForm, LinearForms, Term};
use super::uniformity::{Divergence, Uniformity};
use crate::basic_block::Terminator;
use crate::entity::BbId;
use crate::inst::{ALL_LANES, AluOp, Inst, Op, Operand, Ordering, SpecialReg, WarpOp};
use crate::kernel::Kernel;
use crate::types::Space;

/// Kernels with more stores, or more loads, are not looked at.
const MAX_ACCESSES: usize = 512;
/// Threads that are neighbours are fewer apart.
const MAX_DISTANCE: i64 = 32;

/// Such a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsynchronizedRead {
    /// The store.
    pub store: Location,
    /// The load.
    pub load: Location,
    /// Shared or global.
    pub space: Space,
}

/// All of a kernel, by load, one store each.
#[must_use]
pub fn find(kernel: &Kernel) -> Vec<UnsynchronizedRead> {
    let (mut stores, mut loads) = (vec![], vec![]);
    let definitions = Definitions::new(kernel);
    let forms = LinearForms::new(kernel, &definitions);
    for (block, inst, at) in accesses(kernel) {
        let (list, access) = match &inst.op {
            Op::Store {
                space: space @ (Space::Shared | Space::Global),
                ty,
                addr,
                srcs,
                ..
            } => (&mut stores, (*space, addr, ty.size_bytes() as usize * srcs.len())),
            Op::Load {
                space: space @ (Space::Shared | Space::Global),
                ordering: Ordering::Weak | Ordering::Volatile,
                ty,
                addr,
                dsts,
            } => (&mut loads, (*space, addr, ty.size_bytes() as usize * dsts.len())),
            _ => continue,
        };
        let (space, addr, size_bytes) = access;
        list.push(Access {
            at,
            space,
            form: forms.address(addr),
            size_bytes: size_bytes as i64,
            block,
            guard: inst.guard.map(|guard| guard.pred),
        });
        if list.len() > MAX_ACCESSES {
            return vec![];
        }
    }
    if stores.is_empty() || loads.is_empty() {
        return vec![];
    }
    let uniformity = Uniformity::new(kernel, &definitions);
    let search = Search {
        kernel,
        uniformity: &uniformity,
        definitions: &definitions,
        forms: &forms,
    };
    let pairs = loads.iter().map(|load| {
        let others = stores
            .iter()
            .enumerate()
            .filter(|(_, store)| search.are_of_others(store, load));
        (load, others.map(|(index, _)| index).collect::<Vec<_>>())
    });
    let pairs: Vec<_> = pairs.filter(|(_, others)| !others.is_empty()).collect();
    if pairs.is_empty() {
        return vec![];
    }
    let index_of: BTreeMap<Location, usize> = stores
        .iter()
        .enumerate()
        .map(|(index, store)| (store.at, index))
        .collect();
    let since_met = since_met(kernel, &index_of);
    let found = pairs.into_iter().filter_map(|(load, others)| {
        let pending = &since_met[&load.at.block];
        let pending = before(kernel, load.at, pending, &index_of);
        let store = others.into_iter().find(|store| pending[*store])?;
        Some(UnsynchronizedRead {
            store: stores[store].at,
            load: load.at,
            space: load.space,
        })
    });
    found.collect()
}

fn accesses(kernel: &Kernel) -> impl Iterator<Item = (BbId, &Inst, Location)> {
    kernel.iter_blocks().flat_map(|(block, contents)| {
        let insts = contents.insts.iter().enumerate();
        insts.map(move |(index, inst)| (block, inst, Location { block, index }))
    })
}

struct Access {
    at: Location,
    space: Space,
    form: LinearForm,
    size_bytes: i64,
    block: BbId,
    guard: Option<crate::entity::RegId>,
}

struct Search<'a> {
    kernel: &'a Kernel,
    uniformity: &'a Uniformity,
    definitions: &'a Definitions,
    forms: &'a LinearForms<'a>,
}

impl Search<'_> {
    /// True if what a thread loads may be what another one has stored, as far as the addresses' forms tell.
    fn are_of_others(&self, store: &Access, load: &Access) -> bool {
        if store.space != load.space || !self.are_of_one_variable(store, load) {
            return false;
        }
        let (own, read) = (self.of_thread(&store.form), self.of_thread(&load.form));
        let apart = load.form.clone().plus(&store.form, -1);
        if read.is_empty() && !own.is_empty() {
            // The first thread's place is mostly read by that thread, as a tree of sums ends. It is the first to write,
            // too, where threads run one after another.
            let apart = own
                .iter()
                .fold(apart, |apart, (term, by)| apart.plus(&Self::of_term(term), *by));
            return apart.as_constant() != Some(0);
        }
        let Some(apart) = apart.as_constant() else {
            return self.are_in_other_strides(&own, &read);
        };
        if own.is_empty() {
            let overlap = apart < store.size_bytes && -apart < load.size_bytes;
            return overlap && self.is_by_some(store);
        }
        let stride = own
            .values()
            .fold(0, |gcd, coefficient| greatest_common_divisor(gcd, *coefficient));
        apart != 0 && apart % stride == 0 && (apart / stride).abs() < MAX_DISTANCE
    }

    /// True if a counter of a loop leads through what is loaded in strides of which one is no multiple of those by
    /// which another leads through what is stored.
    fn are_in_other_strides(&self, own: &BTreeMap<Term, i64>, read: &BTreeMap<Term, i64>) -> bool {
        let (own, read) = (self.strides(own), self.strides(read));
        let least = own
            .iter()
            .filter_map(LinearForm::as_constant)
            .fold(0, greatest_common_divisor);
        let differs = |stride: &LinearForm| match stride.as_constant() {
            Some(stride) => least != 0 && stride % least != 0,
            None => !own.contains(stride),
        };
        !own.is_empty() && read.iter().any(differs)
    }

    /// What is added to the only counter of a loop among these terms, in elements; none if there is more than one, or
    /// something else.
    fn strides(&self, terms: &BTreeMap<Term, i64>) -> BTreeSet<LinearForm> {
        let mut counters = terms.keys();
        let (Some(Term::Register(counter)), None) = (counters.next(), counters.next()) else {
            return BTreeSet::new();
        };
        let added = self.definitions.of(*counter).iter().filter_map(|at| {
            let Op::Alu {
                op: AluOp::Add,
                ty,
                srcs,
                ..
            } = &at.inst(self.kernel)?.op
            else {
                return None;
            };
            let is_counter = |src: &Operand| *src == Operand::Reg(*counter);
            let other = srcs.iter().find(|src| !is_counter(src))?;
            let stride = self.forms.operand(*other, *ty);
            srcs.iter().any(is_counter).then_some(stride)
        });
        added.collect()
    }

    fn of_term(term: &Term) -> LinearForm {
        LinearForm {
            terms: BTreeMap::from([(term.clone(), 1)]),
            constant: 0,
        }
    }

    /// The terms that differ from thread to thread.
    fn of_thread(&self, form: &LinearForm) -> BTreeMap<Term, i64> {
        let differs = |term: &Term| match term {
            Term::Special(special) => matches!(special, SpecialReg::Tid(_) | SpecialReg::LaneId | SpecialReg::WarpId),
            Term::Register(reg) => self.uniformity.register(*reg) != Divergence::BlockUniform,
            Term::Param(_) | Term::Variable(_) => false,
            Term::Unwritten(address) => !self.of_thread(address).is_empty(),
        };
        let terms = form.terms.iter().filter(|(term, _)| differs(term));
        terms.map(|(term, coefficient)| (term.clone(), *coefficient)).collect()
    }

    /// True if not all threads of the block execute it.
    fn is_by_some(&self, access: &Access) -> bool {
        let guard = access.guard.map(|pred| self.uniformity.register(pred));
        let level = guard
            .into_iter()
            .fold(self.uniformity.control(access.block), Divergence::max);
        level != Divergence::BlockUniform
    }

    fn are_of_one_variable(&self, store: &Access, load: &Access) -> bool {
        if store.space == Space::Shared {
            let variable = |access: &Access| {
                let holds = |v: &&crate::kernel::Variable| {
                    let from = access.form.constant - i64::from(v.offset);
                    (0..i64::from(v.size_bytes)).contains(&from)
                };
                self.kernel.shared.variables.iter().find(holds).map(|v| v.offset)
            };
            // An offset before the variable's start, as a neighbour's has, says nothing.
            return variable(store).zip(variable(load)).is_none_or(|(a, b)| a == b);
        }
        let root = |form: &LinearForm| {
            let is_root = |term: &Term| matches!(term, Term::Param(_) | Term::Variable(_) | Term::Unwritten(_));
            form.terms
                .iter()
                .find(|(term, by)| is_root(term) && **by == 1)
                .map(|(term, _)| term.clone())
        };
        let of_store = root(&store.form);
        of_store.is_some() && of_store == root(&load.form)
    }
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    match b {
        0 => a.abs(),
        _ => greatest_common_divisor(b, a % b),
    }
}

/// Stores, by index, that may have been executed since the threads last met.
type Pending = Vec<bool>;

/// At the start of each basic block: forward data flow.
fn since_met(kernel: &Kernel, index_of: &BTreeMap<Location, usize>) -> BTreeMap<BbId, Pending> {
    let none = vec![false; index_of.len()];
    let mut at_starts: BTreeMap<BbId, Pending> = kernel.iter_blocks().map(|(id, _)| (id, none.clone())).collect();
    let cfg = Cfg::new(kernel);
    let mut changed = true;
    while changed {
        changed = false;
        for &id in cfg.reverse_post_order() {
            let block = &kernel.blocks[id.index()];
            let end = Location {
                block: id,
                index: block.insts.len(),
            };
            let pending = match block.terminator {
                Terminator::Barrier { .. } => continue,
                _ => before(kernel, end, &at_starts[&id], index_of),
            };
            for next in block.terminator.successors() {
                for (there, here) in at_starts.entry(next).or_default().iter_mut().zip(&pending) {
                    changed |= *here && !*there;
                    *there |= *here;
                }
            }
        }
    }
    at_starts
}

/// Before the instruction at `at`, from what it is at its block's start.
fn before(kernel: &Kernel, at: Location, start: &Pending, index_of: &BTreeMap<Location, usize>) -> Pending {
    let mut pending = start.clone();
    for (index, inst) in kernel.blocks[at.block.index()].insts[..at.index].iter().enumerate() {
        if is_meeting(inst) {
            pending.fill(false);
        }
        let here = Location { block: at.block, index };
        if let Some(store) = index_of.get(&here) {
            pending[*store] = true;
        }
    }
    pending
}

/// True if the lanes of a warp meet there, or go on in step.
#[must_use]
pub fn is_meeting(inst: &Inst) -> bool {
    let is_for_all =
        matches!(&inst.op, Op::Warp { op, mask: Operand::Imm(ALL_LANES), .. } if *op != WarpOp::ActiveMask);
    is_for_all && inst.guard.is_none()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::find;

    /// Pairs found, as instructions of `bb0`. `%r1` is four times the thread's index, `%r2` an argument.
    fn pairs(body: &str) -> Vec<(usize, usize)> {
        let text = format!(
            "kernel \"k\" {{\n  param \"n\" at 0 size 4 align 4\n  shared 8192\n  shared_var \"a\" at 0 size 4096\n\
             shared_var \"b\" at 4096 size 4\n  reg %r0..%r9 w32\n  reg %r10 pred\n  reg %r11 w64\nbb0:\n\
             special %r0, tid_x\n  shl.b32 %r1, %r0, 2\n  ld.param.u32 %r2, [0]\n{body}  exit\n}}\n"
        );
        let kernel = crate::text::parse::kernel(&text).unwrap();
        find(&kernel)
            .iter()
            .map(|read| (read.store.index, read.load.index))
            .collect()
    }

    #[test]
    fn a_neighbours_value_is_another_threads() {
        let read = |at: &str| pairs(&format!("  st.shared.u32 [%r1], 1\n  ld.shared.u32 %r3, [{at}]\n"));
        assert_eq!(read("%r1+4"), [(3, 4)]);
        assert_eq!(read("%r1-124"), [(3, 4)]);
        assert_eq!(read("4"), [(3, 4)]);
        // Its own; a part of another record; a column of its own, perhaps; another variable; the first thread's.
        for own in ["%r1", "%r1+2", "%r1+128", "4096", "0"] {
            assert_eq!(read(own), [], "{own}");
        }
    }

    #[test]
    fn strides_come_from_arithmetic() {
        let address = "  mad.s32 %r4, %r0, 12, %r2\n";
        let read = |at: &str| {
            pairs(&format!(
                "{address}  st.shared.u32 [%r4], 1\n  ld.shared.u32 %r3, [{at}]\n"
            ))
        };
        assert_eq!(read("%r4+12"), [(4, 5)]);
        assert_eq!(read("%r4+4"), []);
        // One place, which threads have not found apart from each other.
        assert_eq!(read("%r2+12"), [(4, 5)]);
    }

    #[test]
    fn one_threads_value_is_another_threads_if_not_all_write_it() {
        let store = "  st.shared.u32 [4096], %r0\n  ld.shared.u32 %r3, [4096]\n";
        assert_eq!(pairs(store), []);
        let by_some = "  setp.eq.u32 %r10, %r0, 7\n  @%r10 st.shared.u32 [4096], %r0\n  ld.shared.u32 %r3, [4096]\n";
        assert_eq!(pairs(by_some), [(4, 5)]);
    }

    #[test]
    fn columns_are_others_of_what_was_stored_row_by_row() {
        // Loops over an array whose address is found in memory that nobody writes.
        let found = |by: &str| {
            let text = format!(
                "kernel \"k\" {{\n  param \"n\" at 0 size 4 align 4\n  reg %r0..%r9 w32\n  reg %r10 pred\n\
                 reg %r11..%r16 w64\nbb0:\n  special %r0, tid_x\n  ld.param.u32 %r2, [0]\n  mov.u32 %r3, %r0\n\
                 jump bb1\nbb1:\n  ld.global.nc.u64 %r11, [64]\n  mul_wide.u32 %r12, %r3, 4\n\
                 add.u64 %r13, %r12, %r11\n  st.global.u32 [%r13], 1\n  add.u32 %r3, %r3, 256\n\
                 setp.lt.u32 %r10, %r3, 999\n  br %r10, bb1, bb2\nbb2:\n  mov.u32 %r4, %r0\n  jump bb3\nbb3:\n\
                 ld.global.nc.u64 %r14, [64]\n  mul_wide.u32 %r15, %r4, 4\n  add.u64 %r16, %r15, %r14\n\
                 ld.global.u32 %r5, [%r16]\n  add.u32 %r4, {by}, %r4\n  setp.lt.u32 %r10, %r4, 999\n\
                 br %r10, bb3, bb4\nbb4:\n  exit\n}}\n"
            );
            find(&crate::text::parse::kernel(&text).unwrap()).len()
        };
        assert_eq!(found("%r2"), 1);
        assert_eq!(found("40"), 1);
        assert_eq!(found("256"), 0);
        assert_eq!(found("512"), 0);
    }

    #[test]
    fn nothing_is_found_behind_a_meeting() {
        let behind = |meeting: &str| {
            pairs(&format!(
                "  st.shared.u32 [%r1], 1\n{meeting}  ld.shared.u32 %r3, [%r1+4]\n"
            ))
        };
        assert_eq!(behind("  warp.sync _|_ mask 0xffffffff\n"), []);
        assert_eq!(behind("  warp.step _|_ mask 0xffffffff\n"), []);
        assert_eq!(behind("  barrier 0 next bb1\nbb1:\n"), []);
        assert_eq!(behind("  warp.sync _|_ mask 0xf\n"), [(3, 5)]);
    }

    #[test]
    fn global_memory_is_known_by_its_argument() {
        let text = "  ld.param.u64 %r11, [8]\n  st.global.u32 [%r11+64], %r0\n  ld.global.u32 %r3, [%r11]\n";
        assert_eq!(pairs(text), []);
    }
}
