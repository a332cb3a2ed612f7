//! The query of a request, part by part.

use crate::fault::Fault;

/// The parts of a query, each with its value as text.
pub(crate) fn parts(query: &str) -> impl Iterator<Item = Result<(&str, String), Fault>> {
    query.split('&').filter(|part| !part.is_empty()).map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = decoded(value)
            .ok_or_else(|| Fault::bad_input(format!("{key} has a value that is no text")))?;
        Ok((key, value))
    })
}

/// 400 for a part that a route does not know.
pub(crate) fn unknown(key: &str, expected: &str) -> Fault {
    Fault::bad_input(format!("the query has '{}', expected {expected}", shown(key)))
}

/// So much of a value as is repeated to whoever gave it.
pub(crate) fn shown(given: &str) -> String {
    given.chars().take(64).collect()
}

/// A value of a query: `%2F` is a slash, and a plus a space.
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
