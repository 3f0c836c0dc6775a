//! The program: all of it is in the library beside it, where fuzz targets reach its parsers.

use std::process::ExitCode;

fn main() -> ExitCode {
    hetckpt::run()
}
