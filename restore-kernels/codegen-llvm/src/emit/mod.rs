//! hetIR → LLVM IR text.
//!
//! [`module`] plans which regions there are and writes one function for each; a function is written by `region`,
//! its instructions by `inst/`, through the `function::FunctionText` that holds the text and the registers.

mod types;
mod function;
mod float_facts;
mod directed;
mod region;
mod save;
mod inst;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_ir::analysis::reg_set::RegSet;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::inst::Op;
use hetckpt_ir::kernel::{Kernel, ResumePointKind};

use self::float_facts::FloatFacts;
use self::function::float_registers;
use crate::error::CodegenError;

/// LLVM IR of a program and what was found out on the way.
#[derive(Clone, Debug)]
pub struct LlvmModule {
    /// What stands before the functions.
    head: String,
    /// The region functions. None needs another.
    functions: Vec<String>,
    /// What stands behind them: declarations and metadata.
    tail: String,
    /// Resume points that have a region function, ascending.
    pub regions: Vec<u32>,
    /// Where registers are saved.
    pub layout: ThreadStateLayout,
}

impl LlvmModule {
    /// The module's text.
    #[must_use]
    pub fn text(&self) -> String {
        self.text_of(&self.functions)
    }

    /// The same as texts of several modules: as many as hold at least `least_bytes` each, but no more than `most`.
    #[must_use]
    pub fn texts(&self, least_bytes: usize, most: usize) -> Vec<String> {
        let total: usize = self.functions.iter().map(String::len).sum();
        let count = (total / least_bytes.max(1)).clamp(1, most.max(1));
        let mut parts: Vec<&[String]> = vec![];
        let mut rest = &self.functions[..];
        let mut left = total;
        for number in 0..count {
            let share = left / (count - number);
            let mut taken = 0;
            let enough = |function: &String| {
                let is_enough = taken >= share;
                taken += function.len();
                is_enough
            };
            let end = rest.iter().position(enough).unwrap_or(rest.len());
            let (part, behind) = rest.split_at(end);
            left -= part.iter().map(String::len).sum::<usize>();
            rest = behind;
            parts.push(part);
        }
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.map(|part| self.text_of(part)).collect()
    }

    fn text_of(&self, functions: &[String]) -> String {
        let mut text = self.head.clone();
        functions.iter().for_each(|function| text.push_str(function));
        text + &self.tail
    }
}

/// Alias scopes and branch weights, by the names that the instruction writers use.
const METADATA: &str = "
!0 = distinct !{!0, !\"hetckpt\"}
!1 = distinct !{!1, !0, !\"saved threads\"}
!2 = distinct !{!2, !0, !\"shared\"}
!3 = distinct !{!3, !0, !\"local\"}
!4 = distinct !{!4, !0, !\"global\"}
!11 = !{!1}
!12 = !{!2}
!13 = !{!3}
!14 = !{!4}
!21 = !{!2, !3, !4}
!22 = !{!1, !3, !4}
!23 = !{!1, !2, !4}
!24 = !{!1, !2, !3}
!31 = !{}
!32 = !{!\"branch_weights\", i32 1, i32 1048575}
";

/// Writes the LLVM module of `program`.
///
/// # Errors
/// Any [`CodegenError`] but those of LLVM.
pub fn module(program: &Program) -> Result<LlvmModule, CodegenError> {
    let kernel = &program.kernel;
    check_ids(program)?;
    let layout = ThreadStateLayout::new(kernel);
    let starts = plan_regions(program)?;
    let facts = FloatFacts::new(kernel, &entered(program, &layout));
    let is_float = float_registers(kernel);
    let mut declarations = BTreeSet::new();
    let head = format!(
        "; kernel {}\nsource_filename = \"hetckpt\"\n",
        kernel.name.escape_default()
    );
    let mut functions = vec![];
    for &(point, block) in &starts {
        let function = region::write(kernel, &layout, &facts, &is_float, (point, block))?;
        functions.push(function.text);
        declarations.extend(function.declarations);
    }
    let mut tail = String::new();
    for declaration in declarations {
        let _ = writeln!(tail, "{declaration}");
    }
    // No `mustprogress`: a kernel may spin until another block writes a word.
    tail.push_str("attributes #0 = { nounwind null_pointer_is_valid }\n");
    tail.push_str(METADATA);
    Ok(LlvmModule {
        head,
        functions,
        tail,
        regions: starts.iter().map(|(point, _)| point.0).collect(),
        layout,
    })
}

/// Registers that have values where threads enter the kernel in its midst.
fn entered(program: &Program, layout: &ThreadStateLayout) -> RegSet {
    let mut entered = RegSet::with_capacity(program.kernel.registers.len());
    for (point, _) in program
        .entries
        .iter()
        .filter(|(point, _)| *point != Kernel::ENTRY_POINT)
    {
        if let Some(live) = layout.live.get(point.index()) {
            entered.union_with(live);
        }
    }
    entered
}

/// Start points that need a function: the program's entries and the points after the barriers and warp-level operations
/// that can be reached from them. At an `arrive` point nothing runs, so an entry there leads straight to its `leave`.
fn plan_regions(program: &Program) -> Result<Vec<(ResumePointId, BbId)>, CodegenError> {
    let kernel = &program.kernel;
    let mut starts: Vec<(ResumePointId, BbId)> = Vec::new();
    let mut seen = vec![false; kernel.blocks.len()];
    let mut work = Vec::new();
    for &(point, block) in &program.entries {
        if !is_arrive(kernel, point) {
            starts.push((point, block));
        }
        work.push(block);
    }
    while let Some(id) = work.pop() {
        if std::mem::replace(&mut seen[id.index()], true) {
            continue;
        }
        let block = &kernel.blocks[id.index()];
        let mut leave = None;
        if let Terminator::Barrier { probe, .. } = &block.terminator {
            leave = Some(probe.ok_or(CodegenError::NotProbed { block: id })?.leave);
        }
        for inst in &block.insts {
            if let Op::Warp { probe, .. } = &inst.op {
                leave = Some(probe.ok_or(CodegenError::NotProbed { block: id })?.leave);
            }
        }
        if let Some(leave) = leave
            && starts.iter().all(|(point, _)| *point != leave)
        {
            starts.push((leave, kernel.resume_points[leave.index()].block));
            work.push(kernel.resume_points[leave.index()].block);
        }
        work.extend(block.terminator.successors());
    }
    starts.sort();
    Ok(starts)
}

fn is_arrive(kernel: &Kernel, point: ResumePointId) -> bool {
    kernel
        .resume_points
        .get(point.index())
        .is_some_and(|p| matches!(p.kind, ResumePointKind::BarrierArrive | ResumePointKind::WarpArrive))
}

/// Every id in the program exists; later steps index without asking.
fn check_ids(program: &Program) -> Result<(), CodegenError> {
    let kernel = &program.kernel;
    let missing = |what: String| Err(CodegenError::NoSuchEntity { what });
    let has_block = |b: BbId| b.index() < kernel.blocks.len();
    let has_point = |p: ResumePointId| p.index() < kernel.resume_points.len();
    for &(point, block) in &program.entries {
        if !has_block(block) {
            return missing(block.to_string());
        }
        if point != Kernel::ENTRY_POINT && !has_point(point) {
            return missing(point.to_string());
        }
    }
    for point in &kernel.resume_points {
        if !has_block(point.block) {
            return missing(point.block.to_string());
        }
    }
    for block in &kernel.blocks {
        for inst in &block.insts {
            let mut bad = None;
            let mut check = |r: hetckpt_ir::entity::RegId| {
                if r.index() >= kernel.registers.len() {
                    bad = Some(r);
                }
            };
            inst.for_each_use(&mut check);
            inst.for_each_def(&mut check);
            if let Some(reg) = bad {
                return missing(reg.to_string());
            }
            if let Op::Warp { probe: Some(probe), .. } = &inst.op
                && !(has_point(probe.arrive) && has_point(probe.leave))
            {
                return missing(format!("{} or {}", probe.arrive, probe.leave));
            }
        }
        let mut bad = None;
        let mut check = |r: hetckpt_ir::entity::RegId| {
            if r.index() >= kernel.registers.len() {
                bad = Some(r);
            }
        };
        block.terminator.for_each_use(&mut check);
        block.terminator.def().into_iter().for_each(&mut check);
        if let Some(reg) = bad {
            return missing(reg.to_string());
        }
        for next in block.terminator.successors() {
            if !has_block(next) {
                return missing(next.to_string());
            }
        }
        let points = match &block.terminator {
            Terminator::Barrier { probe: Some(probe), .. } => vec![probe.arrive, probe.leave],
            Terminator::Poll { resume_point, .. } => vec![*resume_point],
            _ => vec![],
        };
        for point in points {
            if !has_point(point) {
                return missing(point.to_string());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_each_function_once_and_are_alike_in_size() {
        let kernel = "kernel \"k\" {\n  resume rp0 entry bb0\nbb0:\n  exit\n}\n";
        let kernel = hetckpt_ir::text::parse::kernel(kernel).unwrap();
        let mut module = LlvmModule {
            head: "head\n".into(),
            functions: (10..60)
                .map(|number| format!("f{number} {}\n", "x".repeat(number * 7)))
                .collect(),
            tail: "tail\n".into(),
            regions: vec![],
            layout: ThreadStateLayout::new(&kernel),
        };
        for most in 1..8 {
            let texts = module.texts(1000, most);
            assert_eq!(texts.len(), most);
            let functions: String = texts
                .iter()
                .map(|text| text.strip_prefix("head\n").unwrap().strip_suffix("tail\n").unwrap())
                .collect();
            assert_eq!(functions, module.functions.concat());
            let (least, largest) = (texts.iter().map(String::len).min(), texts.iter().map(String::len).max());
            assert!(largest.unwrap() < 2 * least.unwrap(), "{least:?}, {largest:?}");
        }
        // Too small to share.
        assert_eq!(module.texts(1 << 20, 8), [module.text()]);
        module.functions.clear();
        assert!(module.texts(1000, 8).is_empty());
    }
}
