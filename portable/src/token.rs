//! Tokens of the language, and how text is cut into them.

use crate::Error;
use std::rc::Rc;

/// A token and its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// The line in the source; of what a macro gives, the line of the macro's use.
    pub(crate) line: u32,
    /// Whether the first on its line: only such a `#` begins a directive.
    pub(crate) first: bool,
    /// Whether nothing stands between it and the token before it: `#define f(x)` takes arguments, `#define f (x)` none.
    pub(crate) joined: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Name(Rc<str>),
    /// A number as it is written.
    Number(Rc<str>),
    /// The text in a string, which only `_Pragma` and directives have.
    Text(Rc<str>),
    Punct(&'static str),
}

/// Longer ones first, because they are tried in order.
const PUNCTUATION: &[&str] = &[
    "<<=", ">>=", "##", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<", ">>",
    "<=", ">=", "==", "!=", "&&", "||", "#", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<",
    ">", "=", "?", ":", ";", ",", ".", "(", ")", "[", "]", "{", "}",
];

impl Token {
    pub(crate) fn is(&self, punctuation: &str) -> bool {
        matches!(&self.kind, Kind::Punct(own) if *own == punctuation)
    }

    pub(crate) fn name(&self) -> Option<&str> {
        match &self.kind {
            Kind::Name(name) => Some(name),
            _ => None,
        }
    }

    /// The token as it was written.
    pub(crate) fn text(&self) -> &str {
        match &self.kind {
            Kind::Name(text) | Kind::Number(text) | Kind::Text(text) => text,
            Kind::Punct(text) => text,
        }
    }
}

/// Cuts `text` into tokens; its first line has the number `line`.
pub(crate) fn tokens(text: &str, mut line: u32) -> Result<Vec<Token>, Error> {
    let bytes = text.as_bytes();
    let (mut at, mut first, mut joined) = (0, true, false);
    let mut found = Vec::new();
    while at < bytes.len() {
        let rest = &text[at..];
        let skipped = blank(rest, line)?;
        if skipped > 0 {
            let gap = &rest[..skipped];
            line += u32::try_from(gap.matches('\n').count()).unwrap_or(u32::MAX);
            // A line that ends in a backslash goes on in the next one; so does one that ends within a comment.
            first |= gap == "\n";
            joined = false;
            at += skipped;
            continue;
        }
        let (kind, length) = token(rest, line)?;
        found.push(Token { kind, line, first, joined });
        (first, joined) = (false, true);
        at += length;
    }
    Ok(found)
}

/// The bytes of white space, of one line's end, or of a comment at the start of `rest`.
fn blank(rest: &str, line: u32) -> Result<usize, Error> {
    if rest.starts_with("\\\n") {
        return Ok(2);
    }
    if rest.starts_with("//") {
        return Ok(rest.find('\n').unwrap_or(rest.len()));
    }
    if let Some(comment) = rest.strip_prefix("/*") {
        let end = comment.find("*/").ok_or_else(|| Error::new(line, "the comment has no end"))?;
        return Ok(end + 4);
    }
    Ok(rest.chars().next().filter(|first| first.is_ascii_whitespace()).map_or(0, char::len_utf8))
}

fn token(rest: &str, line: u32) -> Result<(Kind, usize), Error> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let first = rest.chars().next().unwrap_or(' ');
    let second = rest[first.len_utf8()..].chars().next().unwrap_or(' ');
    if first.is_ascii_digit() || first == '.' && second.is_ascii_digit() {
        let mut before = ' ';
        let hexadecimal = rest.starts_with("0x") || rest.starts_with("0X");
        let goes_on = |c: char| {
            let sign = !hexadecimal && matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
            before = c;
            word(c) || c == '.' || sign
        };
        let length = end_of(rest, goes_on);
        return Ok((Kind::Number(rest[..length].into()), length));
    }
    if word(first) {
        let length = end_of(rest, word);
        return Ok((Kind::Name(rest[..length].into()), length));
    }
    if first == '"' {
        let end = rest[1..].find(['"', '\n']).filter(|end| rest[1 + end..].starts_with('"'));
        let end = end.ok_or_else(|| Error::new(line, "the text has no end on its line"))?;
        return Ok((Kind::Text(rest[1..=end].into()), end + 2));
    }
    let punctuation = PUNCTUATION.iter().find(|own| rest.starts_with(**own));
    let punctuation = punctuation
        .ok_or_else(|| Error::new(line, format!("{first:?} is no character of the language")))?;
    Ok((Kind::Punct(punctuation), punctuation.len()))
}

/// The bytes of `rest` before the first character that does not go on.
fn end_of(rest: &str, mut goes_on: impl FnMut(char) -> bool) -> usize {
    rest.find(|c| !goes_on(c)).unwrap_or(rest.len())
}
