//! Parses the query of a request.

use crate::fault::Fault;

/// The parts of a query: keys with their decoded values.
pub(crate) fn parts(query: &str) -> impl Iterator<Item = Result<(&str, String), Fault>> {
    query.split('&').filter(|part| !part.is_empty()).map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = decoded(value)
            .ok_or_else(|| Fault::bad_input(format!("{key} has a value that is no text")))?;
        Ok((key, value))
    })
}

/// 400 for a key that the route does not know.
pub(crate) fn unknown(key: &str, expected: &str) -> Fault {
    Fault::bad_input(format!("the query has '{}', expected {expected}", shown(key)))
}

/// The beginning of a given value, for messages.
pub(crate) fn shown(given: &str) -> String {
    given.chars().take(64).collect()
}

/// Decodes a value: `%2F` is a slash, and a plus a space.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (digits, behind) = behind.split_at_checked(2)?;
                let digits = std::str::from_utf8(digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = behind;
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).ok()
}
