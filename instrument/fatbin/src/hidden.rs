//! What an image that the driver takes as it is may hold besides variables.

use std::collections::BTreeSet;

/// State that is in no variable, or addresses of functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// What it is, in words.
    pub what: String,
    /// When it is there.
    pub since: HiddenSince,
}

/// From when an image may have [`Hidden`] state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HiddenSince {
    /// Once it is loaded.
    Loading,
    /// Once any of its kernels has run.
    AnyKernel,
    /// Once one of these kernels has run.
    Kernels(BTreeSet<String>),
}

impl HiddenSince {
    /// True if it is there once those kernels have run for which `has_run` holds; `kernels` are all there are.
    pub fn is_there<'a>(&self, kernels: impl IntoIterator<Item = &'a str>, has_run: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Loading => true,
            Self::AnyKernel => kernels.into_iter().any(has_run),
            Self::Kernels(some) => some.iter().any(|kernel| has_run(kernel)),
        }
    }
}
