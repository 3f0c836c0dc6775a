//! Control flow: basic blocks in their places, and what stands at their ends.

use hetckpt_ir::analysis::liveness::Liveness;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, RegId, Span};
use hetckpt_ir::inst::Guard;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Width;

use super::structure::{Route, Surroundings};
use super::writer::{DEEPEST_NESTING, Writer};
use super::{Error, names};

/// What is still to be written; a stack, so that hostile nesting is no recursion.
enum Work {
    /// A basic block and what it leads to, in its place.
    Tree(BbId, Surroundings),
    /// The same without the loop that it may head.
    Body(BbId, Surroundings),
    /// The end of a nested statement.
    Close,
    /// `} else {`.
    Else,
}

impl Writer<'_> {
    /// Writes all basic blocks.
    pub(super) fn blocks(&mut self) -> Result<(), Error> {
        if !self.structure.is_reducible() {
            return self.blocks_with_gotos();
        }
        let mut stack = vec![Work::Tree(Kernel::ENTRY, Surroundings::default())];
        while let Some(work) = stack.pop() {
            match work {
                Work::Tree(id, around) => self.tree(id, around, &mut stack),
                Work::Body(id, around) => self.body_of(id, around, &mut stack)?,
                Work::Close => self.close(),
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
        if !self.structure.is_header(id) {
            stack.push(Work::Body(id, around));
            return;
        }
        let after = self.structure.after_loop(id).to_vec();
        let breaks_to = after.first().copied().or(around.next);
        push_in_order(stack, &after, around);
        self.span = Span::default();
        self.open("for (;;)");
        stack.push(Work::Close);
        stack.push(Work::Body(
            id,
            Surroundings {
                next: Some(id),
                continues_to: Some(id),
                breaks_to,
            },
        ));
    }

    /// A block's own instructions, its end, and the blocks after it.
    fn body_of(&mut self, id: BbId, around: Surroundings, stack: &mut Vec<Work>) -> Result<(), Error> {
        let kernel = self.kernel;
        let block = &kernel.blocks[id.index()];
        let inside = self.structure.inside(id).to_vec();
        let own = Surroundings {
            next: inside.first().copied().or(around.next),
            ..around
        };
        push_in_order(stack, &inside, around);
        self.come_back(id);
        for inst in &block.insts {
            self.span = inst.span;
            self.inst(inst)?;
        }
        self.span = block.span;
        self.go_absent(id);
        self.pass_by(id, own)?;
        match &block.terminator {
            Terminator::Branch {
                guard,
                taken,
                not_taken,
            } if taken != not_taken => {
                self.branch(id, *guard, [*taken, *not_taken], own, stack);
            }
            Terminator::Branch { taken: next, .. } | Terminator::Jump(next) => self.go(id, *next, own, stack),
            Terminator::Barrier { reduction, next, .. } => {
                self.barrier(*reduction);
                self.go(id, *next, own, stack);
            }
            Terminator::Exit => self.line("return;"),
            Terminator::Trap => self.trap(),
            Terminator::Poll { .. } => return Err(self.malformed("probe in a kernel without resume points")),
        }
        Ok(())
    }

    /// Threads that a branch has made absent are present again where its ways meet.
    fn come_back(&mut self, id: BbId) {
        let presence = self.presence;
        for leave in presence.leaves.values().filter(|leave| leave.back_at == Some(id)) {
            let n = leave.id;
            let mut lines = vec!["absent = false;".to_owned(), format!("away_{n} = false;")];
            for &reg in &leave.keeps {
                let name = self.reg(reg);
                lines.push(format!("{name} = {name}_kept_{n};"));
            }
            let start = self.num_lines();
            for line in lines {
                self.plain_line(line);
            }
            self.guard_lines(start, &format!("away_{n}"));
        }
    }

    /// The threads that a branch would have sent elsewhere become absent.
    fn go_absent(&mut self, id: BbId) {
        let presence = self.presence;
        let Some(leave) = presence.leaves.get(&id) else { return };
        let goes = self.condition(inverse(leave.stays));
        if leave.traps {
            self.line(format_args!("if (!absent && {goes}) *trapped = 1;"));
        }
        if leave.back_at.is_none() {
            self.line(format_args!("absent = absent || {goes};"));
            return;
        }
        let n = leave.id;
        for &reg in &leave.keeps {
            let name = self.reg(reg);
            self.line(format_args!("{name}_kept_{n} = {name};"));
        }
        self.line(format_args!("away_{n} = !absent && {goes};"));
        self.line(format_args!("absent = absent || away_{n};"));
    }

    /// Absent threads leave out what a divergent branch decides.
    fn pass_by(&mut self, id: BbId, around: Surroundings) -> Result<(), Error> {
        let presence = self.presence;
        let Some(join) = presence.facts.divergent.get(&id).filter(|_| presence.has_absent()) else {
            return Ok(());
        };
        let Some(join) = *join else {
            self.line("if (absent) return;");
            return Ok(());
        };
        match self.structure.route(id, join, &around) {
            Route::Here(_) => return Err(self.malformed("control flow")),
            // What follows is enclosed in an `if` or is another way; both are left by a jump.
            Route::Next if around.continues_to == Some(join) => self.leave_if("absent", Route::Continue),
            Route::Next => self.leave_if("absent", Route::Goto(join)),
            route => self.leave_if("absent", route),
        }
        Ok(())
    }

    /// What absent threads need to come back.
    pub(super) fn absence_declarations(&self) -> String {
        let mut text = String::new();
        if self.presence.has_absent() {
            text.push_str("    bool absent = false;\n");
        }
        for leave in self.presence.leaves.values().filter(|leave| leave.back_at.is_some()) {
            let n = leave.id;
            text.push_str(&format!("    bool away_{n} = false;\n"));
            for width in [Width::Pred, Width::W16, Width::W32, Width::W64] {
                let keeps = leave.keeps.iter().filter(|reg| self.kernel.width(**reg) == width);
                let names: Vec<String> = keeps.map(|reg| format!("{}_kept_{n} = 0", self.reg(*reg))).collect();
                if !names.is_empty() {
                    text.push_str(&format!("    {} {};\n", names::width_type(width), names.join(", ")));
                }
            }
        }
        text
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
                stack.extend([Work::Close, Work::Tree(b, around), Work::Else, Work::Tree(a, around)]);
            }
            (Route::Here(here), Route::Next) => self.enclose_rest(&yes, here, &no, around, stack),
            (Route::Next, Route::Here(here)) => self.enclose_rest(&no, here, &yes, around, stack),
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

    /// `if (condition) { here }`; deep inside, a jump over it instead.
    fn enclose_rest(&mut self, yes: &str, here: BbId, no: &str, around: Surroundings, stack: &mut Vec<Work>) {
        let next = around.next.filter(|_| self.depth > DEEPEST_NESTING);
        if let Some(next) = next.filter(|next| around.continues_to != Some(*next)) {
            self.jump_over(no, next);
            stack.push(Work::Tree(here, around));
        } else if next.is_some() {
            self.line(format_args!("if ({no}) continue;"));
            stack.push(Work::Tree(here, around));
        } else {
            self.open(format_args!("if ({yes})"));
            stack.extend([Work::Close, Work::Tree(here, around)]);
        }
    }

    fn leave_if(&mut self, condition: &str, route: Route) {
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

    fn trap(&mut self) {
        self.line(if self.presence.has_absent() {
            "if (!absent) *trapped = 1;"
        } else {
            "*trapped = 1;"
        });
        self.plain_line("return;");
    }

    /// Loops with more than one entry have no statement; without barriers, gotos will do.
    fn blocks_with_gotos(&mut self) -> Result<(), Error> {
        let kernel = self.kernel;
        let order = self.structure.cfg.reverse_post_order().to_vec();
        for &id in &order {
            let block = &kernel.blocks[id.index()];
            self.label(id);
            for inst in &block.insts {
                self.span = inst.span;
                self.inst(inst)?;
            }
            self.span = block.span;
            match &block.terminator {
                Terminator::Branch {
                    guard,
                    taken,
                    not_taken,
                } => {
                    let condition = self.condition(*guard);
                    self.jump_over(&condition, *taken);
                    let way = self.way(Route::Goto(*not_taken)).unwrap_or_default();
                    self.line(way);
                }
                Terminator::Jump(next) => {
                    let way = self.way(Route::Goto(*next)).unwrap_or_default();
                    self.line(way);
                }
                Terminator::Exit => self.line("return;"),
                Terminator::Trap => self.trap(),
                Terminator::Barrier { .. } | Terminator::Poll { .. } => {
                    return Err(Error::Irreducible {
                        kernel: kernel.name.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Declarations of the registers; those that may be read before they are written, as absent threads may read all, start
    /// at zero.
    pub(super) fn declarations(&self) -> String {
        let liveness = Liveness::new(self.kernel);
        let (early, all_early) = (liveness.live_in(Kernel::ENTRY), self.presence.has_absent());
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
                .map(|(r, _)| {
                    format!(
                        "{}{}",
                        self.reg(r),
                        if all_early || early.contains(r) { " = 0" } else { "" }
                    )
                })
                .collect();
            for some in names.chunks(12) {
                text.push_str(&format!("    {} {};\n", names::width_type(width), some.join(", ")));
            }
        }
        text
    }
}

fn inverse(guard: Guard) -> Guard {
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
