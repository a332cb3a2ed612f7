//! Conversions between types of values.

use super::{Lower, Value};
use crate::Error;
use crate::syntax::{Expression, Int, Number, Type};
use rspirv::spirv::{Op, Word};

impl Lower<'_> {
    /// The value as one of another type, as C converts it.
    pub(super) fn convert(&mut self, value: Value, to: Type, line: u32) -> Result<Value, Error> {
        let from = value.ty;
        if from == to {
            return Ok(value);
        }
        let refuse = || {
            let message = format!("{} where {} is expected", from.name(), to.name());
            Error::new(line, message)
        };
        let id = match (from, to) {
            (Type::Bool, Type::Int(int)) => {
                let zero = self.writer.constant(Number::Int(wide(int), 0));
                let one = self.writer.constant(Number::Int(wide(int), 1));
                let ty = self.writer.register(to);
                self.writer.op(Op::Select, ty, &[value.id, one, zero])
            }
            (Type::Bool, Type::F32) => {
                let zero = self.writer.constant(Number::Float(0.0));
                let one = self.writer.constant(Number::Float(1.0));
                let ty = self.writer.register(to);
                self.writer.op(Op::Select, ty, &[value.id, one, zero])
            }
            (Type::Int(int), Type::Bool) => {
                let zero = self.writer.constant(Number::Int(wide(int), 0));
                let ty = self.writer.register(to);
                self.writer.op(Op::INotEqual, ty, &[value.id, zero])
            }
            (Type::F32, Type::Bool) => {
                let zero = self.writer.constant(Number::Float(0.0));
                let ty = self.writer.register(to);
                self.writer.op(Op::FUnordNotEqual, ty, &[value.id, zero])
            }
            (Type::Int(a), Type::Int(b)) => self.resized(value.id, a, b),
            (Type::Int(int), Type::F32) => {
                let ty = self.writer.register(to);
                let signed = int.signed || int.bits < 32;
                let op = if signed { Op::ConvertSToF } else { Op::ConvertUToF };
                self.writer.op(op, ty, &[value.id])
            }
            (Type::F32, Type::Int(int)) => {
                let wider = wide(int);
                let ty = self.writer.register(Type::Int(wider));
                let op = if wider.signed { Op::ConvertFToS } else { Op::ConvertFToU };
                let id = self.writer.op(op, ty, &[value.id]);
                self.resized(id, wider, int)
            }
            _ => return Err(refuse()),
        };
        Ok(Value { id, ty: to })
    }

    /// An integer of another type; those below 32 bits are words with all bits right.
    fn resized(&mut self, id: Word, from: Int, to: Int) -> Word {
        let word = self.writer.int(32);
        if to.bits == 64 && from.bits < 64 {
            let long = self.writer.int(64);
            // Below 32 bits a word's sign is the number's.
            let signed = from.signed || from.bits < 32;
            let op = if signed { Op::SConvert } else { Op::UConvert };
            return self.writer.op(op, long, &[id]);
        }
        let id = match from.bits == 64 && to.bits < 64 {
            true => self.writer.op(Op::UConvert, word, &[id]),
            false => id,
        };
        let fits =
            to.bits >= 32 || from.bits < to.bits && (to.signed || !from.signed) || from == to;
        if fits {
            return id;
        }
        let (first, count) = (self.writer.u32(0), self.writer.u32(to.bits));
        let op = if to.signed { Op::BitFieldSExtract } else { Op::BitFieldUExtract };
        self.writer.op(op, word, &[id, first, count])
    }

    /// An expression's value as one of a type.
    pub(super) fn value_as(&mut self, expression: &Expression, ty: Type) -> Result<Word, Error> {
        let value = self.value(expression)?;
        Ok(self.convert(value, ty, expression.line)?.id)
    }
}

/// The type in which an integer is calculated with.
fn wide(int: Int) -> Int {
    if int.bits >= 32 { int } else { Int { bits: 32, signed: true } }
}
