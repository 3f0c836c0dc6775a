//! `hetckpt criu`: becomes CRIU, with `--plugin hetgpu` put into words that CRIU knows.

use hetckpt_ring::failure_code::Code;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use hetckpt_criu::locate::{self, Criu};
use hetckpt_criu::plugin_option;
use hetckpt_report::failure::Failure;
use hetckpt_report::file_size;
use hetckpt_report::installation::Installation;

use crate::arguments::CriuOptions;
use crate::output;

/// Becomes CRIU; comes back only if that fails.
pub fn run(options: &CriuOptions) -> anyhow::Result<ExitCode> {
    if locate::is_asked() {
        output::line(locate::WRAPPER_ANSWER);
        return Ok(ExitCode::SUCCESS);
    }
    let installation = Installation::find()?;
    let arguments = plugin_option::translate(&options.arguments, &installation.plugin_folder)?;
    let program = match arguments == options.arguments {
        // Whatever CRIU it is: it is to work as without us.
        true => locate::any()?,
        false => {
            if arguments.contains(&installation.plugin_folder.clone().into_os_string()) {
                installation.require(installation.plugin_folder.join(plugin_option::FILE))?;
            }
            Criu::find()?.program
        }
    };
    file_size::end_past_the_limit();
    let error = Command::new(&program).args(arguments).exec();
    Err(
        Failure::new(Code::CriuMissing, format!("cannot run {}", program.display()))
            .note(error.to_string())
            .into(),
    )
}
