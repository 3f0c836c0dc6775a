//! Kubernetes: a pod that is deleted, to make room or for another reason, gets SIGTERM at its process 1, and SIGKILL
//! when `terminationGracePeriodSeconds` are over. What started the pod (a Job, a JobSet, Kueue) makes another.
//!
//! The pod's name changes with each run, so the job's name comes from the manifest, by `HETCKPT_JOB_NAME`.
//!
//! # Source
//! <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/>; indexed Jobs: `JOB_COMPLETION_INDEX`.

use crate::environment::Environment;
use crate::{Scheduler, plain};

/// A pod.
#[derive(Debug)]
pub struct Kubernetes {
    name: Option<String>,
}

impl Kubernetes {
    /// The pod of that environment; `None` if it is of none.
    #[must_use]
    pub fn detect(environment: &Environment) -> Option<Self> {
        environment.get("KUBERNETES_SERVICE_HOST")?;
        let index = environment.get("JOB_COMPLETION_INDEX");
        let name = environment.get("HETCKPT_JOB_NAME").map(|name| match index {
            Some(index) => plain(&format!("{name}-{index}")),
            None => plain(name),
        });
        Some(Self { name })
    }
}

impl Scheduler for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn job_name(&self) -> Option<String> {
        self.name.clone()
    }

    fn variable_prefixes(&self) -> &'static [&'static str] {
        &["KUBERNETES_", "JOB_COMPLETION_INDEX", "HOSTNAME"]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn indexes_of_a_job_are_told_apart() {
        let host = ("KUBERNETES_SERVICE_HOST", "10.0.0.1");
        let name = ("HETCKPT_JOB_NAME", "train");
        let of = |index| Kubernetes::detect(&[host, name, ("JOB_COMPLETION_INDEX", index)].into()).unwrap();
        assert_eq!(of("3").job_name().unwrap(), "train-3");
        assert_eq!(of("").job_name().unwrap(), "train");
        assert_eq!(Kubernetes::detect(&[host].into()).unwrap().job_name(), None);
        assert!(Kubernetes::detect(&[name].into()).is_none());
    }
}
