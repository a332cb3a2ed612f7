//! The parser: from tokens to kernels and functions, by one look ahead.

mod expression;
mod statement;

use crate::Error;
use crate::syntax::{Expression, Function, Parameter, Passed, Type};
use crate::token::{Kind, Token};
use std::rc::Rc;

/// Deeper nesting is refused, because each level takes stack.
const DEPTH_MAX: u32 = 200;

/// Reads tokens one after another.
pub(crate) struct Parser<'a> {
    tokens: &'a [Token],
    /// The line of the last token that was taken.
    line: u32,
    depth: u32,
    /// Whether all integers have 64 bits, as in the conditions of `#if`.
    wide: bool,
}

impl<'a> Parser<'a> {
    /// A parser of `tokens`, which come after something in `line`.
    pub(crate) fn new(tokens: &'a [Token], line: u32) -> Self {
        Self { tokens, line, depth: 0, wide: false }
    }

    /// The condition of an `#if` in `line`.
    pub(crate) fn condition(tokens: &'a [Token], line: u32) -> Result<Expression, Error> {
        let mut parser = Self { tokens, line, depth: 0, wide: true };
        let condition = parser.expression()?;
        if parser.tokens.is_empty() { Ok(condition) } else { Err(parser.expected("nothing more")) }
    }

    /// All kernels and functions of a source.
    pub(crate) fn items(&mut self) -> Result<Vec<Function>, Error> {
        let mut items = Vec::new();
        while let Some(token) = self.tokens.first() {
            let line = token.line;
            if self.takes_name("KERNEL") {
                let group = self.takes_name("GROUP_SIZE").then(|| self.group()).transpose()?;
                items.push(self.function(line, Some(group))?);
            } else if self.takes_name("DEVICE") {
                items.push(self.function(line, None)?);
            } else {
                return Err(self.expected("KERNEL or DEVICE"));
            }
        }
        Ok(items)
    }

    fn group(&mut self) -> Result<[Expression; 3], Error> {
        self.take("(")?;
        let x = self.expression()?;
        self.take(",")?;
        let y = self.expression()?;
        self.take(",")?;
        let z = self.expression()?;
        self.take(")")?;
        Ok([x, y, z])
    }

    fn function(
        &mut self,
        line: u32,
        kernel: Option<Option<[Expression; 3]>>,
    ) -> Result<Function, Error> {
        let result = self.ty()?;
        if kernel.is_some() && result != Type::Void {
            return Err(self.error(format!("a kernel gives {}, expected void", result.name())));
        }
        let name = self.name()?;
        self.take("(")?;
        let mut parameters = Vec::new();
        if self.peek_name() == Some("void") && self.tokens.get(1).is_some_and(|next| next.is(")")) {
            self.tokens = &self.tokens[1..];
        }
        while !self.takes(")") {
            if !parameters.is_empty() {
                self.take(",")?;
            }
            parameters.push(self.parameter()?);
        }
        self.take("{")?;
        let body = self.statements()?;
        Ok(Function { name, line, result, parameters, body, kernel, precise: false })
    }

    fn parameter(&mut self) -> Result<Parameter, Error> {
        let volatile = self.takes_name("volatile");
        let buffer = self.takes_name("GLOBAL");
        let (constant, ty) = self.perhaps_const()?;
        let pointer = self.takes("*");
        let (name, line) = (self.name()?, self.line);
        let kind = match (buffer, pointer) {
            (true, true) => Passed::Buffer { constant },
            (false, true) => Passed::Array,
            (false, false) => Passed::Value,
            (true, false) => {
                return Err(self.error(format!("GLOBAL {name} is no pointer, expected one")));
            }
        };
        if !buffer && (constant || volatile) {
            let message = format!("{name} is const or volatile, which only buffers (GLOBAL) are");
            return Err(self.error(message));
        }
        if ty == Type::Void || kind == Passed::Value && !ty.is_number() && ty != Type::F32x4 {
            return Err(self.error(format!("the parameter {name} is of {}", ty.name())));
        }
        if buffer {
            self.stored(ty)?;
        }
        Ok(Parameter { name, line, ty, kind })
    }

    /// A type that may be const.
    fn perhaps_const(&mut self) -> Result<(bool, Type), Error> {
        let constant = self.takes_name("const");
        let ty = self.ty()?;
        Ok((self.takes_name("const") || constant, ty))
    }

    /// Refuses what no buffer has for elements.
    fn stored(&self, ty: Type) -> Result<(), Error> {
        match ty {
            Type::Bool => Err(self.error("a buffer of bool, expected u8")),
            _ => Ok(()),
        }
    }

    /// A type's name.
    fn ty(&mut self) -> Result<Type, Error> {
        let ty = self.peek_name().and_then(Type::named).ok_or_else(|| self.expected("a type"))?;
        self.next();
        Ok(ty)
    }

    fn name(&mut self) -> Result<Rc<str>, Error> {
        match self.tokens.first() {
            Some(Token { kind: Kind::Name(name), .. }) if Type::named(name).is_none() => {
                self.next();
                Ok(Rc::clone(name))
            }
            _ => Err(self.expected("a name")),
        }
    }

    fn next(&mut self) -> Option<&'a Token> {
        let (token, rest) = self.tokens.split_first()?;
        (self.tokens, self.line) = (rest, token.line);
        Some(token)
    }

    fn peek_name(&self) -> Option<&'a str> {
        self.tokens.first().and_then(Token::name)
    }

    /// Takes the next token if it is this punctuation.
    fn takes(&mut self, punctuation: &str) -> bool {
        let found = self.tokens.first().is_some_and(|token| token.is(punctuation));
        if found {
            self.next();
        }
        found
    }

    fn takes_name(&mut self, name: &str) -> bool {
        let found = self.peek_name() == Some(name);
        if found {
            self.next();
        }
        found
    }

    fn take(&mut self, punctuation: &str) -> Result<(), Error> {
        if self.takes(punctuation) {
            Ok(())
        } else {
            Err(self.expected(&format!("{punctuation:?}")))
        }
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::new(self.line, message)
    }

    /// The error of a token that stands in another's place.
    fn expected(&self, what: &str) -> Error {
        match self.tokens.first() {
            Some(token) => {
                Error::new(token.line, format!("{:?} where {what} is expected", token.text()))
            }
            None => self.error(format!("the source ends where {what} is expected")),
        }
    }

    /// What `read` gives, one level deeper.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth == DEPTH_MAX {
            return Err(self.error(format!("more than {DEPTH_MAX} levels of nesting")));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }
}
