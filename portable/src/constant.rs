//! The value of expressions of numbers alone: sizes, conditions of `#if`, and bounds of loops.

use crate::syntax::{I32, Int, Number, Of, Type};

impl Number {
    pub(crate) fn is_true(self) -> bool {
        match self {
            Self::Bool(value) => value,
            Self::Int(_, bits) => bits != 0,
            Self::Float(value) => value != 0.0,
        }
    }

    pub(crate) fn ty(self) -> Type {
        match self {
            Self::Bool(_) => Type::Bool,
            Self::Int(int, _) => Type::Int(int),
            Self::Float(_) => Type::F32,
        }
    }

    /// The number as one of another type, as C converts it. `None` for a float that the type does not hold.
    pub(crate) fn to(self, ty: Type) -> Option<Self> {
        match (ty, self) {
            (Type::Bool, _) => Some(Self::Bool(self.is_true())),
            (Type::F32, Self::Bool(value)) => Some(Self::Float(f32::from(value))),
            (Type::F32, Self::Int(int, bits)) => {
                Some(Self::Float(if int.signed { signed(int, bits) as f32 } else { bits as f32 }))
            }
            (Type::F32, Self::Float(_)) => Some(self),
            (Type::Int(to), Self::Bool(value)) => Some(Self::Int(to, u64::from(value))),
            (Type::Int(to), Self::Int(from, bits)) => {
                let wide = if from.signed { signed(from, bits).cast_unsigned() } else { bits };
                Some(Self::Int(to, cut(to, wide)))
            }
            (Type::Int(to), Self::Float(value)) => {
                let whole = f64::from(value.trunc());
                let (least, most) = range(to);
                (whole >= least && whole <= most)
                    .then(|| Self::Int(to, cut(to, (whole as i128 as u128) as u64)))
            }
            _ => None,
        }
    }

    /// A size or an index: a number from 0 that fits into 32 bits.
    pub(crate) fn size(self) -> Option<u32> {
        match self {
            Self::Int(int, bits) if !int.signed || signed(int, bits) >= 0 => {
                u32::try_from(bits).ok()
            }
            _ => None,
        }
    }
}

/// The least and the largest number of a type.
fn range(int: Int) -> (f64, f64) {
    let half = 2f64.powi(int.bits.cast_signed() - 1);
    if int.signed { (-half, half - 1.0) } else { (0.0, 2.0 * half - 1.0) }
}

/// The number that bits of a signed type stand for.
fn signed(int: Int, bits: u64) -> i64 {
    let shift = 64 - int.bits;
    (bits << shift).cast_signed() >> shift
}

/// The lowest bits, as many as the type has.
fn cut(int: Int, bits: u64) -> u64 {
    bits & (u64::MAX >> (64 - int.bits))
}

/// The value of an operator on numbers. What has no value, like a quotient by 0, is no constant.
pub(crate) fn folded(kind: &Of) -> Option<Number> {
    match kind {
        Of::Cast(ty, of) => of.number()?.to(*ty),
        Of::Unary(operator, of) => unary(operator, of.number()?),
        Of::Binary(operator @ ("&&" | "||"), a, b) => {
            let first = a.number()?.is_true();
            let decides = first == (*operator == "||");
            Some(Number::Bool(if decides { first } else { b.number()?.is_true() }))
        }
        Of::Binary(operator, a, b) => binary(operator, a.number()?, b.number()?),
        Of::Choice(parts) => {
            let [condition, a, b] = &**parts;
            let (a, b) = (a.number()?, b.number()?);
            let chosen = if condition.number()?.is_true() { a } else { b };
            chosen.to(a.ty().common(b.ty()))
        }
        _ => None,
    }
}

fn unary(operator: &str, of: Number) -> Option<Number> {
    let promoted = of.to(of.ty().promoted())?;
    Some(match (operator, promoted) {
        ("!", _) => Number::Bool(!of.is_true()),
        ("+", _) => promoted,
        ("-", Number::Float(value)) => Number::Float(-value),
        ("-", Number::Int(int, bits)) => Number::Int(int, cut(int, bits.wrapping_neg())),
        ("~", Number::Int(int, bits)) => Number::Int(int, cut(int, !bits)),
        _ => return None,
    })
}

pub(crate) fn binary(operator: &str, a: Number, b: Number) -> Option<Number> {
    if matches!(operator, "<<" | ">>") {
        let by = Some(b).filter(|by| by.ty().is_integer()).and_then(|by| by.to(I32))?.size();
        let Number::Int(int, bits) = a.to(a.ty().promoted())? else { return None };
        let by = by.filter(|by| *by < int.bits)?;
        return Some(Number::Int(
            int,
            match operator {
                "<<" => cut(int, bits << by),
                _ if int.signed => cut(int, (signed(int, bits) >> by).cast_unsigned()),
                _ => bits >> by,
            },
        ));
    }
    let common = a.ty().common(b.ty());
    match (a.to(common)?, b.to(common)?) {
        (Number::Float(a), Number::Float(b)) => floats(operator, a, b),
        (Number::Int(int, a), Number::Int(_, b)) => integers(operator, int, a, b),
        _ => None,
    }
}

fn floats(operator: &str, a: f32, b: f32) -> Option<Number> {
    Some(match operator {
        "+" => Number::Float(a + b),
        "-" => Number::Float(a - b),
        "*" => Number::Float(a * b),
        "/" => Number::Float(a / b),
        "<" => Number::Bool(a < b),
        ">" => Number::Bool(a > b),
        "<=" => Number::Bool(a <= b),
        ">=" => Number::Bool(a >= b),
        "==" => Number::Bool(a == b),
        "!=" => Number::Bool(a != b),
        _ => return None,
    })
}

fn integers(operator: &str, int: Int, a: u64, b: u64) -> Option<Number> {
    let (sa, sb) = (signed(int, a), signed(int, b));
    let order = if int.signed { sa.cmp(&sb) } else { a.cmp(&b) };
    let bits = match operator {
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" if int.signed => sa.checked_div(sb)?.cast_unsigned(),
        "/" => a.checked_div(b)?,
        "%" if int.signed => sa.checked_rem(sb)?.cast_unsigned(),
        "%" => a.checked_rem(b)?,
        "&" => a & b,
        "|" => a | b,
        "^" => a ^ b,
        "<" => return Some(Number::Bool(order.is_lt())),
        ">" => return Some(Number::Bool(order.is_gt())),
        "<=" => return Some(Number::Bool(order.is_le())),
        ">=" => return Some(Number::Bool(order.is_ge())),
        "==" => return Some(Number::Bool(order.is_eq())),
        "!=" => return Some(Number::Bool(order.is_ne())),
        _ => return None,
    };
    Some(Number::Int(int, cut(int, bits)))
}
