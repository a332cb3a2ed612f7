//! The preprocessor: directives, and macros in place of names.

mod expand;

use crate::Error;
use crate::parse::Parser;
use crate::token::{Kind, Token, tokens};
use expand::Hidden;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// A source with more tokens is refused: macros can make it grow without end.
const TOKENS_MAX: usize = 1 << 17;
/// So is one whose macros take more tokens in hand on the way.
const STEPS_MAX: usize = 1 << 20;

#[derive(Debug)]
struct Macro {
    /// The parameters; `None` for a macro without a list of them.
    parameters: Option<Vec<Rc<str>>>,
    body: Vec<Token>,
}

/// The macros that are defined so far.
#[derive(Debug, Default)]
pub(crate) struct Preprocessor {
    macros: HashMap<Rc<str>, Rc<Macro>>,
    /// Of each `#if` that is open: whether its part is read, and whether a part of it was.
    open: Vec<Open>,
    /// The tokens that macros took in hand.
    steps: usize,
}

#[derive(Debug)]
struct Open {
    line: u32,
    read: bool,
    was_read: bool,
    /// Whether the text around it is read.
    around: bool,
    /// Whether its `#else` was there.
    last: bool,
}

impl Preprocessor {
    /// Defines what the options `-D NAME`, `-D NAME=VALUE` and `-DNAME=VALUE` say; others are refused.
    pub(crate) fn options(&mut self, options: &str) -> Result<(), Error> {
        let mut words = options.split_whitespace();
        while let Some(word) = words.next() {
            let refuse =
                || Error::new(0, format!("the option {word:?} is unknown, expected -D NAME=VALUE"));
            let given = word.strip_prefix("-D").ok_or_else(refuse)?;
            let given = if given.is_empty() { words.next().ok_or_else(refuse)? } else { given };
            let (name, value) = given.split_once('=').unwrap_or((given, "1"));
            let body = tokens(value, 0)?;
            self.macros.insert(name.into(), Rc::new(Macro { parameters: None, body }));
        }
        Ok(())
    }

    /// The tokens of `text`, whose first line has the number `line`, without directives and macros.
    pub(crate) fn run(&mut self, text: &str, line: u32) -> Result<Vec<Token>, Error> {
        let all = tokens(text, line)?;
        let mut output = Vec::new();
        let mut at = 0;
        while at < all.len() {
            let directive = all[at].first && all[at].is("#");
            let ends =
                |token: &Token| if directive { token.first } else { token.first && token.is("#") };
            let length =
                all[at + 1..].iter().position(ends).map_or(all.len() - at, |length| length + 1);
            let part = &all[at..at + length];
            if directive {
                self.directive(part)?;
            } else if self.reads() {
                let most = TOKENS_MAX.saturating_sub(output.len());
                let found =
                    self.expand(part.iter().cloned().map(Hidden::plain).collect(), most, 0)?;
                output.extend(found.into_iter().map(|hidden| hidden.token));
            }
            at += length;
        }
        match self.open.pop() {
            Some(open) => Err(Error::new(open.line, "this #if has no #endif")),
            None => Ok(output),
        }
    }

    fn reads(&self) -> bool {
        self.open.last().is_none_or(|open| open.read)
    }

    fn directive(&mut self, line: &[Token]) -> Result<(), Error> {
        let at = line[0].line;
        let Some(name) = line.get(1) else { return Ok(()) };
        let rest = &line[2..];
        let around = self.reads();
        match name.text() {
            "if" => {
                let read = around && self.holds(rest, at)?;
                self.open.push(Open { line: at, read, was_read: read, around, last: false });
            }
            kind @ ("ifdef" | "ifndef") => {
                let given = rest.first().and_then(Token::name);
                let given = given.ok_or_else(|| Error::new(at, format!("#{kind} lacks a name")))?;
                let read = around && self.macros.contains_key(given) == (kind == "ifdef");
                self.open.push(Open { line: at, read, was_read: read, around, last: false });
            }
            kind @ ("elif" | "else") => {
                let open = self.open.last();
                let open = open.ok_or_else(|| Error::new(at, format!("#{kind} without an #if")))?;
                if open.last {
                    return Err(Error::new(at, format!("#{kind} after the #else")));
                }
                let may = open.around && !open.was_read;
                let read = may && (kind == "else" || self.holds(rest, at)?);
                if let Some(open) = self.open.last_mut() {
                    (open.read, open.was_read) = (read, open.was_read || read);
                    open.last = kind == "else";
                }
            }
            "endif" => {
                self.open.pop().ok_or_else(|| Error::new(at, "#endif without an #if"))?;
            }
            _ if !around => {}
            "define" => self.define(rest, at)?,
            "undef" => {
                if let Some(name) = rest.first().and_then(Token::name) {
                    self.macros.remove(name);
                }
            }
            "error" => {
                let words: Vec<&str> = rest.iter().map(Token::text).collect();
                return Err(Error::new(at, words.join(" ")));
            }
            "pragma" => {
                return Err(Error::new(at, "#pragma is not known, expected _Pragma(\"unroll N\")"));
            }
            other => {
                return Err(Error::new(at, format!("#{other} is no directive of the language")));
            }
        }
        Ok(())
    }

    fn define(&mut self, rest: &[Token], line: u32) -> Result<(), Error> {
        let named = |token: &Token| match &token.kind {
            Kind::Name(name) => Ok(Rc::clone(name)),
            _ => Err(Error::new(
                line,
                format!("#define has {:?} where a name is expected", token.text()),
            )),
        };
        let (name, rest) =
            rest.split_first().ok_or_else(|| Error::new(line, "#define lacks a name"))?;
        let name = named(name)?;
        let takes = rest.first().is_some_and(|token| token.is("(") && token.joined);
        let (parameters, body) = if takes {
            let end = rest.iter().position(|token| token.is(")"));
            let end =
                end.ok_or_else(|| Error::new(line, "the parameters of #define have no end"))?;
            let list =
                rest[1..end].split(|token| token.is(",")).filter(|parameter| !parameter.is_empty());
            let list = list.map(|parameter| named(&parameter[0])).collect::<Result<_, _>>()?;
            (Some(list), &rest[end + 1..])
        } else {
            (None, rest)
        };
        if [body.first(), body.last()].iter().flatten().any(|end| end.is("##")) {
            return Err(Error::new(
                line,
                format!("## joins nothing at an end of the macro {name}"),
            ));
        }
        self.macros.insert(name, Rc::new(Macro { parameters, body: body.to_vec() }));
        Ok(())
    }

    /// Whether the condition of an `#if` holds; names that are no macros count as 0.
    fn holds(&mut self, condition: &[Token], line: u32) -> Result<bool, Error> {
        let mut known = VecDeque::new();
        let mut rest = condition.iter();
        while let Some(token) = rest.next() {
            let mut token = token.clone();
            if token.name() == Some("defined") {
                let bracket = rest.as_slice().first().is_some_and(|next| next.is("("));
                let name = rest.as_slice().get(usize::from(bracket)).and_then(Token::name);
                let name = name.ok_or_else(|| Error::new(line, "defined lacks a name"))?;
                token.kind = Kind::Number(if self.macros.contains_key(name) {
                    "1".into()
                } else {
                    "0".into()
                });
                for _ in 0..if bracket { 3 } else { 1 } {
                    rest.next();
                }
            }
            known.push_back(Hidden::plain(token));
        }
        let tokens = self.expand(known, TOKENS_MAX, 0)?;
        let mut tokens: Vec<Token> = tokens.into_iter().map(|hidden| hidden.token).collect();
        for token in &mut tokens {
            if token.name().is_some_and(|name| !matches!(name, "true" | "false")) {
                token.kind = Kind::Number("0".into());
            }
        }
        let value = Parser::condition(&tokens, line)?.number();
        let value = value.ok_or_else(|| Error::new(line, "the condition of #if is no constant"))?;
        Ok(value.is_true())
    }
}
