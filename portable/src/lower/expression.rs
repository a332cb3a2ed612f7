//! Expressions: values, and what assigns.

use super::place::part_of;
use super::{Lower, Value};
use crate::Error;
use crate::syntax::{Expression, Int, Number, Of, Type};
use rspirv::dr::Operand;
use rspirv::spirv::{Op, Word};

impl Lower<'_> {
    /// An expression as a statement.
    pub(super) fn effect(&mut self, expression: &Expression) -> Result<(), Error> {
        let line = expression.line;
        match &expression.kind {
            Of::Assign(operator, to, value) => {
                let place = self.place(to)?;
                let value = match operator {
                    None => self.value(value)?,
                    Some(operator) => {
                        let (old, value) = (self.read(place, line)?, self.value(value)?);
                        self.combined(operator, old, value, line)?
                    }
                };
                self.write(place, value, line)
            }
            Of::Call(name, arguments) => self.call(name, arguments, line).map(|_| ()),
            _ => {
                Err(Error::new(line, "the statement does nothing, expected an assignment or call"))
            }
        }
    }

    /// The value of an expression.
    pub(super) fn value(&mut self, expression: &Expression) -> Result<Value, Error> {
        self.deeper(expression.line)?;
        let value = self.value_of(expression)?;
        self.depth -= 1;
        Ok(value)
    }

    fn value_of(&mut self, expression: &Expression) -> Result<Value, Error> {
        let line = expression.line;
        match &expression.kind {
            Of::Number(number) => Ok(self.number(*number)),
            Of::Name(_) | Of::Index(..) => {
                let place = self.place(expression)?;
                self.read(place, line)
            }
            Of::Member(of, part) => {
                let value = self.value(of)?;
                let part = part_of(value.ty, part, line)?;
                let float = self.writer.register(Type::F32);
                let operands = vec![Operand::IdRef(value.id), Operand::LiteralBit32(part)];
                let id = self.writer.instruction(Op::CompositeExtract, Some(float), operands);
                Ok(Value { id, ty: Type::F32 })
            }
            Of::Cast(ty, of) => {
                let value = self.value(of)?;
                self.convert(value, *ty, line)
            }
            Of::Unary(operator, of) => self.unary(operator, of, line),
            Of::Binary(operator @ ("&&" | "||"), a, b) => self.both(operator, a, b),
            Of::Binary(operator, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                self.combined(operator, a, b, line)
            }
            Of::Choice(parts) => self.chosen(parts),
            Of::Call(name, arguments) => {
                let value = self.call(name, arguments, line)?;
                value.ok_or_else(|| Error::new(line, format!("{name} gives no value")))
            }
            Of::Assign(..) => Err(Error::new(line, "assignments are statements of their own")),
        }
    }

    fn unary(&mut self, operator: &str, of: &Expression, line: u32) -> Result<Value, Error> {
        let value = self.value(of)?;
        if operator == "!" {
            let value = self.convert(value, Type::Bool, line)?;
            let bool_ = self.writer.register(Type::Bool);
            let id = self.writer.op(Op::LogicalNot, bool_, &[value.id]);
            return Ok(Value { id, ty: Type::Bool });
        }
        let ty = value.ty.promoted();
        let value = self.convert(value, ty, line)?;
        let op = match (operator, ty) {
            ("+", _) => return Ok(value),
            ("-", Type::F32) => Op::FNegate,
            ("-", Type::Int(_)) => Op::SNegate,
            ("~", Type::Int(_)) => Op::Not,
            _ => {
                let message = format!("{} has no operator {operator}", ty.name());
                return Err(Error::new(line, message));
            }
        };
        let register = self.writer.register(ty);
        Ok(Value { id: self.writer.op(op, register, &[value.id]), ty })
    }

    /// Two values joined by an operator.
    fn combined(&mut self, operator: &str, a: Value, b: Value, line: u32) -> Result<Value, Error> {
        let refuse =
            |ty: Type| Error::new(line, format!("{} has no operator {operator}", ty.name()));
        for value in [a, b] {
            if !value.ty.is_number() {
                return Err(refuse(value.ty));
            }
        }
        if matches!(operator, "<<" | ">>") {
            return self.shifted(operator, a, b, line);
        }
        let common = a.ty.common(b.ty);
        let (a, b) = (self.convert(a, common, line)?, self.convert(b, common, line)?);
        let (op, compares) = operation(operator, common).ok_or_else(|| refuse(common))?;
        let ty = if compares { Type::Bool } else { common };
        let register = self.writer.register(ty);
        if operator == "%" && op == Op::SDiv {
            let quotient = self.writer.op(op, register, &[a.id, b.id]);
            let whole = self.writer.op(Op::IMul, register, &[quotient, b.id]);
            return Ok(Value { id: self.writer.op(Op::ISub, register, &[a.id, whole]), ty });
        }
        Ok(Value { id: self.writer.op(op, register, &[a.id, b.id]), ty })
    }

    fn shifted(&mut self, operator: &str, a: Value, by: Value, line: u32) -> Result<Value, Error> {
        let ty = a.ty.promoted();
        let (Type::Int(int), Type::Int(_)) = (ty, by.ty.promoted()) else {
            return Err(Error::new(line, format!("float has no operator {operator}")));
        };
        let a = self.convert(a, ty, line)?;
        let promoted = by.ty.promoted();
        let by = self.convert(by, promoted, line)?;
        let op = match (operator, int.signed) {
            ("<<", _) => Op::ShiftLeftLogical,
            (_, true) => Op::ShiftRightArithmetic,
            (_, false) => Op::ShiftRightLogical,
        };
        let register = self.writer.register(ty);
        Ok(Value { id: self.writer.op(op, register, &[a.id, by.id]), ty })
    }

    /// `&&` and `||`: the right side is calculated only where it counts, unless that makes no difference.
    fn both(&mut self, operator: &str, a: &Expression, b: &Expression) -> Result<Value, Error> {
        let and = operator == "&&";
        // One side may be known.
        for (known, other) in [(a, b), (b, a)] {
            if known.number().is_some_and(|known| known.is_true() == and) {
                let id = self.value_as(other, Type::Bool)?;
                return Ok(Value { id, ty: Type::Bool });
            }
        }
        if a.number().is_some() {
            return Ok(self.number(Number::Bool(!and)));
        }
        let first = self.value_as(a, Type::Bool)?;
        let bool_ = self.writer.register(Type::Bool);
        if self.is_free(b) {
            let second = self.value_as(b, Type::Bool)?;
            let op = if and { Op::LogicalAnd } else { Op::LogicalOr };
            return Ok(Value { id: self.writer.op(op, bool_, &[first, second]), ty: Type::Bool });
        }
        let known = self.number(Number::Bool(!and));
        let counts = if and { first } else { self.writer.op(Op::LogicalNot, bool_, &[first]) };
        let right = |lower: &mut Self| lower.value_as(b, Type::Bool);
        self.branched(counts, Type::Bool, right, |_| Ok(known.id))
    }

    /// `c ? a : b`.
    fn chosen(&mut self, parts: &[Expression; 3]) -> Result<Value, Error> {
        let [condition, a, b] = parts;
        let (own, other) = (self.type_of(a)?, self.type_of(b)?);
        let ty = if own == other { own } else { own.common(other) };
        if let Some(known) = condition.number() {
            let id = self.value_as(if known.is_true() { a } else { b }, ty)?;
            return Ok(Value { id, ty });
        }
        let condition = self.value_as(condition, Type::Bool)?;
        if self.is_free(a) && self.is_free(b) && ty != Type::F32x4 {
            let (a, b) = (self.value_as(a, ty)?, self.value_as(b, ty)?);
            let register = self.writer.register(ty);
            return Ok(Value { id: self.writer.op(Op::Select, register, &[condition, a, b]), ty });
        }
        self.branched(condition, ty, |lower| lower.value_as(a, ty), |lower| lower.value_as(b, ty))
    }

    /// A value by one of two ways.
    fn branched(
        &mut self,
        condition: Word,
        ty: Type,
        then: impl FnOnce(&mut Self) -> Result<Word, Error>,
        other: impl FnOnce(&mut Self) -> Result<Word, Error>,
    ) -> Result<Value, Error> {
        let [yes, no, after] = [self.writer.id(), self.writer.id(), self.writer.id()];
        self.selection(after);
        self.writer.branch_if(condition, yes, no);
        // A side may end its path: it then gives nothing.
        let mut given = Vec::new();
        self.writer.enter(yes);
        let a = then(self)?;
        given.extend(self.writer.here().map(|from| [a, from]));
        self.writer.branch(after);
        self.writer.enter(no);
        let b = other(self)?;
        given.extend(self.writer.here().map(|from| [b, from]));
        self.writer.branch(after);
        self.writer.merge(after);
        let register = self.writer.register(ty);
        let id = self.writer.op(Op::Phi, register, &given.concat());
        Ok(Value { id, ty })
    }
}

/// The instruction of an operator on a type, and whether it compares.
fn operation(operator: &str, ty: Type) -> Option<(Op, bool)> {
    let signed = matches!(ty, Type::Int(Int { signed: true, .. }));
    let float = ty == Type::F32;
    let of = |of_float, of_signed, of_unsigned| match (float, signed) {
        (true, _) => of_float,
        (_, true) => of_signed,
        _ => of_unsigned,
    };
    let whole = |op| (!float).then_some((op, false));
    Some(match operator {
        "+" => (of(Op::FAdd, Op::IAdd, Op::IAdd), false),
        "-" => (of(Op::FSub, Op::ISub, Op::ISub), false),
        "*" => (of(Op::FMul, Op::IMul, Op::IMul), false),
        "/" => (of(Op::FDiv, Op::SDiv, Op::UDiv), false),
        // Vulkan leaves a remainder of negative numbers undefined, so that it comes from the quotient.
        "%" => return whole(if signed { Op::SDiv } else { Op::UMod }),
        "&" => return whole(Op::BitwiseAnd),
        "|" => return whole(Op::BitwiseOr),
        "^" => return whole(Op::BitwiseXor),
        "<" => (of(Op::FOrdLessThan, Op::SLessThan, Op::ULessThan), true),
        ">" => (of(Op::FOrdGreaterThan, Op::SGreaterThan, Op::UGreaterThan), true),
        "<=" => (of(Op::FOrdLessThanEqual, Op::SLessThanEqual, Op::ULessThanEqual), true),
        ">=" => (of(Op::FOrdGreaterThanEqual, Op::SGreaterThanEqual, Op::UGreaterThanEqual), true),
        "==" => (of(Op::FOrdEqual, Op::IEqual, Op::IEqual), true),
        "!=" => (of(Op::FUnordNotEqual, Op::INotEqual, Op::INotEqual), true),
        _ => return None,
    })
}
