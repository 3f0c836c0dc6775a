//! Kernels to generate: those of the front end's tests, and those of the test programs if they have been built.

use std::collections::BTreeMap;
use std::path::Path;

use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::bind_globals;

/// PTX texts and where they come from.
fn texts() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![
        root.join("instrument/ptx/tests/filetests"),
        root.join("instrument/interp/src/cases"),
        root.join("target/e2e/ptx"),
    ];
    folders.extend(std::env::var_os("HETCKPT_TEST_PTX_DIR").map(Into::into));
    let mut texts = Vec::new();
    for folder in folders {
        let Ok(files) = std::fs::read_dir(&folder) else {
            continue;
        };
        let source = folder
            .parent()
            .and_then(Path::file_name)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        for path in files
            .flatten()
            .map(|file| file.path())
            .filter(|p| p.extension().is_some_and(|e| e == "ptx"))
        {
            let name = format!("{source}-{}", path.file_stem().unwrap().to_string_lossy());
            texts.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    texts.sort();
    texts
}

/// Kernels and where they come from, their variables bound to made-up addresses.
pub fn all() -> Vec<(String, Kernel)> {
    let mut all = Vec::new();
    for (file, text) in texts() {
        let Ok(module) = hetckpt_ptx::lower_module(&text) else {
            continue;
        };
        let addresses: BTreeMap<String, u64> = module
            .globals
            .iter()
            .zip(1u64..)
            .map(|(g, i)| (g.name.clone(), 0x2000_0000_0000 + (i << 20)))
            .collect();
        for mut kernel in module.kernels {
            if bind_globals(&mut kernel, &addresses).is_ok() {
                all.push((file.clone(), kernel));
            }
        }
    }
    all
}

/// The same with probes; those that cannot have any are left out.
pub fn probed() -> Vec<(String, Kernel)> {
    let options = hetckpt_probes::options::Options::default();
    let probe = |(file, kernel)| Some((file, hetckpt_probes::probe(&kernel, &options).ok()?));
    all().into_iter().filter_map(probe).collect()
}
