//! The list of passes that make a kernel stoppable.

use hetckpt_ir::entity::BbId;
use hetckpt_ir::inst::{Op, WarpOp};
use hetckpt_ir::kernel::Kernel;

use crate::error::Error;
use crate::fuel::Fuel;
use crate::loop_plan::How;
use crate::options::Options;
use crate::report::{LoopProbe, LoopReport, Report, Unprobed};
use crate::{
    count_down, count_down_irreducible, entry_probe, loop_plan, split_barriers, split_warp_ops, strip_mine_loops,
    unroll_with_exits, warp_masks, warp_probe_polls,
};

/// Looks whether `kernel` can be probed.
///
/// # Errors
/// The kernel has been probed already, or has no code.
pub fn check_input(kernel: &Kernel) -> Result<(), Error> {
    if !kernel.resume_points.is_empty() {
        return Err(Error::AlreadyProbed {
            kernel: kernel.name.clone(),
        });
    }
    if kernel.blocks.is_empty() {
        return Err(Error::NoCode {
            kernel: kernel.name.clone(),
        });
    }
    Ok(())
}

/// The probed kernel of `kernel`, and what was done.
///
/// # Errors
/// As [`check_input`]; and [`Error::Invalid`].
pub fn run(kernel: &Kernel, options: &Options) -> Result<(Kernel, Report), Error> {
    check_input(kernel)?;
    let mut kernel = kernel.clone();
    let mut report = Report {
        unprobed: unprobed(&kernel),
        ..Report::default()
    };

    entry_probe::run(&mut kernel);
    validate(&kernel, "entry_probe")?;
    if report.unprobed == Some(Unprobed::AsyncCopies) {
        split_warp_ops::run(&mut kernel);
        return Ok((kernel, report));
    }
    report.num_barriers = split_barriers::run(&mut kernel);
    validate(&kernel, "split_barriers")?;
    report.num_warp_ops = split_warp_ops::run(&mut kernel);
    validate(&kernel, "split_warp_ops")?;
    if report.unprobed.is_none() {
        report.num_irreducible = count_down_irreducible::run(&mut kernel, options.budget_insts);
        validate(&kernel, "count_down_irreducible")?;
    }
    probe_loops(&mut kernel, options, &mut report)?;
    warp_probe_polls::run(&mut kernel);
    validate(&kernel, "warp_probe_polls")?;
    Ok((kernel, report))
}

/// Probes the loops, each as planned.
fn probe_loops(kernel: &mut Kernel, options: &Options, report: &mut Report) -> Result<(), Error> {
    let (mut nest, plan) = loop_plan::plan(kernel, options);
    if report.unprobed.is_some() {
        for planned in &plan {
            report
                .loops
                .push(loop_report(kernel, nest.header(planned.id), LoopProbe::None));
        }
        return Ok(());
    }
    let mut fuels = vec![None; nest.ids().count()];
    for planned in &plan {
        let root = planned.root;
        if matches!(planned.how, How::CountDown { .. }) && fuels[root.0].is_none() {
            fuels[root.0] = Some(Fuel::new(kernel, &mut nest, root, options.budget_insts));
        }
    }
    for planned in &plan {
        let fuel: Option<Fuel> = fuels[planned.root.0];
        let probe = match (&planned.how, fuel) {
            (How::StripMine(loop_plan), fuel) => {
                strip_mine_loops::run(kernel, &mut nest, planned.id, loop_plan, fuel, planned.work);
                validate(kernel, "strip_mine_loops")?;
                LoopProbe::StripMined { chunk: loop_plan.chunk }
            }
            (How::CountDown { factor }, Some(fuel)) => {
                unroll_with_exits::run(kernel, &mut nest, planned.id, *factor);
                validate(kernel, "unroll_with_exits")?;
                count_down::run(
                    kernel,
                    &mut nest,
                    planned.id,
                    fuel,
                    planned.work.saturating_mul(*factor),
                );
                validate(kernel, "count_down")?;
                if *factor > 1 {
                    LoopProbe::Unrolled { factor: *factor }
                } else {
                    LoopProbe::CountedDown
                }
            }
            (How::CountDown { .. }, None) => LoopProbe::None,
            (How::HasBarrier, _) => LoopProbe::HasBarrier,
        };
        report.loops.push(loop_report(kernel, nest.header(planned.id), probe));
    }
    Ok(())
}

fn loop_report(kernel: &Kernel, header: BbId, probe: LoopProbe) -> LoopReport {
    let block = &kernel.blocks[header.index()];
    let line = block.insts.first().map_or(block.span.line, |inst| inst.span.line);
    LoopReport { header, line, probe }
}

/// Why no loop of the kernel may poll, if so.
fn unprobed(kernel: &Kernel) -> Option<Unprobed> {
    let insts = || kernel.insts();
    let is_async =
        |op: &Op| matches!(op, Op::Opaque { text, .. } if text.contains("async") || text.contains("mbarrier"));
    if insts().any(|inst| is_async(&inst.op)) {
        return Some(Unprobed::AsyncCopies);
    }
    let is_partial = |op: &Op| {
        matches!(
            op,
            Op::Warp {
                op: WarpOp::ActiveMask,
                ..
            }
        )
    };
    if insts().any(|inst| is_partial(&inst.op)) || !warp_masks::all_full(kernel) {
        return Some(Unprobed::PartialWarpMask);
    }
    None
}

/// In debug builds: checks a pass's result against hetIR's rules.
fn validate(kernel: &Kernel, pass: &'static str) -> Result<(), Error> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    hetckpt_ir::validate::kernel(kernel).map_err(|error| Error::Invalid {
        kernel: kernel.name.clone(),
        pass,
        reason: error.to_string(),
    })
}
