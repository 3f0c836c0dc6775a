//! Which scheduler has started this process.

use crate::Scheduler;
use crate::environment::Environment;
use crate::flux::Flux;
use crate::grid_engine::GridEngine;
use crate::htcondor::HtCondor;
use crate::kubernetes::Kubernetes;
use crate::lsf::Lsf;
use crate::pbs::Pbs;
use crate::slurm::Slurm;
use crate::unscheduled::Unscheduled;

/// What is known, as `--scheduler` takes it. A scheduler that runs in another's jobs comes before that one.
pub const NAMES: [&str; 8] = [
    "flux",
    "slurm",
    "htcondor",
    "pbs",
    "lsf",
    "grid-engine",
    "kubernetes",
    "none",
];

/// The scheduler whose job this environment is of.
#[must_use]
pub fn detect(environment: &Environment) -> Box<dyn Scheduler> {
    NAMES
        .iter()
        .find_map(|name| named(name, environment))
        .unwrap_or_else(|| Box::new(Unscheduled))
}

/// The scheduler of that name; `None` if the environment is not of one of its jobs, or there is none of that name.
#[must_use]
pub fn named(name: &str, environment: &Environment) -> Option<Box<dyn Scheduler>> {
    fn boxed<S: Scheduler + 'static>(found: Option<S>) -> Option<Box<dyn Scheduler>> {
        Some(Box::new(found?))
    }
    match name {
        "flux" => boxed(Flux::detect(environment)),
        "slurm" => boxed(Slurm::detect(environment)),
        "htcondor" => boxed(HtCondor::detect(environment)),
        "pbs" => boxed(Pbs::detect(environment)),
        "lsf" => boxed(Lsf::detect(environment)),
        "grid-engine" => boxed(GridEngine::detect(environment)),
        "kubernetes" => boxed(Kubernetes::detect(environment)),
        "none" => boxed(Some(Unscheduled)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_what_it_sets() {
        let of = |name, value| detect(&[(name, value)].into()).name();
        assert_eq!(of("SLURM_JOB_ID", "7"), "slurm");
        assert_eq!(of("PBS_JOBID", "7"), "pbs");
        assert_eq!(of("LSB_JOBID", "7"), "lsf");
        assert_eq!(of("FLUX_JOB_ID", "f7"), "flux");
        assert_eq!(of("KUBERNETES_SERVICE_HOST", "a"), "kubernetes");
        assert_eq!(of("JOB_ID", "7"), "none");
        assert!(
            NAMES
                .iter()
                .all(|name| named(name, &Environment::default()).is_none() || *name == "none")
        );
    }
}
