//! Which files an archive carries.

use std::path::Path;

use clap::ValueEnum;

/// Which of the files that the processes map go into the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bundle {
    /// None: the node of the restore must have them all, at the same paths.
    None,
    /// Those that the packages of a distribution do not bring: all but what lies in /usr (without /usr/local), /lib,
    /// /bin and /sbin. The node of the restore must run the same version of the same distribution.
    Missing,
    /// All of them, the C library too: they are used where the node has none or others.
    All,
}

/// Where packages of a distribution put programs and libraries.
const OF_PACKAGES: [&str; 7] = ["/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin"];

/// What is below these but of no package.
const OF_NO_PACKAGE: &str = "/usr/local";

impl Bundle {
    /// True if the file at `path` goes into the archive.
    pub fn takes(self, path: &Path) -> bool {
        match self {
            Self::None => false,
            Self::Missing => {
                path.starts_with(OF_NO_PACKAGE) || !OF_PACKAGES.iter().any(|folder| path.starts_with(folder))
            }
            Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_is_what_no_package_brings() {
        for path in [
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
            "/usr/bin/python3",
        ] {
            assert!(!Bundle::Missing.takes(Path::new(path)), "{path}");
        }
        for path in [
            "/usr/local/lib/hetckpt/libcuda.so.1",
            "/opt/x",
            "/home/a/x",
            "/library/x",
            "/tmp/x",
        ] {
            assert!(Bundle::Missing.takes(Path::new(path)), "{path}");
            assert!(Bundle::All.takes(Path::new(path)) && !Bundle::None.takes(Path::new(path)));
        }
        assert!(Bundle::All.takes(Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6")));
    }
}
