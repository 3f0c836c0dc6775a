//! `hetckpt kernel`: a kernel at each stage of translation, as the device server's program has it.

use hetckpt_ring::failure_code::Code;
use std::process::ExitCode;

use hetckpt_move::server_question::ask;
use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_ring::question::{TRANSLATE, Translated, Translation};

use crate::arguments::Kernel;
use crate::output;

const CODE: Code = Code::Translation;

/// Prints the kernels of a PTX file.
pub fn run(options: &Kernel) -> anyhow::Result<ExitCode> {
    let name = options.file.display();
    let text = std::fs::read(&options.file)
        .map_err(|e| Failure::new(CODE, format!("cannot read {name}")).note(e.to_string()))?;
    let stage = options.stage.as_asked().to_string();
    let translation: Translation = ask(CODE, &[TRANSLATE, &stage], &text)?;
    let wanted = |kernel: &str| options.name.as_ref().is_none_or(|name| kernel.contains(name.as_str()));
    let mut shown = 0;
    for kernel in translation.kernels.into_iter().filter(|kernel| wanted(&kernel.name)) {
        let refused = |why| cannot_be_translated(&kernel.name).note(why);
        match kernel.result {
            Translated::Text(text) => output::lines(text),
            Translated::Refused(why) => return Err(refused(why).into()),
            Translated::Unsupported(why) => return Err(refused(why).unsupported().into()),
        }
        shown += 1;
    }
    let rejected: Vec<_> = translation
        .rejected
        .iter()
        .filter(|kernel| wanted(&kernel.name))
        .collect();
    for kernel in &rejected {
        for reason in &kernel.reasons {
            remark::note(format!("kernel {}: {reason}", kernel.name));
        }
    }
    match (shown, rejected.first()) {
        (0, Some(kernel)) => {
            let why = kernel.reasons.join("; ");
            Err(cannot_be_translated(&kernel.name).note(why).unsupported().into())
        }
        (0, None) => Err(Failure::new(CODE, format!("{name} has no such kernel")).into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn cannot_be_translated(kernel: &str) -> Failure {
    Failure::new(CODE, format!("kernel {kernel} cannot be translated"))
}
