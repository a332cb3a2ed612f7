//! Removes private data from texts: secrets, by their form or their field's name, and the names of this account and
//! machine.

use crate::settings;
use regex::Regex;
use serde_json::Value;
use std::borrow::Cow;
use std::path::PathBuf;

/// The replacement of a secret.
const REMOVED: &str = "[removed]";

/// The forms of secrets, and the replacement of each.
const PATTERNS: &[(&str, &str)] = &[
    // API keys and links that sign in.
    (r"lgp_[A-Za-z0-9_]{6,}", REMOVED),
    // Join tokens.
    (r"LGP1\.[A-Za-z0-9.]+", REMOVED),
    (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", "$1 [removed]"),
    // Names and passwords in addresses.
    (r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@'\x22]*@", "$1[removed]@"),
    (r"(?s)-----BEGIN [A-Z0-9 ]+-----.*?(-----END [A-Z0-9 ]+-----|\z)", REMOVED),
    // `password=…`, `token: …`, `"secret":"…"`.
    (
        r#"(?i)((?:password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|credential)[a-z_]*["']?\s*[=:]\s*["']?)[^\s"'&,;}\]]+"#,
        "$1[removed]",
    ),
    // AWS access keys.
    (r"\b(AKIA|ASIA)[A-Z0-9]{16}\b", REMOVED),
];

/// Parts of the names of fields and variables with secret values.
const NAMES: &[&str] = &[
    "password",
    "passwd",
    "secret",
    "token",
    "credential",
    "authorization",
    "api_key",
    "apikey",
    "access_key",
    "private_key",
    "key_pem",
    "cert_pem",
    "radeon_key",
    "headers",
];

/// The patterns and texts that are removed.
pub(crate) struct Redactor {
    patterns: Vec<(Regex, &'static str)>,
    /// Texts that are replaced wherever they stand, the longest first.
    known: Vec<(String, &'static str)>,
    /// Names that are replaced as whole words.
    words: Vec<(Regex, &'static str)>,
}

impl Redactor {
    /// Removes the keys in these files and in the environment, and the names of account and machine.
    pub(crate) fn new(keys: impl Iterator<Item = PathBuf>) -> Self {
        let mut secrets = vec![settings::environment("RADEON_KEY")];
        secrets.extend(keys.map(|path| crate::secret::from_file("read", &path).ok()));
        let home = std::env::var("HOME").ok();
        let user = ["USER", "LOGNAME"].into_iter().find_map(settings::environment);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self::of(secrets.into_iter().flatten(), home.as_deref(), user.as_deref(), Some(&host))
    }

    /// The same with no path of any folder, for texts that are published.
    pub(crate) fn without_places() -> Self {
        let mut all = Self::new(std::iter::empty());
        let path = Regex::new(r#"(^|[\s'"(=])/[^\s'"():,;]+"#);
        all.words.extend(path.ok().map(|path| (path, "${1}[path]")));
        all
    }

    fn of(
        secrets: impl Iterator<Item = String>,
        home: Option<&str>,
        user: Option<&str>,
        host: Option<&str>,
    ) -> Self {
        let compiled =
            |(pattern, left): &(&str, &'static str)| Some((Regex::new(pattern).ok()?, *left));
        let mut known: Vec<(String, &'static str)> = secrets
            .map(|secret| (secret.trim().to_owned(), REMOVED))
            .chain(home.map(|home| (home.trim_end_matches('/').to_owned(), "~")))
            .collect();
        // Shorter texts would match inside unrelated words.
        known.retain(|(text, _)| text.len() > 4 && text != "/root");
        known.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        let word = |text: &str, left| {
            let is_name =
                text.len() > 1 && !["root", "localhost", "user", "nobody"].contains(&text);
            // It matches in `ann.service` and `/run/ann`, but not in `annex`.
            let pattern = is_name.then(|| format!(r"\b{}\b", regex::escape(text)))?;
            Some((Regex::new(&pattern).ok()?, left))
        };
        let names = [(host, "HOST"), (user, "USER")];
        let mut words: Vec<_> =
            names.iter().filter_map(|(text, left)| word((*text)?, *left)).collect();
        // Homes of others, which logs may name.
        words.extend(
            Regex::new(r"(/home/|/Users/)[^/\s:;,'\x22)]+").ok().map(|homes| (homes, "${1}USER")),
        );
        Self { patterns: PATTERNS.iter().filter_map(compiled).collect(), known, words }
    }

    /// A text with private data removed.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut text = Cow::Borrowed(text);
        for (known, left) in &self.known {
            if text.contains(known) {
                text = Cow::Owned(text.replace(known, left));
            }
        }
        for (pattern, left) in self.patterns.iter().chain(&self.words) {
            if pattern.is_match(&text) {
                text = Cow::Owned(pattern.replace_all(&text, *left).into_owned());
            }
        }
        text.into_owned()
    }

    /// A value with private data removed from names and texts, and without values of fields named like a secret.
    pub(crate) fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                let field = |(name, value): (String, Value)| {
                    let value = match value {
                        Value::String(text) if is_secret(&name) && !text.is_empty() => {
                            Value::String(REMOVED.to_owned())
                        }
                        other => self.value(other),
                    };
                    (self.text(&name), value)
                };
                fields.into_iter().map(field).collect()
            }
            other => other,
        }
    }
}

/// Whether a field of this name holds a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn redactor() -> Redactor {
        let secrets = ["plain-secret-of-a-file\n".to_owned()].into_iter();
        Redactor::of(secrets, Some("/home/ann"), Some("ann"), Some("farm7"))
    }

    #[test]
    fn all_patterns_are_sound() {
        assert_eq!(redactor().patterns.len(), PATTERNS.len());
        assert_eq!(redactor().words.len(), 3);
    }

    #[test]
    fn what_is_planted_is_not_found_again() {
        let redactor = redactor();
        for (text, expected) in [
            ("key lgp_k1abcdef_0123456789abcdef end", "key [removed] end"),
            ("join with LGP1.ab12.cd34.", "join with [removed]"),
            ("Authorization: Bearer abc.def-123", "Authorization: Bearer [removed]"),
            ("postgres://joe:hunter2@db:5432/x", "postgres://[removed]@db:5432/x"),
            ("etcd://a:b@h1,nats://c:d@h2", "etcd://[removed]@h1,nats://[removed]@h2"),
            ("sslmode=x&password=hunter2&y=1", "sslmode=x&password=[removed]&y=1"),
            ("{\"api_key\":\"hunter2\"}", "{\"api_key\":\"[removed]\"}"),
            (
                "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\nrest",
                "[removed]\nrest",
            ),
            ("AKIAABCDEFGHIJKLMNOP", "[removed]"),
            ("the file has plain-secret-of-a-file", "the file has [removed]"),
            ("/home/ann/.local/share and /home/bob/x", "~/.local/share and /home/USER/x"),
            ("ann@farm7: annex", "USER@HOST: annex"),
            ("http://127.0.0.1:8000 and 10.0.0.5", "http://127.0.0.1:8000 and 10.0.0.5"),
            ("tokens a second: 12", "tokens a second: 12"),
        ] {
            assert_eq!(redactor.text(text), expected, "{text}");
        }
    }

    #[test]
    fn values_are_taken_out_by_their_names_too() {
        let given = json!({
            "RADEON_KEY": "xyz", "password": "hunter2", "control": "postgres://u:p@h/d",
            "OTEL_EXPORTER_OTLP_HEADERS": "a=b", "tokens": 7, "list": ["/home/ann/x"], "secret": "",
            "ann": 1,
        });
        let expected = json!({
            "RADEON_KEY": REMOVED, "password": REMOVED, "control": "postgres://[removed]@h/d",
            "OTEL_EXPORTER_OTLP_HEADERS": REMOVED, "tokens": 7, "list": ["~/x"], "secret": "",
            "USER": 1,
        });
        assert_eq!(redactor().value(given), expected);
    }
}
