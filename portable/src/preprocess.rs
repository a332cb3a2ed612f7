//! The preprocessor: directives, and macros in place of names.

use crate::Error;
use crate::parse::Parser;
use crate::token::{Kind, Token, tokens};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

/// A source with more tokens is refused: macros can make it grow without end.
const TOKENS_MAX: usize = 1 << 17;

#[derive(Debug, Clone)]
struct Macro {
    /// The parameters; `None` for a macro without a list of them.
    parameters: Option<Vec<Rc<str>>>,
    body: Vec<Token>,
}

/// A token with the macros that it must not be replaced by, since it comes from them.
#[derive(Debug, Clone)]
struct Hidden {
    token: Token,
    from: Rc<BTreeSet<Rc<str>>>,
}

/// The macros that are defined so far.
#[derive(Debug, Default)]
pub(crate) struct Preprocessor {
    macros: HashMap<Rc<str>, Macro>,
    /// Of each `#if` that is open: whether its part is read, and whether a part of it was.
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    line: u32,
    read: bool,
    was_read: bool,
    /// Whether the text around it is read.
    around: bool,
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
            self.macros.insert(name.into(), Macro { parameters: None, body: tokens(value, 0)? });
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
                let part =
                    part.iter().map(|token| Hidden { token: token.clone(), from: Rc::default() });
                output.extend(self.expand(part.collect(), TOKENS_MAX - output.len())?);
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
                self.open.push(Open { line: at, read, was_read: read, around });
            }
            kind @ ("ifdef" | "ifndef") => {
                let given = rest.first().and_then(Token::name);
                let given = given.ok_or_else(|| Error::new(at, format!("#{kind} lacks a name")))?;
                let read = around && self.macros.contains_key(given) == (kind == "ifdef");
                self.open.push(Open { line: at, read, was_read: read, around });
            }
            kind @ ("elif" | "else") => {
                let open = self.open.last();
                let open = open.ok_or_else(|| Error::new(at, format!("#{kind} without an #if")))?;
                let may = open.around && !open.was_read;
                let read = may && (kind == "else" || self.holds(rest, at)?);
                if let Some(open) = self.open.last_mut() {
                    (open.read, open.was_read) = (read, open.was_read || read);
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
            // Loops are unrolled as their compiler sees fit.
            "pragma" | "line" => {}
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
        self.macros.insert(name, Macro { parameters, body: body.to_vec() });
        Ok(())
    }

    /// Whether the condition of an `#if` holds; names that are no macros count as 0.
    fn holds(&self, condition: &[Token], line: u32) -> Result<bool, Error> {
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
            known.push_back(Hidden { token, from: Rc::default() });
        }
        let mut tokens = self.expand(known, TOKENS_MAX)?;
        for token in &mut tokens {
            if token.name().is_some_and(|name| !matches!(name, "true" | "false")) {
                token.kind = Kind::Number("0".into());
            }
        }
        let value = Parser::condition(&tokens, line)?.number();
        let value = value.ok_or_else(|| Error::new(line, "the condition of #if is no constant"))?;
        Ok(value.is_true())
    }

    /// Replaces macros by what they stand for, by the algorithm of C's standard as D. Prosser wrote it down: each token
    /// keeps the names of macros that it came from.
    fn expand(&self, mut input: VecDeque<Hidden>, most: usize) -> Result<Vec<Token>, Error> {
        let mut output = Vec::new();
        while let Some(Hidden { token, from }) = input.pop_front() {
            if output.len() + input.len() > most {
                return Err(Error::new(
                    token.line,
                    format!("macros give more than {TOKENS_MAX} tokens"),
                ));
            }
            let known = match &token.kind {
                Kind::Name(name) if !from.contains(name) => self.macros.get_key_value(name),
                _ => None,
            };
            let Some((name, own)) = known else {
                output.push(token);
                continue;
            };
            let (arguments, mut from) = match &own.parameters {
                None => (Vec::new(), (*from).clone()),
                Some(_) if input.front().is_none_or(|next| !next.token.is("(")) => {
                    output.push(token);
                    continue;
                }
                Some(parameters) => {
                    let (arguments, end) = arguments(&mut input, name, token.line)?;
                    let given = if parameters.is_empty() && arguments[0].is_empty() {
                        0
                    } else {
                        arguments.len()
                    };
                    if given != parameters.len() {
                        let expected = parameters.len();
                        let message =
                            format!("the macro {name} gets {given} arguments, expected {expected}");
                        return Err(Error::new(token.line, message));
                    }
                    (arguments, from.intersection(&end).cloned().collect())
                }
            };
            from.insert(Rc::clone(name));
            let body = self.body(own, &arguments, token.line, most)?;
            let from = Rc::new(from);
            for mut hidden in body.into_iter().rev() {
                hidden.token.line = token.line;
                if !from.is_subset(&hidden.from) {
                    hidden.from = Rc::new(hidden.from.union(&from).cloned().collect());
                }
                input.push_front(hidden);
            }
        }
        Ok(output)
    }

    /// A macro's body with arguments in place of parameters.
    fn body(
        &self,
        own: &Macro,
        arguments: &[Vec<Hidden>],
        line: u32,
        most: usize,
    ) -> Result<Vec<Hidden>, Error> {
        let argument = |token: &Token| {
            let at = own.parameters.iter().flatten().position(|name| token.name() == Some(name))?;
            arguments.get(at)
        };
        let mut body: Vec<Hidden> = Vec::new();
        let mut at = 0;
        while at < own.body.len() {
            let token = &own.body[at];
            if token.is("##") && at + 1 < own.body.len() {
                let next = &own.body[at + 1];
                let plain = [Hidden { token: next.clone(), from: Rc::default() }];
                let right = argument(next).map_or(&plain[..], Vec::as_slice);
                paste(&mut body, right, line)?;
                at += 2;
                continue;
            }
            let pasted = own.body.get(at + 1).is_some_and(|next| next.is("##"));
            match argument(token) {
                Some(argument) if pasted => body.extend(argument.iter().cloned()),
                Some(argument) => {
                    let whole = self.expand(argument.iter().cloned().collect(), most)?;
                    body.extend(
                        whole.into_iter().map(|token| Hidden { token, from: Rc::default() }),
                    );
                }
                None => body.push(Hidden { token: token.clone(), from: Rc::default() }),
            }
            at += 1;
        }
        Ok(body)
    }
}

/// Joins the last token of `left` with the first of `right`.
fn paste(left: &mut Vec<Hidden>, right: &[Hidden], line: u32) -> Result<(), Error> {
    let (Some(last), Some((next, rest))) = (left.pop(), right.split_first()) else { return Ok(()) };
    let text = format!("{}{}", last.token.text(), next.token.text());
    let joined = tokens(&text, line)?;
    let [token] = joined.as_slice() else {
        return Err(Error::new(line, format!("## gives {text:?}, which is no token")));
    };
    left.push(Hidden { token: token.clone(), from: last.from });
    left.extend(rest.iter().cloned());
    Ok(())
}

/// Takes the arguments of a macro from `input`, which begins with their bracket; with the macros that the closing
/// bracket comes from.
type Arguments = (Vec<Vec<Hidden>>, Rc<BTreeSet<Rc<str>>>);
fn arguments(input: &mut VecDeque<Hidden>, name: &str, line: u32) -> Result<Arguments, Error> {
    let mut arguments = vec![Vec::new()];
    let mut depth = 1;
    input.pop_front();
    while let Some(hidden) = input.pop_front() {
        let token = &hidden.token;
        depth += i32::from(token.is("(")) - i32::from(token.is(")"));
        match arguments.last_mut() {
            _ if depth == 0 => return Ok((arguments, hidden.from)),
            _ if depth == 1 && token.is(",") => arguments.push(Vec::new()),
            Some(last) => last.push(hidden),
            None => {}
        }
    }
    Err(Error::new(line, format!("the arguments of the macro {name} have no end")))
}
