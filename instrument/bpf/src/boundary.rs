//! The libraries at which a program's calls become a driver's.

use std::path::Path;

/// File names up to `.so`, and how the names of their entry points begin.
const LIBRARIES: [(&str, &str); 15] = [
    ("libcuda", "cu"),
    ("libcuda_shim", "cu"),
    ("libOpenCL", "cl"),
    ("libnvidia-opencl", "cl"),
    ("libpocl", "cl"),
    ("libhetckpt_opencl", "cl"),
    ("libamdocl64", "cl"),
    ("libintelocl", "cl"),
    ("libigdrcl", "cl"),
    ("libMesaOpenCL", "cl"),
    ("libRusticlOpenCL", "cl"),
    ("libamdhip64", "hip"),
    ("libze_loader", "ze"),
    ("libze_intel_gpu", "ze"),
    ("libhsa-runtime64", "hsa"),
];

/// How entry points of the library at `path` begin (`cu`, `cl`, `hip`, `ze`, `hsa`); `None` if it is no driver's.
#[must_use]
pub fn prefix_of(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let (stem, _) = name.split_once(".so")?;
    LIBRARIES
        .iter()
        .find(|(library, _)| *library == stem)
        .map(|&(_, prefix)| prefix)
}

/// True of a symbol that is an entry point with `prefix`: a capital letter follows it.
#[must_use]
pub fn is_entry_point(symbol: &str, prefix: &str) -> bool {
    let mut rest = symbol.strip_prefix(prefix).unwrap_or_default().chars();
    match prefix {
        "hsa" => rest.next() == Some('_'),
        // `zesInit` and `zetInit`, tools of Level Zero, are entry points too.
        "ze" => rest
            .find(|&c| c != 's' && c != 't')
            .is_some_and(|c| c.is_ascii_uppercase()),
        _ => rest.next().is_some_and(|c| c.is_ascii_uppercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_libraries_are_known_by_their_names() {
        for (path, prefix) in [
            ("/usr/lib/libcuda.so.1", Some("cu")),
            ("/usr/lib/libcuda.so.535.104.05", Some("cu")),
            ("/usr/lib/libcudart.so.12", None),
            ("/usr/lib/libOpenCL.so.1.0.0", Some("cl")),
            ("/usr/lib/libze_loader.so.1", Some("ze")),
            ("/usr/lib/libc.so.6", None),
            ("/usr/bin/libcuda", None),
        ] {
            assert_eq!(prefix_of(Path::new(path)), prefix, "{path}");
        }
        assert!(is_entry_point("cuInit", "cu") && !is_entry_point("cudaMalloc", "cu"));
        assert!(is_entry_point("zesInit", "ze") && is_entry_point("zeInit", "ze"));
        assert!(!is_entry_point("zest", "ze") && is_entry_point("hsa_init", "hsa"));
    }
}
