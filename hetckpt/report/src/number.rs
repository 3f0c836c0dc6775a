//! Numbers on the command line, with messages that say what was expected.

use std::str::FromStr;
use std::time::Duration;

/// What is no such number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotANumber {
    /// A process id was wanted.
    #[error("a process id is a whole number from 1 on")]
    ProcessId,
    /// How often something is to be done.
    #[error("a whole number from 1 on is expected")]
    Count,
    /// A length of time.
    #[error("a length of time is expected, such as 10s, 500ms or 2m")]
    Duration,
    /// A number of seconds or milliseconds.
    #[error("a whole number from 0 to {largest} is expected")]
    Whole {
        /// The largest that is taken.
        largest: u64,
    },
}

/// A process id.
///
/// # Errors
/// [`NotANumber::ProcessId`].
pub fn process_id(text: &str) -> Result<i32, NotANumber> {
    text.parse().ok().filter(|&pid| pid > 0).ok_or(NotANumber::ProcessId)
}

/// How often something is to be done: at least once.
///
/// # Errors
/// [`NotANumber::Count`].
pub fn count(text: &str) -> Result<u32, NotANumber> {
    text.parse().ok().filter(|&count| count > 0).ok_or(NotANumber::Count)
}

/// A whole number of 32 bits.
///
/// # Errors
/// [`NotANumber::Whole`].
pub fn whole(text: &str) -> Result<u32, NotANumber> {
    parse(text, u32::MAX.into())
}

/// A whole number of 64 bits.
///
/// # Errors
/// [`NotANumber::Whole`].
pub fn long(text: &str) -> Result<u64, NotANumber> {
    parse(text, u64::MAX)
}

/// A length of time with its unit; a number alone is seconds.
///
/// # Errors
/// [`NotANumber::Duration`].
pub fn duration(text: &str) -> Result<Duration, NotANumber> {
    let seconds = text.parse().ok().map(Duration::from_secs);
    seconds
        .or_else(|| humantime::parse_duration(text).ok())
        .ok_or(NotANumber::Duration)
}

fn parse<N: FromStr>(text: &str, largest: u64) -> Result<N, NotANumber> {
    text.parse().map_err(|_| NotANumber::Whole { largest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_said() {
        assert_eq!(process_id("12"), Ok(12));
        for text in ["0", "-3", "x", "99999999999", ""] {
            assert_eq!(process_id(text), Err(NotANumber::ProcessId), "{text}");
        }
        assert_eq!(whole("10"), Ok(10));
        assert!(whole("4294967296").is_err_and(|error| error.to_string().contains("to 4294967295 is expected")));
        assert!(long("1.5").is_err());
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("3"), duration("3s"));
        assert_eq!(duration("soon"), Err(NotANumber::Duration));
    }
}
