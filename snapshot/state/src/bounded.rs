//! Lists and texts in JSON that are no longer than they can be: what is more is refused before there is memory for it.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Most characters of a message about a text that is not what it ought to be.
const MESSAGE_CHARS: usize = 200;

/// What is wrong with a text, in words that are fit to print: parsers repeat what they have found, however long and
/// whatever is in it.
#[must_use]
pub fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let mut message: String = text.chars().take(MESSAGE_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MESSAGE_CHARS).is_some() {
        message.push('…');
    }
    // Quotes need no escape where nobody parses it.
    message.replace("\\\"", "\"").replace("\\'", "'")
}

/// A list of at most `MOST` elements, for `#[serde(deserialize_with)]`.
///
/// # Errors
/// As deserialising, and if there are more.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(List::<T, MOST>(PhantomData))
}

struct List<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MOST} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = vec![];
        while let Some(element) = elements.next_element()? {
            if list.len() == MOST {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            list.push(element);
        }
        Ok(list)
    }
}

/// A map with at most `MOST` keys, for `#[serde(deserialize_with)]`.
///
/// # Errors
/// As deserialising, and if there are more.
pub fn map<'de, D, K, V, const MOST: usize>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
{
    deserializer.deserialize_map(Map::<K, V, MOST>(PhantomData))
}

struct Map<K, V, const MOST: usize>(PhantomData<(K, V)>);

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>, const MOST: usize> Visitor<'de> for Map<K, V, MOST> {
    type Value = BTreeMap<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MOST} keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, value)) = entries.next_entry()? {
            if map.len() == MOST {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            map.insert(key, value);
        }
        Ok(map)
    }
}

/// A text of at most `MOST` bytes, for `#[serde(deserialize_with)]`.
///
/// # Errors
/// As deserialising, and if it is longer.
pub fn text<'de, D: Deserializer<'de>, const MOST: usize>(deserializer: D) -> Result<String, D::Error> {
    deserializer.deserialize_str(Text::<MOST>)
}

/// A list of at most `MOST` texts of at most `MOST_BYTES` bytes each, for `#[serde(deserialize_with)]`.
///
/// # Errors
/// As deserialising, and if there are more, or longer ones.
pub fn texts<'de, D: Deserializer<'de>, const MOST: usize, const MOST_BYTES: usize>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_seq(Texts::<MOST, MOST_BYTES>)
}

struct Texts<const MOST: usize, const MOST_BYTES: usize>;

impl<'de, const MOST: usize, const MOST_BYTES: usize> Visitor<'de> for Texts<MOST, MOST_BYTES> {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MOST} texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = vec![];
        while let Some(element) = elements.next_element_seed(Text::<MOST_BYTES>)? {
            if list.len() == MOST {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            list.push(element);
        }
        Ok(list)
    }
}

struct Text<const MOST: usize>;

impl<'de, const MOST: usize> DeserializeSeed<'de> for Text<MOST> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        text::<D, MOST>(deserializer)
    }
}

impl<const MOST: usize> Visitor<'_> for Text<MOST> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text of at most {MOST} bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match text.len() > MOST {
            true => Err(E::invalid_length(text.len(), &self)),
            false => Ok(text.to_owned()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn messages_are_short_and_fit_to_print() {
        #[derive(Debug, serde::Deserialize)]
        enum Known {
            One,
        }

        let hostile = format!("\"\\u001b[2J\\u202e{}\"", "x".repeat(1 << 20));
        let found = message(&serde_json::from_str::<Known>(&hostile).unwrap_err());
        assert!(found.starts_with("unknown variant `\\u{1b}[2J\\u{202e}xxx"), "{found}");
        assert!(found.len() < 300, "{}", found.len());
        let found = message(&serde_json::from_str::<u32>("\"a\"").unwrap_err());
        assert_eq!(found, "invalid type: string \"a\", expected u32 at line 1 column 3");
        assert!(matches!(serde_json::from_str("\"One\"").unwrap(), Known::One));
    }
}
