//! Rust source as tokens, without comments, lifetimes and the contents of literals.

/// The tokens of a source. `::` is one token, other signs are one each; a literal of text is `""`.
pub(super) fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '/' if rest.starts_with("//") => ("", rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => ("", comment(rest)),
            '\'' => quoted(rest),
            '"' => ("\"\"", text_length(rest)),
            _ if first.is_alphanumeric() || first == '_' => word(rest),
            _ if rest.starts_with("::") => ("::", 2),
            _ => (rest.get(..first.len_utf8()).unwrap_or_default(), first.len_utf8()),
        };
        if !token.is_empty() {
            tokens.push(token);
        }
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    tokens
}

/// The length of a comment in `/* */`, which may have others within it.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (begins, ends) = (rest.starts_with("/*"), rest.starts_with("*/"));
        depth += i32::from(begins) - i32::from(ends);
        at += if begins || ends { 2 } else { rest.chars().next().map_or(1, char::len_utf8) };
        if depth == 0 {
            break;
        }
    }
    at
}

/// A character in quotation marks, or a lifetime, which is no token.
fn quoted(text: &str) -> (&str, usize) {
    let mut chars = text.char_indices().skip(1);
    let (Some((_, first)), second) = (chars.next(), chars.next()) else { return ("", text.len()) };
    match second {
        // The character after a backslash may be a quotation mark.
        Some((at, escaped)) if first == '\\' => {
            let after = at + escaped.len_utf8();
            let end = text.get(after..).and_then(|rest| rest.find('\''));
            ("\"\"", end.map_or(text.len(), |end| after + end + 1))
        }
        Some((at, '\'')) => ("\"\"", at + 1),
        _ => {
            let name = text.get(1..).unwrap_or_default();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
            ("", 1 + end.unwrap_or(name.len()))
        }
    }
}

/// The length of a text in quotation marks.
fn text_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A name, a number, or a text with a prefix: `b""`, `r""`, `r#""#`.
fn word(text: &str) -> (&str, usize) {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match name {
        "b" if rest.starts_with('\'') => {
            let (token, length) = quoted(rest);
            (token, end + length)
        }
        "b" | "c" if rest.starts_with('"') => ("\"\"", end + text_length(rest)),
        "r" | "br" | "cr" => {
            let marks = rest.len() - rest.trim_start_matches('#').len();
            let Some(body) = rest.get(marks..).and_then(|rest| rest.strip_prefix('"')) else {
                return (name, end);
            };
            let close = format!("\"{}", "#".repeat(marks));
            let length = body.find(&close).map_or(body.len(), |at| at + close.len());
            ("\"\"", end + marks + 1 + length)
        }
        _ => (name, end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let cases: [(&str, &[&str]); 7] = [
            ("a::b // c\n:d", &["a", "::", "b", ":", "d"]),
            ("/* a /* b */ c */ d", &["d"]),
            ("\"a \\\" b\" c", &["\"\"", "c"]),
            ("r#\"a \" b\"# c", &["\"\"", "c"]),
            ("b\"a\" b'\\'' '\\u{e4}' 'ä' c", &["\"\"", "\"\"", "\"\"", "\"\"", "c"]),
            ("&'a T<'_>", &["&", "T", "<", ">"]),
            ("r 1_000 x", &["r", "1_000", "x"]),
        ];
        for (text, expected) in cases {
            assert_eq!(tokens(text), expected, "{text}");
        }
    }
}
