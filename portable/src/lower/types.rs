//! The type of an expression before its code is written: where two values meet, both must be of one type.

use super::{Lower, Named, builtin};
use crate::Error;
use crate::constant;
use crate::syntax::{Expression, Int, Number, Of, Type};

/// Higher expressions are worth a branch around them.
const FREE_HEIGHT_MAX: u32 = 32;

impl Lower<'_> {
    /// The type of an expression.
    pub(super) fn type_of(&self, expression: &Expression) -> Result<Type, Error> {
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

    /// Whether an expression can be calculated where C does not: it is small, reads no memory, calls nothing, and is
    /// defined for all values.
    pub(super) fn is_free(&self, expression: &Expression) -> bool {
        if expression.height > FREE_HEIGHT_MAX {
            return false;
        }
        let is_float = |of| self.type_of(of).is_ok_and(|ty| ty == Type::F32);
        match &expression.kind {
            Of::Number(_) | Of::Name(_) => true,
            Of::Index(..) | Of::Assign(..) => false,
            Of::Call(name, arguments) => {
                builtin::is_free(name)
                    && arguments.iter().all(|each| self.is_free(each))
                    && !(&**name == "F32_BITS" && arguments.iter().any(is_float))
            }
            // A float may be beyond an integer's range.
            Of::Cast(Type::Int(_), of) => self.is_free(of) && !is_float(of),
            Of::Member(of, _) | Of::Unary(_, of) | Of::Cast(_, of) => self.is_free(of),
            Of::Binary("/" | "%", a, b) => {
                let harmless = b.number().is_some_and(|by| {
                    let minus = Number::Int(Int { bits: 32, signed: true }, u64::from(u32::MAX));
                    by.is_true() && constant::binary("==", by, minus) != Some(Number::Bool(true))
                });
                self.is_free(a) && self.is_free(b) && (harmless || is_float(expression))
            }
            Of::Binary(_, a, b) => self.is_free(a) && self.is_free(b),
            Of::Choice(parts) => parts.iter().all(|part| self.is_free(part)),
        }
    }
}
