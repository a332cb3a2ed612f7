//! The type of an expression before its code is written: where two values meet, both must be of one type.

use super::{Lower, Named, builtin};
use crate::Error;
use crate::constant;
use crate::syntax::{Expression, Of, Type};

impl Lower<'_> {
    /// The type of an expression.
    pub(super) fn type_of(&self, expression: &Expression) -> Result<Type, Error> {
        if let Some(number) = constant::evaluate(expression) {
            return Ok(number.ty());
        }
        let line = expression.line;
        Ok(match &expression.kind {
            Of::Number(number) => number.ty(),
            Of::Name(name) => match self.find(name, line)? {
                Named::Variable { ty, .. } => *ty,
                Named::Pointer(_) => {
                    return Err(Error::new(
                        line,
                        format!("{name} is a pointer, expected {name}[i]"),
                    ));
                }
            },
            Of::Index(of, _) => {
                self.element_of(of).ok_or_else(|| Error::new(line, "an index into no array"))?
            }
            Of::Member(..) => Type::F32,
            Of::Cast(ty, _) => *ty,
            Of::Unary("!", _)
            | Of::Binary("&&" | "||" | "<" | ">" | "<=" | ">=" | "==" | "!=", ..) => Type::Bool,
            Of::Unary(_, of) => self.type_of(of)?.promoted(),
            Of::Binary("<<" | ">>", a, _) => self.type_of(a)?.promoted(),
            Of::Binary(_, a, b) => self.type_of(a)?.common(self.type_of(b)?),
            Of::Choice(parts) => {
                let (a, b) = (self.type_of(&parts[1])?, self.type_of(&parts[2])?);
                if a == b { a } else { a.common(b) }
            }
            Of::Call(name, _) => match builtin::type_of(name) {
                Some(ty) => ty,
                None => self.callee(name, line)?.result,
            },
            Of::Assign(..) => Type::Void,
        })
    }

    /// Whether an expression can be calculated where C does not: it reads no memory and calls nothing.
    pub(super) fn is_free(&self, expression: &Expression) -> bool {
        match &expression.kind {
            Of::Number(_) | Of::Name(_) => true,
            Of::Index(..) | Of::Assign(..) => constant::evaluate(expression).is_some(),
            Of::Call(name, arguments) => {
                builtin::is_free(name) && arguments.iter().all(|each| self.is_free(each))
            }
            Of::Member(of, _) | Of::Unary(_, of) | Of::Cast(_, of) => self.is_free(of),
            Of::Binary(_, a, b) => self.is_free(a) && self.is_free(b),
            Of::Choice(parts) => parts.iter().all(|part| self.is_free(part)),
        }
    }
}
