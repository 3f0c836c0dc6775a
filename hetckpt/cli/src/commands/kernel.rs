//! `hetckpt kernel`: a kernel at each stage of translation, as the device server's program has it.

use hetckpt_ring::failure_code::Code;
use std::process::ExitCode;

use hetckpt_move::server_question::ask;
use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_ring::question::{NAME, TRANSLATE, Translated, Translation};

use crate::arguments::Kernel;
use crate::output;

const CODE: Code = Code::Translation;

/// Prints the kernels of a PTX file.
pub fn run(options: &Kernel) -> anyhow::Result<ExitCode> {
    let name = options.file.display();
    let text = std::fs::read_to_string(&options.file)
        .map_err(|e| Failure::new(CODE, format!("cannot read {name}")).note(e.to_string()))?;
    let stage = options.stage.as_asked().to_string();
    let wanted = options.name.as_deref().unwrap_or_default();
    let question = [TRANSLATE, &stage, NAME, wanted];
    let translation: Translation = ask(CODE, &question, text.as_bytes()).map_err(|failure| Failure {
        message: format!("{name}: {}", failure.message),
        ..failure
    })?;
    let mut shown = 0;
    for kernel in translation.kernels {
        let refused = |why| cannot_be_translated(&kernel.name).note(why);
        match kernel.result {
            Translated::Text(text) => output::lines(text),
            Translated::Refused(why) => return Err(refused(why).into()),
            Translated::Unsupported(why) => return Err(refused(why).unsupported().into()),
        }
        shown += 1;
    }
    for kernel in &translation.rejected {
        for reason in &kernel.reasons {
            remark::note(format!("kernel {}: {reason}", kernel.name));
        }
    }
    match (shown, translation.rejected.first()) {
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
