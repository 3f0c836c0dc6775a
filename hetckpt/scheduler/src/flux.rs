//! Flux: it sends a signal before the time limit (`--signal=USR1@60s`), to the batch script and its jobs. It neither
//! preempts jobs nor queues them again, so a job that goes on has another id: it takes `--name`.
//!
//! # Source
//! flux-batch(1), flux-environment(7).

use crate::environment::Environment;
use crate::question::QuestionError;
use crate::{Requeue, Scheduler};

/// A job of Flux's.
#[derive(Debug)]
pub struct Flux {
    num_tasks: u32,
}

impl Flux {
    /// The job of that environment; `None` if it is of none.
    #[must_use]
    pub fn detect(environment: &Environment) -> Option<Self> {
        environment.get("FLUX_JOB_ID")?;
        Some(Self {
            num_tasks: environment.number("FLUX_JOB_SIZE").unwrap_or(1),
        })
    }
}

impl Scheduler for Flux {
    fn name(&self) -> &'static str {
        "flux"
    }

    fn requeue(&self) -> Result<Requeue, QuestionError> {
        Ok(Requeue::ByHand(
            "Flux queues no job again: submit it again with the same --name".into(),
        ))
    }

    fn refusal(&self) -> Option<String> {
        let text = "the job has several tasks, and a snapshot is of one process tree: start them by `hetckpt job -- mpirun …`, as one task";
        (self.num_tasks > 1).then(|| text.into())
    }

    fn variable_prefixes(&self) -> &'static [&'static str] {
        &["FLUX_"]
    }
}
