//! Asking the device server's program ([`hetckpt_ring::question`]), which alone has drivers and the compiler.

use hetckpt_ring::failure_code::Code;
use std::io::Write;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

use hetckpt_report::failure::Failure;
use hetckpt_report::installation::Installation;

/// Asks by `arguments` about `input`; `code` is that of a failure of which the program does not give one.
pub fn ask<A: DeserializeOwned>(code: Code, arguments: &[&str], input: &[u8]) -> Result<A, Failure> {
    let installation = Installation::find()?;
    let server = installation.require(installation.server.clone())?;
    let failed = |why: String| {
        Failure::new(
            code,
            format!("{} {} failed", server.display(), arguments.first().unwrap_or(&"")),
        )
        .note(why)
    };
    let mut child = Command::new(&server)
        .args(arguments)
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    // It reads all before it answers.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input));
    let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(told(&said).unwrap_or_else(|| failed(said.trim().to_owned())));
    }
    written.map_err(|e| failed(e.to_string()))?;
    serde_json::from_slice(&output.stdout).map_err(|e| failed(e.to_string()))
}

/// The failure that a last line `error[CODE]: message` tells.
fn told(said: &str) -> Option<Failure> {
    let (code, message) = said.trim().lines().last()?.strip_prefix("error[")?.split_once("]: ")?;
    Some(Failure::new(code.parse().ok()?, message))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_code_is_kept() {
        let failure = told("WARN something\nerror[HK0702]: the state is damaged\n").unwrap();
        assert_eq!(
            (failure.code, &*failure.message),
            (Code::Damaged, "the state is damaged")
        );
        assert!(told("killed").is_none());
    }
}
