//! Types and constants, each of which a module has once.

use super::Writer;
use crate::Need;
use crate::syntax::{I32, Int, Number, Type, U32};
use rspirv::dr::Operand;
use rspirv::spirv::{Op, StorageClass, Word};

impl Writer {
    pub(crate) fn void(&mut self) -> Word {
        self.once(Op::TypeVoid, None, vec![])
    }

    /// The type of values in registers: integers have 32 or 64 bits, and no sign of their own.
    pub(crate) fn register(&mut self, ty: Type) -> Word {
        match ty {
            Type::Void => self.void(),
            Type::Bool => self.once(Op::TypeBool, None, vec![]),
            Type::Int(Int { bits: 64, .. }) => self.int(64),
            Type::Int(_) => self.int(32),
            Type::F32 | Type::F16 | Type::BF16 => self.float(32),
            Type::F32x4 => {
                let element = self.float(32);
                self.vector(element, 4)
            }
        }
    }

    /// The type of elements in a buffer or in local memory.
    pub(crate) fn stored(&mut self, ty: Type) -> Word {
        match ty {
            Type::Int(Int { bits, .. }) => self.int(bits),
            Type::F16 => self.float(16),
            Type::BF16 => self.int(16),
            other => self.register(other),
        }
    }

    pub(crate) fn int(&mut self, bits: u32) -> Word {
        if bits == 64 {
            self.needs.insert(Need::Int64);
        }
        self.once(Op::TypeInt, None, vec![Operand::LiteralBit32(bits), Operand::LiteralBit32(0)])
    }

    fn float(&mut self, bits: u32) -> Word {
        self.once(Op::TypeFloat, None, vec![Operand::LiteralBit32(bits)])
    }

    pub(crate) fn vector(&mut self, element: Word, count: u32) -> Word {
        let operands = vec![Operand::IdRef(element), Operand::LiteralBit32(count)];
        self.once(Op::TypeVector, None, operands)
    }

    /// An array of as many dimensions as there are sizes.
    pub(super) fn array(&mut self, element: Word, sizes: &[u32]) -> Word {
        sizes.iter().rev().fold(element, |element, size| {
            let size = self.u32(*size);
            self.once(Op::TypeArray, None, vec![Operand::IdRef(element), Operand::IdRef(size)])
        })
    }

    pub(crate) fn pointer(&mut self, class: StorageClass, to: Word) -> Word {
        let operands = vec![Operand::StorageClass(class), Operand::IdRef(to)];
        self.once(Op::TypePointer, None, operands)
    }

    pub(crate) fn function_type(&mut self, result: Word, parameters: &[Word]) -> Word {
        let ids = std::iter::once(&result).chain(parameters);
        self.once(Op::TypeFunction, None, ids.map(|id| Operand::IdRef(*id)).collect())
    }

    pub(crate) fn u32(&mut self, value: u32) -> Word {
        let ty = self.int(32);
        self.once(Op::Constant, Some(ty), vec![Operand::LiteralBit32(value)])
    }

    pub(crate) fn constant(&mut self, number: Number) -> Word {
        let ty = self.register(number.ty());
        match number {
            Number::Bool(true) => self.once(Op::ConstantTrue, Some(ty), vec![]),
            Number::Bool(false) => self.once(Op::ConstantFalse, Some(ty), vec![]),
            Number::Int(Int { bits: 64, .. }, value) => {
                self.once(Op::Constant, Some(ty), vec![Operand::LiteralBit64(value)])
            }
            Number::Int(int, value) => {
                // In a register a number of a smaller type is a word with its sign.
                let wide = Number::Int(int, value).to(if int.signed { I32 } else { U32 });
                let low = match wide {
                    Some(Number::Int(_, low)) => u32::try_from(low).unwrap_or(0),
                    _ => 0,
                };
                self.once(Op::Constant, Some(ty), vec![Operand::LiteralBit32(low)])
            }
            Number::Float(value) => {
                self.once(Op::Constant, Some(ty), vec![Operand::LiteralBit32(value.to_bits())])
            }
        }
    }
}
