//! What the command line asks the device server's program, which alone has the compiler: an argument asks, standard
//! input has what it is about, and the answer comes on standard output as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Asks for the kernels of a PTX text at a [`Stage`], which follows: [`Translation`].
pub const TRANSLATE: &str = "--translate";
/// Beside [`TRANSLATE`]: only kernels whose names have in them what follows.
pub const NAME: &str = "--name";
/// Asks what a process's kernels lack on a device that has not got the features that follow, separated by commas:
/// [`Lacking`]. It is about the process's state as its file holds it.
pub const LACKING: &str = "--lacking";
/// As [`LACKING`], but only of kernels that are stopped, which takes less time.
pub const LACKING_STOPPED: &str = "--lacking-stopped";

/// Stages of translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// hetIR, as the front end lowers it.
    Ir,
    /// hetIR with probes.
    Probed,
    /// PTX with probes.
    Ptx,
    /// LLVM IR, as the CPU device compiles it.
    Llvm,
    /// OpenCL C.
    OpenCl,
    /// SPIR-V made of that, as text.
    Spirv,
}

impl Stage {
    const ALL: [Self; 6] = [Self::Ir, Self::Probed, Self::Ptx, Self::Llvm, Self::OpenCl, Self::Spirv];
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ir => "ir",
            Self::Probed => "probed",
            Self::Ptx => "ptx",
            Self::Llvm => "llvm",
            Self::OpenCl => "opencl",
            Self::Spirv => "spirv",
        })
    }
}

/// There is no such stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such stage of translation")]
pub struct NoSuchStage;

impl FromStr for Stage {
    type Err = NoSuchStage;

    fn from_str(text: &str) -> Result<Self, NoSuchStage> {
        let found = Self::ALL.into_iter().find(|stage| stage.to_string() == text);
        found.ok_or(NoSuchStage)
    }
}

/// The kernels of a PTX text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Translation {
    /// Those that the front end takes, in the text's order.
    pub kernels: Vec<TranslatedKernel>,
    /// The others.
    pub rejected: Vec<RejectedKernel>,
}

/// A kernel that the front end takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranslatedKernel {
    /// Its name.
    pub name: String,
    /// What it is at the stage.
    pub result: Translated,
}

/// What a kernel is at a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Translated {
    /// Its text.
    Text(String),
    /// Why it cannot be translated.
    Refused(String),
    /// Why this target cannot have it, or what is missing here to make it.
    Unsupported(String),
}

/// A kernel that the front end does not take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedKernel {
    /// Its name.
    pub name: String,
    /// Why.
    pub reasons: Vec<String>,
}

/// What kernels lack on a device, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacking {
    /// Kernels that are stopped.
    pub stopped: BTreeMap<String, String>,
    /// Kernels that the process may launch.
    pub others: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_read_as_it_is_written() {
        for stage in Stage::ALL {
            assert_eq!(stage.to_string().parse(), Ok(stage));
        }
        assert_eq!("hip".parse::<Stage>(), Err(NoSuchStage));
    }
}
