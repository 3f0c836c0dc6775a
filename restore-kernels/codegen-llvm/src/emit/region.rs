//! One region: the loop over its threads, and the basic blocks that they run through.
//!
//! Threads are walked row by row, so that inside a row `%tid.x` is a plain induction variable that LLVM can vectorise
//! over; `%tid.y` and `%tid.z` are constant there. Registers are variables that start as 0 for each thread (PTX leaves
//! them undefined; a constant keeps one thread's values from reaching the next); `mem2reg` makes values of them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use hetckpt_abi::cpu_block::{CpuBlock, region_symbol};
use hetckpt_abi::thread_state::{FINISHED, ThreadStateLayout};
use hetckpt_ir::analysis::reg_set::RegSet;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, RegId, ResumePointId};
use hetckpt_ir::inst::Op;
use hetckpt_ir::kernel::Kernel;

use super::float_facts::{FloatFacts, Form};
use super::function::FunctionText;
use super::inst;
use crate::error::CodegenError;

/// A finished function and the declarations it needs.
pub struct RegionText {
    /// `define … { … }`.
    pub text: String,
    /// `declare`s, and definitions of small functions.
    pub declarations: BTreeSet<String>,
}

/// Fields of [`CpuBlock`] that every region reads once, as name, type and offset.
const FIELDS: [(&str, &str, usize); 20] = {
    use std::mem::offset_of;
    let (block, grid, index) = (
        offset_of!(CpuBlock, block_dim),
        offset_of!(CpuBlock, grid_dim),
        offset_of!(CpuBlock, block_index),
    );
    [
        ("global", "ptr", offset_of!(CpuBlock, global)),
        ("pause", "ptr", offset_of!(CpuBlock, pause)),
        ("params", "ptr", offset_of!(CpuBlock, params)),
        ("points", "ptr", offset_of!(CpuBlock, resume_points)),
        ("registers", "ptr", offset_of!(CpuBlock, registers)),
        ("shared", "ptr", offset_of!(CpuBlock, shared)),
        ("locals", "ptr", offset_of!(CpuBlock, local)),
        ("trapped", "ptr", offset_of!(CpuBlock, trapped)),
        ("num.threads", "i32", offset_of!(CpuBlock, num_threads)),
        ("dynamic.shared", "i32", offset_of!(CpuBlock, dynamic_shared_bytes)),
        ("ntid.x", "i32", block),
        ("ntid.y", "i32", block + 4),
        ("ntid.z", "i32", block + 8),
        ("nctaid.x", "i32", grid),
        ("nctaid.y", "i32", grid + 4),
        ("nctaid.z", "i32", grid + 8),
        ("ctaid.x", "i32", index),
        ("ctaid.y", "i32", index + 4),
        ("ctaid.z", "i32", index + 8),
        ("reserved", "i32", offset_of!(CpuBlock, reserved)),
    ]
};

/// Start of the loops over rows and threads; the thread's own code follows.
const LOOP_HEAD: &str = "
  %first.x = urem i32 %first, %ntid.x
  %first.row = udiv i32 %first, %ntid.x
  %first.y = urem i32 %first.row, %ntid.y
  %first.z = udiv i32 %first.row, %ntid.y
  %any = icmp ult i32 %first, %end
  br i1 %any, label %row, label %done
row:
  %row.t = phi i32 [ %first, %entry ], [ %row.t.next, %row.next ]
  %row.x = phi i32 [ %first.x, %entry ], [ 0, %row.next ]
  %tid.y = phi i32 [ %first.y, %entry ], [ %tid.y.next, %row.next ]
  %tid.z = phi i32 [ %first.z, %entry ], [ %tid.z.next, %row.next ]
  %row.left = sub nuw i32 %end, %row.t
  %row.room = sub nuw i32 %ntid.x, %row.x
  %row.short = icmp ult i32 %row.left, %row.room
  %row.n = select i1 %row.short, i32 %row.left, i32 %row.room
  %row.x.end = add nuw i32 %row.x, %row.n
  %row.t0 = sub i32 %row.t, %row.x
  br label %thread
thread:
  %tid.x = phi i32 [ %row.x, %row ], [ %tid.x.next, %thread.next ]
  %t = add nuw nsw i32 %row.t0, %tid.x
  %t64 = zext i32 %t to i64
  %my.point = getelementptr inbounds i32, ptr %points, i64 %t64
";

/// End of the loops.
const LOOP_TAIL: &str = "thread.next:
  %tid.x.next = add nuw nsw i32 %tid.x, 1
  %row.more = icmp ult i32 %tid.x.next, %row.x.end
  br i1 %row.more, label %thread, label %row.next
row.next:
  %row.t.next = add nuw i32 %row.t, %row.n
  %y.plus = add nuw i32 %tid.y, 1
  %y.wraps = icmp eq i32 %y.plus, %ntid.y
  %z.plus = add nuw i32 %tid.z, 1
  %tid.y.next = select i1 %y.wraps, i32 0, i32 %y.plus
  %tid.z.next = select i1 %y.wraps, i32 %z.plus, i32 %tid.z
  %more = icmp ult i32 %row.t.next, %end
  br i1 %more, label %row, label %done
done:
  ret void
}
";

/// Writes the region function of `point`, whose threads start at `block`.
pub fn write(
    kernel: &Kernel,
    layout: &ThreadStateLayout,
    facts: &FloatFacts,
    is_float: &[bool],
    (point, block): (ResumePointId, BbId),
) -> Result<RegionText, CodegenError> {
    let mut region = Region {
        f: FunctionText::new(kernel, facts, is_float),
        kernel,
        layout,
        kept: RegSet::default(),
        touched: RegSet::default(),
    };
    let reachable = region.reachable(block);
    region.look_at(point, &reachable);
    region.thread_start(point, block)?;
    for id in reachable {
        region.basic_block(id)?;
    }
    let f = region.f;
    let mut text = format!(
        "define void @{}(ptr noalias readonly captures(none) %ctx, i32 %first, i32 %end) #0 {{\nentry:\n",
        region_symbol(point.0)
    );
    // Of large kernels a region uses few registers, and there are many regions.
    let mut zeros = String::new();
    for reg in f.used() {
        let (i, storage) = (reg.0, f.storage(reg));
        let _ = writeln!(
            text,
            "  %r{i} = alloca {storage}, align {}",
            kernel.width(reg).size_bytes()
        );
        let zero = match storage {
            "float" | "double" => "0.0",
            _ => "0",
        };
        let _ = writeln!(zeros, "  store {storage} {zero}, ptr %r{i}");
        if is_either(facts, reg) {
            let _ = writeln!(text, "  %n{i} = alloca i1");
            let _ = writeln!(zeros, "  store i1 false, ptr %n{i}");
        }
    }
    for (name, ty, offset) in FIELDS {
        let _ = writeln!(text, "  %{name}.at = getelementptr inbounds i8, ptr %ctx, i64 {offset}");
        let _ = writeln!(text, "  %{name} = load {ty}, ptr %{name}.at, !invariant.load !31");
    }
    text.push_str("  %num.threads64 = zext i32 %num.threads to i64\n");
    text.push_str(&f.prologue);
    text.push_str(LOOP_HEAD);
    text.push_str(&zeros);
    text.push_str(&f.body);
    text.push_str(LOOP_TAIL);
    Ok(RegionText {
        text,
        declarations: f.declarations,
    })
}

pub(super) struct Region<'k> {
    pub(super) f: FunctionText<'k>,
    pub(super) kernel: &'k Kernel,
    pub(super) layout: &'k ThreadStateLayout,
    /// Registers that were saved where the region's threads start and that it does not write: still saved where they
    /// stop.
    pub(super) kept: RegSet,
    /// Registers that it reads or writes.
    pub(super) touched: RegSet,
}

impl Region<'_> {
    /// Basic blocks that threads reach from `start` without waiting for others, in order of discovery.
    fn reachable(&self, start: BbId) -> Vec<BbId> {
        let mut seen = vec![false; self.kernel.blocks.len()];
        let mut order = Vec::new();
        let mut work = vec![start];
        while let Some(id) = work.pop() {
            if std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            order.push(id);
            let block = &self.kernel.blocks[id.index()];
            let waits = matches!(block.terminator, Terminator::Barrier { .. })
                || block
                    .insts
                    .iter()
                    .any(|i| matches!(i.op, Op::Warp { .. }) && i.guard.is_none());
            if !waits {
                work.extend(block.terminator.successors());
            }
        }
        order
    }

    /// Finds out what the blocks `reachable` do with registers.
    fn look_at(&mut self, point: ResumePointId, reachable: &[BbId]) {
        let num_registers = self.kernel.registers.len();
        self.touched = RegSet::with_capacity(num_registers);
        let mut written = RegSet::with_capacity(num_registers);
        for id in reachable {
            let block = &self.kernel.blocks[id.index()];
            for inst in &block.insts {
                inst.for_each_use(|reg| _ = self.touched.insert(reg));
                inst.for_each_def(|reg| _ = written.insert(reg));
            }
            block.terminator.for_each_use(|reg| _ = self.touched.insert(reg));
            if let Some(reg) = block.terminator.def() {
                written.insert(reg);
            }
        }
        self.touched.union_with(&written);
        self.kept = self.live_at(point);
        written.iter().for_each(|reg| self.kept.remove(reg));
    }

    fn thread_start(&mut self, point: ResumePointId, block: BbId) -> Result<(), CodegenError> {
        if self.kernel.local.size_bytes > 0 {
            let offset = self.f.def(format!("mul i64 %t64, {}", self.kernel.local.size_bytes));
            self.f
                .put(format!("%local = getelementptr inbounds i8, ptr %locals, i64 {offset}"));
        }
        self.load_saved(point)?;
        self.f.put(format!("br label %{block}"));
        Ok(())
    }

    fn basic_block(&mut self, id: BbId) -> Result<(), CodegenError> {
        let block = &self.kernel.blocks[id.index()];
        self.f.begin(&id.to_string());
        for inst in &block.insts {
            let Op::Warp { probe, .. } = &inst.op else {
                inst::write(&mut self.f, inst)?;
                continue;
            };
            let probe = probe.ok_or(CodegenError::NotProbed { block: id })?;
            let Some(guard) = inst.guard else {
                // The rest of the block belongs to the region that starts at `leave`.
                return self.stop_at(probe.arrive);
            };
            let (take_part, pass_by) = (self.f.label(), self.f.label());
            inst::branch(&mut self.f, guard, &take_part, &pass_by);
            self.f.begin(&take_part);
            self.stop_at(probe.arrive)?;
            self.f.begin(&pass_by);
        }
        match &block.terminator {
            Terminator::Jump(next) => self.f.put(format!("br label %{next}")),
            Terminator::Branch {
                guard,
                taken,
                not_taken,
            } => {
                inst::branch(&mut self.f, *guard, &taken.to_string(), &not_taken.to_string());
            }
            Terminator::Exit => self.rest(FINISHED),
            Terminator::Trap => {
                self.f.put("store atomic i32 1, ptr %trapped monotonic, align 4");
                self.rest(FINISHED);
            }
            Terminator::Barrier { probe, .. } => {
                self.stop_at(probe.ok_or(CodegenError::NotProbed { block: id })?.arrive)?;
            }
            // The device looks at the pause word itself before it starts a block.
            Terminator::Poll { resume_point, next } if *resume_point == Kernel::ENTRY_POINT => {
                self.f.put(format!("br label %{next}"));
            }
            Terminator::Poll { resume_point, next } => {
                let word = self.f.def("load atomic i32, ptr %pause monotonic, align 4");
                let asked = self.f.def(format!("icmp ne i32 {word}, 0"));
                let stop = self.f.label();
                self.f
                    .put(format!("br i1 {asked}, label %{stop}, label %{next}, !prof !32"));
                self.f.begin(&stop);
                self.stop_at(*resume_point)?;
            }
        }
        Ok(())
    }
}

/// True if the register has a flag.
fn is_either(facts: &FloatFacts, reg: RegId) -> bool {
    facts.form(reg) == Form::Either
}
