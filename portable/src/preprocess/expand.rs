//! Macros in place of names, by the algorithm of C's standard as D. Prosser wrote it down: each token keeps the names of
//! the macros that it came from.

use super::{Macro, Preprocessor, STEPS_MAX, TOKENS_MAX};
use crate::Error;
use crate::token::{Token, tokens};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// Macros that come from one another, or stand in one another's arguments, are refused beyond this many.
const DEPTH_MAX: usize = 200;

type Names = Rc<BTreeSet<Rc<str>>>;

/// A token with the macros that it must not be replaced by, since it comes from them.
#[derive(Debug, Clone)]
pub(super) struct Hidden {
    pub(super) token: Token,
    from: Names,
}

impl Hidden {
    pub(super) fn plain(token: Token) -> Self {
        Self { token, from: Names::default() }
    }
}

/// Arguments of a macro, as they are written and with macros replaced.
struct Arguments {
    written: Vec<Vec<Hidden>>,
    whole: Vec<Option<Vec<Hidden>>>,
    /// The macros that the closing bracket comes from.
    end: Names,
}

impl Preprocessor {
    /// Replaces macros by what they stand for: at most `most` tokens, in an argument of `depth` macros.
    pub(super) fn expand(
        &mut self,
        mut input: VecDeque<Hidden>,
        most: usize,
        depth: usize,
    ) -> Result<Vec<Hidden>, Error> {
        let mut output = Vec::new();
        while let Some(hidden) = input.pop_front() {
            let (line, from) = (hidden.token.line, &hidden.from);
            self.steps += 1;
            if output.len() + input.len() >= most || self.steps > STEPS_MAX {
                return Err(many(line));
            }
            let known = hidden.token.name().filter(|name| !from.contains(*name));
            let known = known.and_then(|name| self.macros.get_key_value(name));
            let Some((name, own)) = known.map(|(name, own)| (Rc::clone(name), Rc::clone(own)))
            else {
                output.push(hidden);
                continue;
            };
            if depth == DEPTH_MAX || from.len() == DEPTH_MAX {
                let message = format!("macros stand in one another more than {DEPTH_MAX} times");
                return Err(Error::new(line, message));
            }
            let (mut arguments, mut from) = match &own.parameters {
                None => (None, (**from).clone()),
                Some(_) if input.front().is_none_or(|next| !next.token.is("(")) => {
                    output.push(hidden);
                    continue;
                }
                Some(parameters) => {
                    let arguments = arguments(&mut input, parameters.len(), &name, line)?;
                    self.steps += arguments.written.iter().map(Vec::len).sum::<usize>();
                    let both = from.intersection(&arguments.end).cloned().collect();
                    (Some(arguments), both)
                }
            };
            from.insert(name);
            let body = self.body(&own, arguments.as_mut(), line, (most, depth))?;
            put_back(&mut input, body, &Rc::new(from), line);
        }
        Ok(output)
    }

    /// A macro's body with arguments in place of parameters.
    fn body(
        &mut self,
        own: &Macro,
        mut arguments: Option<&mut Arguments>,
        line: u32,
        (most, depth): (usize, usize),
    ) -> Result<Vec<Hidden>, Error> {
        let parameter = |token: &Token| {
            own.parameters.iter().flatten().position(|name| token.name() == Some(name))
        };
        let mut body: Vec<Hidden> = Vec::new();
        let mut rest = own.body.as_slice();
        while let Some((token, after)) = rest.split_first() {
            rest = after;
            let joins = rest.first().is_some_and(|next| next.is("##"));
            let found = match (parameter(token), arguments.as_deref_mut()) {
                (Some(at), Some(arguments)) if !joins => {
                    if arguments.whole[at].is_none() {
                        let written = arguments.written[at].iter().cloned().collect();
                        arguments.whole[at] = Some(self.expand(written, most, depth + 1)?);
                    }
                    arguments.whole[at].as_deref().unwrap_or_default()
                }
                (Some(at), Some(arguments)) => arguments.written[at].as_slice(),
                _ => &[Hidden::plain(token.clone())],
            };
            self.steps += found.len() + 1;
            if body.len() + found.len() > most || self.steps > STEPS_MAX {
                return Err(many(line));
            }
            if !joins {
                body.extend_from_slice(found);
                continue;
            }
            let mut joined = found.to_vec();
            while let [join, right, after @ ..] = rest
                && join.is("##")
            {
                rest = after;
                let at = parameter(right);
                let right = match (at, arguments.as_deref()) {
                    (Some(at), Some(arguments)) => arguments.written[at].as_slice(),
                    _ => &[Hidden::plain(right.clone())],
                };
                self.steps += right.len();
                if body.len() + joined.len() + right.len() > most || self.steps > STEPS_MAX {
                    return Err(many(line));
                }
                paste(&mut joined, right, line)?;
            }
            body.append(&mut joined);
        }
        Ok(body)
    }
}

fn many(line: u32) -> Error {
    let message = format!("macros give more than {TOKENS_MAX} tokens, or {STEPS_MAX} on the way");
    Error::new(line, message)
}

/// Puts what a macro gave before the rest, as coming from these macros too.
fn put_back(input: &mut VecDeque<Hidden>, body: Vec<Hidden>, from: &Names, line: u32) {
    // Neighbours mostly come from the same macros, and share the set of their names.
    let mut last: Option<(Names, Names)> = None;
    for mut hidden in body.into_iter().rev() {
        hidden.token.line = line;
        hidden.from = match last.take() {
            Some((own, both)) if Rc::ptr_eq(&own, &hidden.from) => {
                last = Some((own, Rc::clone(&both)));
                both
            }
            _ => {
                let both = match hidden.from.is_empty() {
                    true => Rc::clone(from),
                    false => Rc::new(hidden.from.union(from).cloned().collect()),
                };
                last = Some((hidden.from, Rc::clone(&both)));
                both
            }
        };
        input.push_front(hidden);
    }
}

/// Joins the last token of `left` with the first of `right`. Joined with nothing, a token stays as it is.
fn paste(left: &mut Vec<Hidden>, right: &[Hidden], line: u32) -> Result<(), Error> {
    let Some((next, rest)) = right.split_first() else { return Ok(()) };
    let Some(last) = left.pop() else {
        left.extend_from_slice(right);
        return Ok(());
    };
    let text = format!("{}{}", last.token.text(), next.token.text());
    let joined = tokens(&text, line)?;
    let [token] = joined.as_slice() else {
        return Err(Error::new(line, format!("## gives {text:?}, which is no token")));
    };
    let from = Rc::new(last.from.intersection(&next.from).cloned().collect());
    left.push(Hidden { token: token.clone(), from });
    left.extend_from_slice(rest);
    Ok(())
}

/// Takes the arguments of a macro from `input`, which begins with their bracket.
fn arguments(
    input: &mut VecDeque<Hidden>,
    expected: usize,
    name: &str,
    line: u32,
) -> Result<Arguments, Error> {
    let mut written = vec![Vec::new()];
    let mut depth = 1;
    input.pop_front();
    while let Some(hidden) = input.pop_front() {
        let token = &hidden.token;
        depth += i32::from(token.is("(")) - i32::from(token.is(")"));
        if depth == 0 {
            if expected == 0 && written[0].is_empty() {
                written.clear();
            }
            let given = written.len();
            if given != expected {
                let message =
                    format!("the macro {name} gets {given} arguments, expected {expected}");
                return Err(Error::new(line, message));
            }
            return Ok(Arguments { written, whole: vec![None; expected], end: hidden.from });
        }
        if depth == 1 && token.is(",") {
            written.push(Vec::new());
        } else if let Some(last) = written.last_mut() {
            last.push(hidden);
        }
    }
    Err(Error::new(line, format!("the arguments of the macro {name} have no end")))
}
