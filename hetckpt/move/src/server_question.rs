//! Asking the device server's program ([`hetckpt_ring::question`]), which alone has drivers and the compiler.

use std::io::Write;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

use hetckpt_report::failure::Failure;
use hetckpt_report::installation::Installation;

/// Asks by `arguments` about `input`; `code` is that of a failure of which the program does not give one.
pub fn ask<A: DeserializeOwned>(code: &str, arguments: &[&str], input: &[u8]) -> Result<A, Failure> {
    let installation = Installation::find()?;
    let server = installation.require(installation.server.clone())?;
    let failed = |why: String| Failure::new(code, format!("{} cannot tell", server.display())).note(why);
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
        return Err(told(&String::from_utf8_lossy(&output.stderr)).unwrap_or_else(failed));
    }
    written.map_err(|e| failed(e.to_string()))?;
    serde_json::from_slice(&output.stdout).map_err(|e| failed(e.to_string()))
}

/// The failure in a last line `error[CODE]: message`, else what was said.
fn told(said: &str) -> Result<Failure, String> {
    let said = said.trim();
    let told = said
        .lines()
        .last()
        .and_then(|line| line.strip_prefix("error[")?.split_once("]: "));
    told.map_or_else(
        || Err(said.to_owned()),
        |(code, message)| Ok(Failure::new(code, message)),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_code_is_kept() {
        let failure = told("WARN something\nerror[HK0702]: the state is damaged\n").unwrap();
        assert_eq!((&*failure.code, &*failure.message), ("HK0702", "the state is damaged"));
        assert_eq!(told("killed").unwrap_err(), "killed");
    }
}
