//! Control flow: basic blocks in their places, and what stands at their ends.

use hetckpt_abi::opencl_program::{Stops, count};
use hetckpt_ir::analysis::liveness::Liveness;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, RegId, ResumePointId, Span};
use hetckpt_ir::inst::{Guard, Op};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Width;

use super::divergent_branches::DivergentBranches;
use super::structure::{Cut, Route, Structure, Surroundings};
use super::writer::{DEEPEST_NESTING, Writer};
use super::{Error, names};

/// Where control goes at the end of a basic block.
enum End {
    /// The thread has left the region.
    Left,
    /// Always there.
    Goes(BbId),
    /// As the guard says: to the first if it holds.
    Branches { guard: Guard, ways: [BbId; 2] },
}

/// What is still to be written; a stack, so that hostile nesting is no recursion.
pub(super) enum Work {
    /// A basic block and what it leads to, in its place.
    Tree(BbId, Surroundings),
    /// The same without the loop that it may head.
    Body(BbId, Surroundings),
    /// The end of a nested statement.
    Close,
    /// A barrier at the end of a loop or of a way.
    Fence,
    /// `} else {`.
    Else,
}

impl Writer<'_> {
    /// Writes all that threads run through from the start of a basic block until they wait, stop or end.
    pub(super) fn region(&mut self, region: Option<ResumePointId>, start: BbId) -> Result<(), Error> {
        self.region = region;
        let cut = if self.together {
            Cut::Nowhere
        } else {
            Cut::WhereThreadsWait
        };
        self.structure = Structure::new(self.kernel, start, cut);
        if self.goes_in_rounds() {
            let reached = self.structure.cfg.reverse_post_order().iter();
            let blocks: Vec<BbId> = reached
                .copied()
                .filter(|id| *id != Kernel::ENTRY || start == *id)
                .collect();
            self.fetch(region, &blocks);
        }
        if !self.structure.is_reducible() {
            return self.blocks_in_a_switch(start);
        }
        let mut stack = vec![Work::Tree(start, Surroundings::default())];
        while let Some(work) = stack.pop() {
            match work {
                Work::Tree(id, around) => self.tree(id, around, &mut stack),
                Work::Body(id, around) => self.body_of(id, around, &mut stack)?,
                Work::Close => self.close(),
                Work::Fence => self.plain_line("block_barrier();"),
                Work::Else => {
                    self.depth -= 1;
                    self.plain_line("} else {");
                    self.depth += 1;
                }
            }
        }
        Ok(())
    }

    fn tree(&mut self, id: BbId, around: Surroundings, stack: &mut Vec<Work>) {
        self.label(id);
        if self.divergence.as_ref().is_some_and(|d| d.begins_with_barrier(id)) {
            self.plain_line("block_barrier();");
        }
        if !self.structure.is_header(id) {
            stack.push(Work::Body(id, around));
            return;
        }
        let after = self.structure.after_loop(id).to_vec();
        let breaks_to = after.first().copied().or(around.next);
        push_in_order(stack, &after, around);
        self.span = Span::default();
        let is_of_some = self.open_loop_of_some(id, around, breaks_to);
        if is_of_some {
            stack.push(Work::Close);
        }
        self.open("for (;;)");
        stack.push(Work::Close);
        if self.is_fenced(id) {
            stack.push(Work::Fence);
        }
        stack.push(Work::Body(
            id,
            Surroundings {
                next: Some(id),
                continues_to: Some(id),
                breaks_to,
                mask: around.mask.filter(|_| !is_of_some),
            },
        ));
    }

    /// A block's own instructions, its end, and the blocks after it.
    fn body_of(&mut self, id: BbId, around: Surroundings, stack: &mut Vec<Work>) -> Result<(), Error> {
        let inside = self.structure.inside(id).to_vec();
        let own = Surroundings {
            next: inside.first().copied().or(around.next),
            ..around
        };
        push_in_order(stack, &inside, around);
        match self.block(id, around.mask)? {
            End::Left => {}
            End::Goes(to) => self.go(id, to, own, stack),
            End::Branches { guard, ways } => self.branch(id, guard, ways, own, stack),
        }
        Ok(())
    }

    /// Instructions and end of a basic block, but for where control goes then.
    fn block(&mut self, id: BbId, mask: Option<usize>) -> Result<End, Error> {
        let kernel = self.kernel;
        let block = &kernel.blocks[id.index()];
        for (index, inst) in block.insts.iter().enumerate() {
            self.span = inst.span;
            if let (Op::Warp { .. }, true) = (&inst.op, self.together) {
                self.exchange(&inst.op, mask)?;
                self.renew_for(&block.insts[index + 1..])?;
                continue;
            }
            if let Op::Warp { probe, .. } = &inst.op {
                let probe = probe.ok_or_else(|| self.malformed("warp-level operation without probe"))?;
                self.rest_at(probe.arrive);
                return Ok(End::Left);
            }
            self.masked_inst(inst, mask)?;
        }
        self.span = block.span;
        Ok(match &block.terminator {
            Terminator::Branch {
                guard,
                taken,
                not_taken,
            } if taken != not_taken => End::Branches {
                guard: *guard,
                ways: [*taken, *not_taken],
            },
            Terminator::Branch { taken: next, .. } | Terminator::Jump(next) => End::Goes(*next),
            Terminator::Barrier {
                probe, reduction, next, ..
            } => {
                if self.together {
                    let looks = self.divergence.as_ref().is_some_and(|d| d.looks_at(id));
                    let point = probe.map(|probe| probe.arrive).filter(|_| looks);
                    self.meet(point, *reduction, mask)?;
                    self.renew_for(&kernel.blocks[next.index()].insts)?;
                    End::Goes(*next)
                } else {
                    let probe = probe.ok_or_else(|| self.malformed("barrier without probe"))?;
                    self.rest_at(probe.arrive);
                    End::Left
                }
            }
            Terminator::Exit => {
                self.end_thread();
                End::Left
            }
            Terminator::Trap => {
                self.line(format_args!("counts[{}] = 1;", count::TRAPPED));
                self.end_thread();
                End::Left
            }
            Terminator::Poll { resume_point, next } => {
                // A block looks at the pause word before it comes here for the first time.
                if *resume_point != Kernel::ENTRY_POINT {
                    self.poll(*resume_point, mask)?;
                    if self.together && !self.never_stops() {
                        self.renew_for(&kernel.blocks[next.index()].insts)?;
                    }
                }
                End::Goes(*next)
            }
        })
    }

    /// True if each thread runs a region and then waits for the others.
    pub(super) fn goes_in_rounds(&self) -> bool {
        self.stops == Stops::Blocks && !self.together
    }

    /// True if the code has no way to stop.
    pub(super) fn never_stops(&self) -> bool {
        self.options.never_stops && !self.goes_in_rounds()
    }

    /// The thread waits for others.
    fn rest_at(&mut self, point: ResumePointId) {
        self.keep(point);
        self.line(format_args!("point = {}; goto rest;", point.0));
    }

    fn end_thread(&mut self) {
        self.line(if self.goes_in_rounds() {
            "point = FINISHED; goto rest;"
        } else {
            "return;"
        });
    }

    /// The condition under which a thread is to stop.
    pub(super) fn stop_asked(&self) -> &'static str {
        if self.options.counts_looks {
            "stop_asked(pause, look_price)"
        } else {
            "*pause"
        }
    }

    /// A probe in a loop.
    fn poll(&mut self, point: ResumePointId, mask: Option<usize>) -> Result<(), Error> {
        match self.stops {
            _ if self.never_stops() => {}
            Stops::Blocks if self.together => self.meet(Some(point), None, mask)?,
            Stops::Blocks => {
                self.open(format_args!("if ({})", self.stop_asked()));
                self.rest_at(point);
                self.close();
            }
            Stops::Threads => {
                self.open(format_args!("if ({})", self.stop_asked()));
                self.leave_record(point)?;
                self.close();
            }
        }
        Ok(())
    }

    fn go(&mut self, from: BbId, to: BbId, around: Surroundings, stack: &mut Vec<Work>) {
        let route = self.structure.route(from, to, &around);
        if let Route::Here(to) = route {
            stack.push(Work::Tree(to, around));
        } else if let Some(way) = self.way(route) {
            self.line(way);
        }
    }

    fn branch(&mut self, from: BbId, guard: Guard, ways: [BbId; 2], around: Surroundings, stack: &mut Vec<Work>) {
        if self.masked_branch(from, guard, ways, around, stack) {
            return;
        }
        let [taken, not_taken] = ways;
        let (yes, no) = (self.condition(guard), self.condition(inverse(guard)));
        let route = |to| self.structure.route(from, to, &around);
        match (route(taken), route(not_taken)) {
            (Route::Here(a), Route::Here(b)) if self.only_ends(b) => self.enclose(&no, b, a, around, stack),
            (Route::Here(a), Route::Here(b)) if self.only_ends(a) => self.enclose(&yes, a, b, around, stack),
            (Route::Here(a), Route::Here(b)) if self.depth > DEEPEST_NESTING => {
                self.jump_over(&no, b);
                stack.push(Work::Tree(b, around));
                let around = Surroundings {
                    next: Some(b),
                    ..around
                };
                stack.push(Work::Tree(a, around));
            }
            (Route::Here(a), Route::Here(b)) => {
                self.open(format_args!("if ({yes})"));
                stack.push(Work::Close);
                self.push_way(from, b, around, stack);
                stack.push(Work::Else);
                self.push_way(from, a, around, stack);
            }
            (Route::Here(here), Route::Next) => self.enclose_rest(from, (&yes, here, &no), around, stack),
            (Route::Next, Route::Here(here)) => self.enclose_rest(from, (&no, here, &yes), around, stack),
            (Route::Here(here), other) => {
                self.leave_if(&no, other);
                stack.push(Work::Tree(here, around));
            }
            (other, Route::Here(here)) => {
                self.leave_if(&yes, other);
                stack.push(Work::Tree(here, around));
            }
            (first, Route::Next) => self.leave_if(&yes, first),
            (first, second) => {
                if first != Route::Next {
                    self.leave_if(&yes, first);
                }
                match self.way(second) {
                    Some(way) if first == Route::Next => self.line(format_args!("if ({no}) {way}")),
                    Some(way) => self.line(way),
                    None => {}
                }
            }
        }
    }

    /// `if (condition) { ending }`, then the other.
    fn enclose(&mut self, condition: &str, ending: BbId, other: BbId, around: Surroundings, stack: &mut Vec<Work>) {
        self.open(format_args!("if ({condition})"));
        stack.extend([Work::Tree(other, around), Work::Close, Work::Tree(ending, around)]);
    }

    /// A way inside a statement. Before it joins the others at a barrier, where the whole block goes the same way, it
    /// has one of its own ([`super::join_barriers`]).
    fn push_way(&self, from: BbId, way: BbId, around: Surroundings, stack: &mut Vec<Work>) {
        let is_fenced =
            |d: &DivergentBranches| d.is_uniform(from) && around.next.is_some_and(|next| d.begins_with_barrier(next));
        if self.divergence.as_ref().is_some_and(is_fenced) {
            stack.push(Work::Fence);
        }
        stack.push(Work::Tree(way, around));
    }

    /// `if (condition) { here }`; deep inside, a jump over it instead.
    fn enclose_rest(
        &mut self,
        from: BbId,
        (yes, here, no): (&str, BbId, &str),
        around: Surroundings,
        stack: &mut Vec<Work>,
    ) {
        let next = around.next.filter(|_| self.depth > DEEPEST_NESTING);
        if let Some(next) = next.filter(|next| around.continues_to != Some(*next)) {
            self.jump_over(no, next);
            stack.push(Work::Tree(here, around));
        } else if let Some(header) = next {
            self.leave_if(no, Route::Continue(header));
            stack.push(Work::Tree(here, around));
        } else {
            self.open(format_args!("if ({yes})"));
            stack.push(Work::Close);
            self.push_way(from, here, around, stack);
        }
    }

    pub(super) fn leave_if(&mut self, condition: &str, route: Route) {
        if let Some(way) = self.way(route) {
            self.line(format_args!("if ({condition}) {way}"));
        }
    }

    fn jump_over(&mut self, condition: &str, to: BbId) {
        self.leave_if(condition, Route::Goto(to));
    }

    /// True if a block ends the thread, and nothing else is written with it.
    fn only_ends(&self, id: BbId) -> bool {
        matches!(
            self.kernel.blocks[id.index()].terminator,
            Terminator::Exit | Terminator::Trap
        )
    }

    /// Loops with more than one entry have no statement. They become one loop over a switch, which has one entry, as
    /// compilers need it that cut kernels at barriers.
    fn blocks_in_a_switch(&mut self, start: BbId) -> Result<(), Error> {
        let order = self.structure.cfg.reverse_post_order().to_vec();
        self.span = Span::default();
        self.open(format_args!("for (uint bb = {};;)", start.0));
        self.open("switch (bb)");
        // The way from the entry to the start of a region is not the kernel's.
        let blocks = order
            .iter()
            .filter(|id| **id != Kernel::ENTRY || start == Kernel::ENTRY);
        for &id in blocks {
            self.open(format_args!("case {}:", id.0));
            match self.block(id, None)? {
                End::Left => {}
                End::Goes(next) => self.line(format_args!("bb = {};", next.0)),
                End::Branches {
                    guard,
                    ways: [taken, not_taken],
                } => {
                    let condition = self.condition(guard);
                    self.line(format_args!("bb = {condition} ? {} : {};", taken.0, not_taken.0));
                }
            }
            self.plain_line("break;");
            self.close();
        }
        self.close();
        self.close();
        Ok(())
    }

    /// Declarations of the registers; those that may be read before they are written start at zero.
    pub(super) fn declarations(&self) -> String {
        let liveness = Liveness::new(self.kernel);
        let early = liveness.live_in(Kernel::ENTRY);
        let mut used = vec![false; self.kernel.registers.len()];
        for block in &self.kernel.blocks {
            for inst in &block.insts {
                inst.for_each_use(|r| used[r.index()] = true);
                inst.for_each_def(|r| used[r.index()] = true);
            }
            block.terminator.for_each_use(|r| used[r.index()] = true);
            if let Some(r) = block.terminator.def() {
                used[r.index()] = true;
            }
        }
        let mut text = String::new();
        for width in [Width::Pred, Width::W16, Width::W32, Width::W64] {
            let names: Vec<String> = (0u32..)
                .map(RegId)
                .zip(&self.kernel.registers)
                .filter(|(r, w)| **w == width && used[r.index()])
                .map(|(r, _)| format!("{}{}", self.reg(r), if early.contains(r) { " = 0" } else { "" }))
                .collect();
            for some in names.chunks(12) {
                text.push_str(&format!("    {} {};\n", names::width_type(width), some.join(", ")));
            }
        }
        text
    }
}

pub(super) fn inverse(guard: Guard) -> Guard {
    Guard {
        negated: !guard.negated,
        ..guard
    }
}

/// Blocks one after the other; the last one goes on to what is around them all.
fn push_in_order(stack: &mut Vec<Work>, blocks: &[BbId], around: Surroundings) {
    for (i, &block) in blocks.iter().enumerate().rev() {
        let next = blocks.get(i + 1).copied().or(around.next);
        stack.push(Work::Tree(block, Surroundings { next, ..around }));
    }
}
