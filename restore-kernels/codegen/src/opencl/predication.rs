//! Predicated paths: all threads walk along, and those that do not belong there do nothing
//! ([`super::divergent_branches`]).

use hetckpt_ir::analysis::reg_set::RegSet;
use hetckpt_ir::entity::{BbId, RegId};
use hetckpt_ir::inst::{Guard, Inst, Op};

use super::control::{Work, inverse};
use super::divergent_branches::{Mask, Parting};
use super::rounds::word;
use super::structure::{Route, Surroundings};
use super::writer::Writer;

impl Writer<'_> {
    /// Writes a branch that parts threads, or any branch where only some threads are. False if there is no mask and
    /// nothing to part, so that the branch is written as it is.
    pub(super) fn masked_branch(
        &mut self,
        from: BbId,
        guard: Guard,
        ways: [BbId; 2],
        around: Surroundings,
        stack: &mut Vec<Work>,
    ) -> bool {
        match self.divergence.as_ref().and_then(|d| d.parting_at(from)) {
            Some(Parting::Ends) => self.part_for_good(from, guard, ways, around, stack),
            Some(Parting::Joins(join)) => self.part(from, guard, ways, join, around, stack),
            None => return self.branch_of_some(from, guard, ways, around, stack),
        }
        true
    }

    /// Threads that end here walk on behind a mask.
    fn part_for_good(
        &mut self,
        from: BbId,
        guard: Guard,
        [taken, not_taken]: [BbId; 2],
        around: Surroundings,
        stack: &mut Vec<Work>,
    ) {
        let ends = |id: BbId| super::structure::is_bare_end(&self.kernel.blocks[id.index()]);
        let (stays, guard) = if ends(taken) {
            (not_taken, inverse(guard))
        } else {
            (taken, guard)
        };
        if !matches!(self.structure.route(from, stays, &around), Route::Here(_)) {
            self.has_no_form = true;
            return;
        }
        let outer = around.mask;
        let condition = self.condition(guard);
        let name = self.declare_mask(format!("on_{}", from.0), &condition, outer);
        let present = self.end_if_none_is_left(&name, outer, from);
        let needed = outer.map(|mask| self.masks[mask].needed.clone()).unwrap_or_default();
        let mask = self.add_mask(Mask {
            name,
            present,
            needed,
            is_for_good: true,
        });
        stack.push(Work::Tree(stays, Surroundings { mask, ..around }));
    }

    /// Counts threads that go on; without any the block ends.
    fn end_if_none_is_left(&mut self, name: &str, outer: Option<usize>, from: BbId) -> Option<String> {
        let has_lanes = self.has_warp_ops();
        let present = format!("present_{}", from.0);
        if has_lanes {
            self.plain_line(format_args!("uint {present};"));
        }
        self.plain_line("{");
        self.depth += 1;
        self.take_turn(false);
        self.plain_line(format_args!("if ({name}) now[{}] = 1;", word::VOTES));
        if has_lanes {
            let members = self.present(outer);
            self.plain_line("__local ulong *const row = lanes + (row_turn ? block_size : 0);");
            self.plain_line("row_turn = !row_turn;");
            self.plain_line(format_args!("row[thread] = {name};"));
            self.plain_line("block_barrier();");
            self.plain_line(format_args!(
                "{present} = ptx_ballot(row + (thread - lane), {members});"
            ));
        } else {
            self.plain_line("block_barrier();");
        }
        self.plain_line(format_args!("if (!now[{}]) return;", word::VOTES));
        self.close();
        has_lanes.then_some(present)
    }

    /// Threads walk along both ways.
    fn part(
        &mut self,
        from: BbId,
        guard: Guard,
        [taken, not_taken]: [BbId; 2],
        join: BbId,
        around: Surroundings,
        stack: &mut Vec<Work>,
    ) {
        let way = |to: BbId| (to != join).then_some(to);
        let mut ways = Vec::new();
        for (to, guard, other) in [(taken, guard, not_taken), (not_taken, inverse(guard), taken)] {
            let Some(to) = way(to) else { continue };
            let is_here = matches!(self.structure.route(from, to, &around), Route::Here(_));
            // Between two ways there is no jump to the join.
            let is_simple = way(other).is_none() || around.next == Some(join);
            if !is_here || !is_simple {
                self.has_no_form = true;
                return;
            }
            ways.push((to, guard, other));
        }
        let mut trees = Vec::new();
        for (to, guard, other) in ways {
            let condition = self.condition(guard);
            let name = self.declare_mask(format!("on_{}_to_{}", from.0, to.0), &condition, around.mask);
            let mut needed = around.mask.map(|m| self.masks[m].needed.clone()).unwrap_or_default();
            for id in [other, join] {
                let live = self.divergence.as_ref().map(|d| d.live_in(id).clone());
                needed.union_with(&live.unwrap_or_default());
            }
            let present = around.mask.and_then(|mask| self.masks[mask].present.clone());
            let mask = self.add_mask(Mask {
                name,
                present,
                needed,
                is_for_good: false,
            });
            trees.push(Work::Tree(to, Surroundings { mask, ..around }));
        }
        stack.extend(trees.into_iter().rev());
    }

    /// A branch where only some threads are; false if all that are left go the same way.
    fn branch_of_some(
        &mut self,
        from: BbId,
        guard: Guard,
        ways: [BbId; 2],
        around: Surroundings,
        stack: &mut Vec<Work>,
    ) -> bool {
        let Some(mask) = around.mask else { return false };
        let is_uniform = self.divergence.as_ref().is_some_and(|d| d.is_uniform(from));
        if self.masks[mask].is_for_good && is_uniform {
            return false;
        }
        let on = self.masks[mask].name.clone();
        let join = self.divergence.as_ref().and_then(|d| d.join(from));
        let inner = Surroundings { mask: None, ..around };
        let (yes, no) = (self.condition(guard), self.condition(inverse(guard)));
        let route = |to| self.structure.route(from, to, &around);
        match (ways, ways.map(route)) {
            (_, [Route::Here(a), Route::Here(b)]) if join.is_some() && around.next == join => {
                self.open(format_args!("if ({on})"));
                self.open(format_args!("if ({yes})"));
                let (a, b) = (Work::Tree(a, inner), Work::Tree(b, inner));
                stack.extend([Work::Close, Work::Close, b, Work::Else, a]);
            }
            ([_, other], [Route::Here(a), way]) if Some(other) == join => {
                self.some_go(&format!("{on} && {yes}"), a, way, inner, stack);
            }
            ([other, _], [way, Route::Here(a)]) if Some(other) == join => {
                self.some_go(&format!("{on} && {no}"), a, way, inner, stack);
            }
            (_, [way, Route::Next]) => self.leave_if(&format!("{on} && {yes}"), way),
            (_, [Route::Next, way]) => self.leave_if(&format!("{on} && {no}"), way),
            _ => self.has_no_form = true,
        }
        true
    }

    /// Those for whom the condition holds go to `here`, the others the other way.
    fn some_go(&mut self, condition: &str, here: BbId, other: Route, inner: Surroundings, stack: &mut Vec<Work>) {
        if other == Route::Next {
            self.open(format_args!("if ({condition})"));
            stack.extend([Work::Close, Work::Tree(here, inner)]);
        } else {
            self.leave_if(&format!("!({condition})"), other);
            stack.push(Work::Tree(here, inner));
        }
    }

    /// True if a loop in which no threads meet is to be gone round only by those who are there; it is opened then.
    pub(super) fn open_loop_of_some(&mut self, header: BbId, around: Surroundings, breaks_to: Option<BbId>) -> bool {
        let (Some(mask), Some(divergence)) = (around.mask, &self.divergence) else {
            return false;
        };
        if !divergence.is_loop_without_meeting(header) {
            return false;
        }
        self.has_no_form |= !divergence.leaves_loop_to(header, breaks_to);
        let on = self.masks[mask].name.clone();
        self.open(format_args!("if ({on})"));
        true
    }

    /// Writes an instruction, under the mask if it must be.
    pub(super) fn masked_inst(&mut self, inst: &Inst, mask: Option<usize>) -> Result<(), super::Error> {
        let Some(mask) = mask else { return self.inst(inst) };
        let Mask {
            name,
            needed,
            is_for_good,
            ..
        } = &self.masks[mask];
        let may_run_anyhow =
            |d: &super::divergent_branches::DivergentBranches| d.may_run_anyhow(inst, needed, *is_for_good);
        if self.divergence.as_ref().is_some_and(may_run_anyhow) {
            return self.inst(inst);
        }
        let name = name.clone();
        // So that nothing holds on to what the register held before.
        if let (Op::Load { dsts, .. }, None) = (&inst.op, inst.guard) {
            let forgotten: Vec<RegId> = dsts.iter().flatten().copied().collect();
            let mut uses = RegSet::with_capacity(self.kernel.registers.len());
            inst.for_each_use(|reg| _ = uses.insert(reg));
            for reg in forgotten {
                if !uses.contains(reg) && !self.masks[mask].needed.contains(reg) {
                    self.assign(reg, "0");
                }
            }
        }
        let start = self.num_lines();
        self.inst(inst)?;
        self.guard_lines(start, &name);
        Ok(())
    }

    /// The condition under which a thread is on the way; `None` if all are.
    pub(super) fn on(&self, mask: Option<usize>) -> Option<&str> {
        mask.map(|mask| self.masks[mask].name.as_str())
    }

    /// Lanes of the warp that have not ended.
    pub(super) fn present(&self, mask: Option<usize>) -> String {
        let known = mask.and_then(|mask| self.masks[mask].present.clone());
        known.unwrap_or_else(|| "0xffffffffu >> (32 - warp_size)".to_owned())
    }

    /// True if a thread off the way needs the register.
    pub(super) fn is_needed_elsewhere(&self, reg: RegId, mask: Option<usize>) -> bool {
        mask.is_some_and(|mask| self.masks[mask].needed.contains(reg))
    }

    fn declare_mask(&mut self, name: String, condition: &str, outer: Option<usize>) -> String {
        let outer = self.on(outer).map(|on| format!("{on} && ")).unwrap_or_default();
        self.line(format_args!("const bool {name} = {outer}{condition};"));
        name
    }

    fn add_mask(&mut self, mask: Mask) -> Option<usize> {
        self.masks.push(mask);
        Some(self.masks.len() - 1)
    }

    /// True if lanes of warps meet.
    pub(super) fn has_warp_ops(&self) -> bool {
        let mut insts = self.kernel.insts();
        insts.any(|inst| matches!(inst.op, Op::Warp { .. }))
    }
}
