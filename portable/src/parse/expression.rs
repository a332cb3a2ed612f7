//! Expressions, by the strength of their operators.

use super::Parser;
use crate::syntax::{Expression, I64, Int, Number, Of, Type};
use crate::token::Kind;
use crate::{Error, constant};

/// The operators between two operands, the weakest first.
const LEVELS: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", ">", "<=", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];
/// Higher expressions are refused, because each step down takes stack.
const HEIGHT_MAX: u32 = 400;
const UNARY: &[&str] = &["-", "+", "!", "~"];
/// What assigns, with the operator that it applies before.
const ASSIGN: &[(&str, Option<&str>)] = &[
    ("=", None),
    ("+=", Some("+")),
    ("-=", Some("-")),
    ("*=", Some("*")),
    ("/=", Some("/")),
    ("%=", Some("%")),
    ("&=", Some("&")),
    ("|=", Some("|")),
    ("^=", Some("^")),
    ("<<=", Some("<<")),
    (">>=", Some(">>")),
];

impl Parser<'_> {
    /// An expression without assignments.
    pub(crate) fn expression(&mut self) -> Result<Expression, Error> {
        self.deeper(|parser| {
            let condition = parser.operands(0)?;
            let line = condition.line;
            if !parser.takes("?") {
                return Ok(condition);
            }
            let a = parser.expression()?;
            parser.take(":")?;
            let b = parser.expression()?;
            parser.built(line, Of::Choice(Box::new([condition, a, b])))
        })
    }

    /// An expression that may assign: a statement, or a step of a loop.
    pub(super) fn effect(&mut self) -> Result<Expression, Error> {
        for (step, operator) in [("++", "+"), ("--", "-")] {
            if self.takes(step) {
                let to = self.unary()?;
                return self.stepped(operator, to);
            }
        }
        let to = self.expression()?;
        let line = to.line;
        for (step, operator) in [("++", "+"), ("--", "-")] {
            if self.takes(step) {
                return self.stepped(operator, to);
            }
        }
        let assign =
            ASSIGN.iter().find(|(own, _)| self.tokens.first().is_some_and(|token| token.is(own)));
        let Some((_, operator)) = assign else { return Ok(to) };
        self.next();
        let value = self.expression()?;
        if self.tokens.first().is_some_and(|token| token.is("=")) {
            return Err(self.expected("one assignment in a statement"));
        }
        self.built(line, Of::Assign(*operator, Box::new(to), Box::new(value)))
    }

    /// `to` with 1 added to it or subtracted from it.
    fn stepped(&self, operator: &'static str, to: Expression) -> Result<Expression, Error> {
        let line = to.line;
        let one = self.built(line, Of::Number(Number::Int(Int { bits: 32, signed: true }, 1)))?;
        self.built(line, Of::Assign(Some(operator), Box::new(to), Box::new(one)))
    }

    /// An expression, as a number where it is made of numbers alone.
    fn built(&self, line: u32, kind: Of) -> Result<Expression, Error> {
        let kind = match constant::folded(&kind) {
            Some(number @ Number::Bool(_)) if self.wide => {
                Of::Number(number.to(I64).unwrap_or(number))
            }
            Some(number) => Of::Number(number),
            None => kind,
        };
        let built = Expression::new(line, kind);
        if built.height > HEIGHT_MAX {
            return Err(self.error(format!("more than {HEIGHT_MAX} operators one in another")));
        }
        Ok(built)
    }

    /// Operands joined by operators of a level or a stronger one.
    fn operands(&mut self, least: usize) -> Result<Expression, Error> {
        let mut left = self.unary()?;
        while let Some((level, operator)) = self.operator().filter(|(level, _)| *level >= least) {
            self.next();
            let right = self.operands(level + 1)?;
            left = self.built(left.line, Of::Binary(operator, Box::new(left), Box::new(right)))?;
        }
        Ok(left)
    }

    /// The operator that comes next, with its level.
    fn operator(&self) -> Option<(usize, &'static str)> {
        let Kind::Punct(own) = self.tokens.first()?.kind else { return None };
        Some((LEVELS.iter().position(|operators| operators.contains(&own))?, own))
    }

    fn unary(&mut self) -> Result<Expression, Error> {
        let first = self.tokens.first();
        let line = first.map_or(self.line, |token| token.line);
        if let Some(operator) = UNARY.iter().find(|own| first.is_some_and(|token| token.is(own))) {
            self.next();
            let of = self.deeper(Self::unary)?;
            return self.built(line, Of::Unary(operator, Box::new(of)));
        }
        for (own, what) in [("*", "pointers are read as p[i]"), ("&", "nothing has an address")] {
            if first.is_some_and(|token| token.is(own)) {
                return Err(self.expected(&format!("an operand ({what})")));
            }
        }
        let cast = first.is_some_and(|token| token.is("("));
        let cast = self
            .tokens
            .get(1)
            .filter(|_| cast)
            .and_then(|token| token.name())
            .and_then(Type::named);
        if let Some(ty) = cast {
            self.tokens = &self.tokens[2..];
            if self.tokens.first().is_some_and(|token| token.is("*")) {
                return Err(self.expected("\")\" (pointers keep their type)"));
            }
            self.take(")")?;
            let of = self.deeper(Self::unary)?;
            return self.built(line, Of::Cast(ty, Box::new(of)));
        }
        self.postfix()
    }

    fn postfix(&mut self) -> Result<Expression, Error> {
        let mut of = self.primary()?;
        loop {
            let line = of.line;
            let kind = if self.takes("[") {
                let index = self.expression()?;
                self.take("]")?;
                Of::Index(Box::new(of), Box::new(index))
            } else if self.takes(".") {
                Of::Member(Box::new(of), self.name()?)
            } else {
                return Ok(of);
            };
            of = self.built(line, kind)?;
        }
    }

    fn primary(&mut self) -> Result<Expression, Error> {
        if self.takes("(") {
            let inner = self.expression()?;
            self.take(")")?;
            return Ok(inner);
        }
        let line = self.tokens.first().map_or(self.line, |token| token.line);
        let kind = match self.tokens.first().map(|token| &token.kind) {
            Some(Kind::Number(text)) => {
                self.next();
                Of::Number(number(text, self.wide).map_err(|message| Error::new(line, message))?)
            }
            Some(Kind::Name(name)) if Type::named(name).is_none() => {
                self.next();
                match &**name {
                    "true" | "false" => Of::Number(Number::Bool(&**name == "true")),
                    "INFINITY" => Of::Number(Number::Float(f32::INFINITY)),
                    "NAN" => Of::Number(Number::Float(f32::NAN)),
                    _ if self.takes("(") => Of::Call(name.clone(), self.arguments()?),
                    _ => Of::Name(name.clone()),
                }
            }
            _ => return Err(self.expected("an expression")),
        };
        self.built(line, kind)
    }

    fn arguments(&mut self) -> Result<Vec<Expression>, Error> {
        let mut arguments = Vec::new();
        while !self.takes(")") {
            if !arguments.is_empty() {
                self.take(",")?;
            }
            arguments.push(self.expression()?);
        }
        Ok(arguments)
    }
}

/// A number as it is written. As in C, an integer is of the first type that holds it; `wide` ones have
/// 64 bits.
fn number(text: &str, wide: bool) -> Result<Number, String> {
    let refuse = || format!("{text:?} is no number");
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let float = hexadecimal.is_none() && text.contains(['.', 'e', 'E']);
    if float {
        let digits = text.strip_suffix(['f', 'F']);
        let digits = digits.ok_or_else(|| format!("{text:?} is a double, expected {text}f"))?;
        return digits.parse().map(Number::Float).map_err(|_| refuse());
    }
    let digits = hexadecimal.unwrap_or(text);
    let end = digits.find(['u', 'U', 'l', 'L']).unwrap_or(digits.len());
    let (digits, suffix) = digits.split_at(end);
    if hexadecimal.is_none() && digits.len() > 1 && digits.starts_with('0') {
        return Err(format!("{text:?} begins with 0, as octal numbers do in C"));
    }
    let suffix = suffix.to_ascii_lowercase();
    if !matches!(suffix.as_str(), "" | "u" | "l" | "ul" | "lu" | "ll" | "ull") {
        return Err(refuse());
    }
    let value = u64::from_str_radix(digits, if hexadecimal.is_some() { 16 } else { 10 })
        .map_err(|_| refuse())?;
    let unsigned = suffix.contains('u');
    let long = wide || suffix.contains('l');
    let fits = |bits: u32, signed: bool| value <= u64::MAX >> (64 - bits + u32::from(signed));
    // Only a hexadecimal number without a suffix may be unsigned.
    let signs: &[bool] = match (unsigned, hexadecimal.is_some()) {
        (true, _) => &[false],
        (false, true) => &[true, false],
        (false, false) => &[true],
    };
    let widths: &[u32] = if long { &[64] } else { &[32, 64] };
    let types =
        widths.iter().flat_map(|&bits| signs.iter().map(move |&signed| Int { bits, signed }));
    let int = types.into_iter().find(|int| fits(int.bits, int.signed)).ok_or_else(refuse)?;
    Ok(Number::Int(int, value))
}
