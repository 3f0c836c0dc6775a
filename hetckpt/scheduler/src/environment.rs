//! The environment that a scheduler gives a job.

use std::collections::BTreeMap;

/// Names and values.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// That of this process. What is no text is left out.
    #[must_use]
    pub fn of_this_process() -> Self {
        let texts =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self(texts.collect())
    }

    /// The value of `name`, unless it is empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The number that `name` has.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.parse().ok()
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(pairs: [(&str, &str); N]) -> Self {
        Self(
            pairs
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }
}
