//! Inputs that were found interesting, once more.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

#[test]
fn every_kept_input_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in hetckpt_fuzz::TARGETS {
        let mut count = 0;
        for file in fs::read_dir(corpus.join(name)).unwrap() {
            target(&fs::read(file.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count > 0, "no inputs for {name}");
    }
}
