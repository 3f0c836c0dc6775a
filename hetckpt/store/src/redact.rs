//! Takes secrets out of texts that others have made: messages of a store or of a connection.

use std::env;
use std::error::Error;

/// What the library for object stores, or the store itself, has said, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Told {
    text: String,
}

/// Longest text that is passed on, characters.
const MAX_TEXT: usize = 500;
/// Variables of the environment that may hold a secret begin so.
const PREFIXES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];
/// Variables of these whose values are no secrets.
const PUBLIC: [&str; 6] = [
    "REGION",
    "ENDPOINT",
    "ALLOW_HTTP",
    "BUCKET",
    "ACCOUNT_NAME",
    "CONTAINER_NAME",
];
/// Shorter values would be found everywhere.
const MIN_SECRET: usize = 4;

/// What `error` and its causes say, without secrets.
pub(crate) fn told(error: &dyn Error) -> Told {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text += &format!(": {more}");
        }
        cause = next.source();
    }
    let secrets = env::vars().filter(|(name, value)| is_secret(name) && value.len() >= MIN_SECRET);
    Told {
        text: without(&text, secrets.map(|(_, value)| value).collect()),
    }
}

fn is_secret(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !PUBLIC.iter().any(|public| name.ends_with(public))
}

/// `text` without `secrets`, without queries of URLs, which may be signed, and not too long.
fn without(text: &str, mut secrets: Vec<String>) -> String {
    // One may be a part of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut text = text.to_owned();
    for secret in secrets {
        text = text.replace(&secret, "…");
    }
    let mut left = String::with_capacity(text.len());
    let mut is_in_query = false;
    for c in text.chars() {
        is_in_query = match c {
            '?' => true,
            _ if c.is_whitespace() || matches!(c, ')' | '"' | '<' | '>') => false,
            _ => is_in_query,
        };
        if !is_in_query {
            left.push(if c.is_control() { ' ' } else { c });
        }
    }
    // What a server says of a signature that it does not accept.
    for tag in [
        "StringToSign",
        "AWSAccessKeyId",
        "SignatureProvided",
        "CanonicalRequest",
        "StringToSignBytes",
        "CanonicalRequestBytes",
    ] {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        while let Some(start) = left.find(&open) {
            let end = left[start..]
                .find(&close)
                .map_or(left.len(), |end| start + end + close.len());
            left.replace_range(start..end, "…");
        }
    }
    match left.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &left[..end]),
        None => left,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out() {
        let text = "GET http://h/b?X-Amz-Signature=5ec2e7 failed (key SECRET-1 of AKIA): <StringToSign>AWS4\nabc</StringToSign>";
        let secrets = ["SECRET", "SECRET-1"].map(str::to_owned).to_vec();
        assert_eq!(without(text, secrets), "GET http://h/b failed (key … of AKIA): …");
        assert!(without(&"é".repeat(1000), vec![]).chars().count() <= MAX_TEXT + 1);
    }

    #[test]
    fn what_is_secret_goes_by_the_variables_name() {
        assert!(is_secret("AWS_SECRET_ACCESS_KEY") && is_secret("AZURE_STORAGE_SAS_KEY"));
        assert!(!is_secret("AWS_REGION") && !is_secret("PATH"));
    }
}
