//! Statements and declarations.

use super::Parser;
use crate::Error;
use crate::syntax::{Declaration, Declared, Do, Expression, Statement, Type, Unroll};
use crate::token::Kind;

impl Parser<'_> {
    /// Statements up to the closing bracket, which is taken.
    pub(super) fn statements(&mut self) -> Result<Vec<Statement>, Error> {
        let mut statements = Vec::new();
        while !self.takes("}") {
            statements.push(self.statement()?);
        }
        Ok(statements)
    }

    fn statement(&mut self) -> Result<Statement, Error> {
        self.deeper(|parser| {
            let line = parser.tokens.first().map_or(parser.line, |token| token.line);
            let kind = parser.kind()?;
            Ok(Statement { line, kind })
        })
    }

    fn kind(&mut self) -> Result<Do, Error> {
        if self.takes(";") {
            return Ok(Do::Nothing);
        }
        if self.takes("{") {
            return Ok(Do::Block(self.statements()?));
        }
        let unroll = self.unroll()?;
        if unroll != Unroll::Unsaid && self.peek_name() != Some("for") {
            return Err(self.expected("a for loop"));
        }
        match self.peek_name() {
            Some("if") => self.choice(),
            Some("for") => self.counted(unroll),
            Some("while") => {
                self.next();
                let condition = self.bracketed()?;
                let body = Box::new(self.statement()?);
                Ok(Do::While { condition, body, after: false })
            }
            Some("do") => {
                self.next();
                let body = Box::new(self.statement()?);
                if !self.takes_name("while") {
                    return Err(self.expected("while"));
                }
                let condition = self.bracketed()?;
                self.take(";")?;
                Ok(Do::While { condition, body, after: true })
            }
            Some("return") => {
                self.next();
                let value = if self.takes(";") { None } else { Some(self.expression()?) };
                if value.is_some() {
                    self.take(";")?;
                }
                Ok(Do::Return(value))
            }
            Some("break") => self.word(Do::Break),
            Some("continue") => self.word(Do::Continue),
            Some(word @ ("switch" | "goto" | "struct" | "union" | "typedef" | "sizeof")) => {
                Err(self.expected(&format!("a statement of the language, which has no {word},")))
            }
            _ => self.simple(),
        }
    }

    fn word(&mut self, statement: Do) -> Result<Do, Error> {
        self.next();
        self.take(";")?;
        Ok(statement)
    }

    fn bracketed(&mut self) -> Result<Expression, Error> {
        self.take("(")?;
        let inner = self.expression()?;
        self.take(")")?;
        Ok(inner)
    }

    fn choice(&mut self) -> Result<Do, Error> {
        self.next();
        let condition = self.bracketed()?;
        let then = Box::new(self.statement()?);
        let other = if self.takes_name("else") { Some(Box::new(self.statement()?)) } else { None };
        Ok(Do::If(condition, then, other))
    }

    fn counted(&mut self, unroll: Unroll) -> Result<Do, Error> {
        self.next();
        self.take("(")?;
        let line = self.line;
        let first = match self.takes(";") {
            true => None,
            false => Some(Box::new(Statement { line, kind: self.simple()? })),
        };
        let condition = if self.takes(";") {
            None
        } else {
            let condition = self.expression()?;
            self.take(";")?;
            Some(condition)
        };
        let mut step = Vec::new();
        while !self.takes(")") {
            if !step.is_empty() {
                self.take(",")?;
            }
            step.push(self.effect()?);
        }
        let body = Box::new(self.statement()?);
        Ok(Do::For { first, condition, step, body, unroll })
    }

    /// `UNROLL`, `_Pragma("unroll")` or `_Pragma("unroll N")`, if it is there.
    fn unroll(&mut self) -> Result<Unroll, Error> {
        if self.takes_name("UNROLL") {
            return Ok(Unroll::Whole);
        }
        if !self.takes_name("_Pragma") {
            return Ok(Unroll::Unsaid);
        }
        self.take("(")?;
        let Some(Kind::Text(text)) = self.next().map(|token| &token.kind) else {
            return Err(self.error("_Pragma lacks its text"));
        };
        self.take(")")?;
        let steps = text.strip_prefix("unroll").map(str::trim);
        match steps.map(|steps| (steps, steps.parse::<u32>())) {
            Some(("", _)) => Ok(Unroll::Whole),
            Some((_, Ok(1))) => Ok(Unroll::Never),
            Some((_, Ok(steps))) if steps > 1 => Ok(Unroll::By(steps)),
            _ => Err(self.error(format!("the pragma {text:?} is unknown, expected \"unroll N\""))),
        }
    }

    /// A declaration or expressions, with their semicolon.
    fn simple(&mut self) -> Result<Do, Error> {
        let words = ["LOCAL", "GLOBAL", "const", "volatile"];
        let declares = self
            .peek_name()
            .is_some_and(|name| words.contains(&name) || Type::named(name).is_some());
        if declares {
            return self.declaration();
        }
        let mut expressions = vec![self.effect()?];
        while self.takes(",") {
            expressions.push(self.effect()?);
        }
        self.take(";")?;
        Ok(Do::Expressions(expressions))
    }

    fn declaration(&mut self) -> Result<Do, Error> {
        let volatile = self.takes_name("volatile");
        let (local, global) = (self.takes_name("LOCAL"), self.takes_name("GLOBAL"));
        if volatile && !global {
            return Err(self.error("volatile stands before GLOBAL only"));
        }
        let (constant, ty) = self.perhaps_const()?;
        let mut declarations = Vec::new();
        loop {
            let kind = match (self.takes("*"), global) {
                (true, true) => {
                    self.stored(ty)?;
                    Declared::Pointer
                }
                (true, false) => {
                    return Err(self.error("only a pointer to a buffer (GLOBAL) can be declared"));
                }
                (false, true) => {
                    return Err(self.error("GLOBAL declares pointers only, expected \"*\""));
                }
                (false, false) if local => Declared::Local,
                (false, false) => Declared::Private,
            };
            let name = self.name()?;
            let mut sizes = Vec::new();
            while self.takes("[") {
                sizes.push(self.expression()?);
                self.take("]")?;
            }
            self.takes_name("ALIGNED");
            let value = if self.takes("=") { Some(self.expression()?) } else { None };
            if constant && kind != Declared::Pointer && value.is_none() {
                return Err(self.error(format!("{name} is const, expected its value")));
            }
            declarations.push(Declaration { name, ty, kind, constant, sizes, value });
            if !self.takes(",") {
                break;
            }
        }
        self.take(";")?;
        Ok(Do::Declare(declarations))
    }
}
