//! Loads and stores of the language: halves, neighbours in one load, and the atomic.

use super::Lower;
use super::place::Base;
use crate::Error;
use crate::module::View;
use crate::syntax::{Expression, Int, Type, U32};
use rspirv::dr::Operand;
use rspirv::spirv::{Decoration, GlslStd450Op, Op, Word};

/// The scope of atomics, and that they order no other memory.
const DEVICE: u32 = 1;
const RELAXED: u32 = 0;

/// An element of a buffer.
struct Element {
    binding: u32,
    /// Whether the kernel writes nothing to the buffer.
    unwritten: bool,
    /// Whether the pointer is const.
    constant: bool,
    at: Word,
    ty: Type,
}

impl Lower<'_> {
    /// The element of a pointer to one of `types` and an index.
    fn element(
        &mut self,
        pointer: &Expression,
        at: &Expression,
        types: &[Type],
    ) -> Result<Element, Error> {
        let line = pointer.line;
        let pointer = self.pointer(pointer)?;
        let Base::Buffer { binding, constant: unwritten } = pointer.base else {
            return Err(Error::new(line, "an array where a buffer is expected"));
        };
        if !types.contains(&pointer.ty) {
            let names: Vec<&str> = types.iter().map(|ty| ty.name()).collect();
            let message =
                format!("a buffer of {}, expected {}", pointer.ty.name(), names.join(" or "));
            return Err(Error::new(line, message));
        }
        let at = self.index(at)?;
        let word = self.writer.int(32);
        let at = pointer.offset.map_or(at, |offset| self.writer.op(Op::IAdd, word, &[offset, at]));
        Ok(Element { binding, unwritten, constant: pointer.constant, at, ty: pointer.ty })
    }

    /// A pointer to the part of a buffer, seen in a view, that holds an element; a part has 2 to the `by` elements.
    fn seen_as(&mut self, view: View, element: &Element, by: u32) -> Word {
        let mut at = element.at;
        if by > 0 {
            let (word, by) = (self.writer.int(32), self.writer.u32(by));
            at = self.writer.op(Op::ShiftRightLogical, word, &[at, by]);
        }
        self.view_at(element.binding, view, element.unwritten, at)
    }

    pub(super) fn load_half(
        &mut self,
        half: Type,
        pointer: &Expression,
        at: &Expression,
    ) -> Result<Word, Error> {
        let element = self.element(pointer, at, &[half])?;
        let place = self.seen_as(View::Of(half), &element, 0);
        let stored = self.writer.stored(half);
        let id = self.writer.op(Op::Load, stored, &[place]);
        let float = self.writer.register(Type::F32);
        if half == Type::F16 {
            return Ok(self.writer.op(Op::FConvert, float, &[id]));
        }
        let word = self.writer.int(32);
        let low = self.writer.op(Op::UConvert, word, &[id]);
        Ok(self.upper_half(low))
    }

    /// The float whose upper 16 bits are a word's lower ones.
    fn upper_half(&mut self, low: Word) -> Word {
        let (word, float) = (self.writer.int(32), self.writer.register(Type::F32));
        let by = self.writer.u32(16);
        let bits = self.writer.op(Op::ShiftLeftLogical, word, &[low, by]);
        self.writer.op(Op::Bitcast, float, &[bits])
    }

    pub(super) fn store_half(&mut self, half: Type, arguments: &[Expression]) -> Result<(), Error> {
        let value = self.value_as(&arguments[0], Type::F32)?;
        let element = self.element(&arguments[1], &arguments[2], &[half])?;
        if element.constant {
            return Err(Error::new(arguments[1].line, "what is const is written"));
        }
        let place = self.seen_as(View::Of(half), &element, 0);
        let stored = self.writer.stored(half);
        let id = if half == Type::F16 {
            let id = self.writer.op(Op::FConvert, stored, &[value]);
            let nearest = Operand::FPRoundingMode(rspirv::spirv::FPRoundingMode::RTE);
            if self.writer.is_open() {
                self.writer.decorate(id, Decoration::FPRoundingMode, vec![nearest]);
            }
            id
        } else {
            let rounded = self.written.get(crate::ROUNDED_BF16).copied();
            let rounded = rounded.ok_or_else(|| {
                Error::new(arguments[0].line, "the language lacks its own function for bf16")
            })?;
            let word = self.writer.int(32);
            let bits = self.writer.op(Op::FunctionCall, word, &[rounded, value]);
            self.writer.op(Op::UConvert, stored, &[bits])
        };
        self.writer.act(Op::Store, [place, id].map(Operand::IdRef).to_vec());
        Ok(())
    }

    /// Four neighbours of a buffer, the first at a multiple of four.
    pub(super) fn load_four(
        &mut self,
        pointer: &Expression,
        at: &Expression,
    ) -> Result<Word, Error> {
        let types = [Type::F32, Type::F16, Type::BF16];
        let element = self.element(pointer, at, &types)?;
        let vector = self.writer.register(Type::F32x4);
        if element.ty == Type::F32 {
            let place = self.seen_as(View::F32x4, &element, 2);
            return Ok(self.writer.op(Op::Load, vector, &[place]));
        }
        let place = self.seen_as(View::Words(2), &element, 2);
        let word = self.writer.int(32);
        let pair = self.writer.vector(word, 2);
        let words = self.writer.op(Op::Load, pair, &[place]);
        let mut parts = Vec::new();
        for half in 0..2 {
            let operands = vec![Operand::IdRef(words), Operand::LiteralBit32(half)];
            let bits = self.writer.instruction(Op::CompositeExtract, Some(word), operands);
            parts.extend(self.halves(bits, element.ty));
        }
        Ok(self.writer.op(Op::CompositeConstruct, vector, &parts))
    }

    /// The two halves in a word, as floats.
    fn halves(&mut self, bits: Word, ty: Type) -> [Word; 2] {
        let (word, float) = (self.writer.int(32), self.writer.register(Type::F32));
        if ty == Type::BF16 {
            let mask = self.writer.u32(0xffff_0000);
            let high = self.writer.op(Op::BitwiseAnd, word, &[bits, mask]);
            return [self.upper_half(bits), self.writer.op(Op::Bitcast, float, &[high])];
        }
        let pair = self.writer.vector(float, 2);
        let both = self.writer.extended(GlslStd450Op::UnpackHalf2x16, pair, &[bits]);
        [0, 1].map(|at| {
            let operands = vec![Operand::IdRef(both), Operand::LiteralBit32(at)];
            self.writer.instruction(Op::CompositeExtract, Some(float), operands)
        })
    }

    /// Four bytes of a buffer as a word.
    pub(super) fn load_word(
        &mut self,
        pointer: &Expression,
        at: &Expression,
    ) -> Result<Word, Error> {
        let int = |bits, signed| Type::Int(Int { bits, signed });
        let types = [int(8, false), int(8, true), int(16, false), int(16, true)];
        let element = self.element(pointer, at, &types)?;
        let by = if element.ty.bytes() == 1 { 2 } else { 1 };
        let place = self.seen_as(View::Of(U32), &element, by);
        let word = self.writer.int(32);
        Ok(self.writer.op(Op::Load, word, &[place]))
    }

    /// `compare_and_swap(pointer, old, new)`: what was there before.
    pub(super) fn swap(&mut self, arguments: &[Expression]) -> Result<Word, Error> {
        let line = arguments[0].line;
        let pointer = self.pointer(&arguments[0])?;
        let (Base::Buffer { binding, .. }, false) = (&pointer.base, pointer.constant) else {
            return Err(Error::new(line, "compare_and_swap takes a buffer that is not const"));
        };
        if pointer.ty != U32 {
            return Err(Error::new(line, "compare_and_swap takes a pointer to u32"));
        }
        let at = match pointer.offset {
            Some(offset) => offset,
            None => self.writer.u32(0),
        };
        let place = self.view_at(*binding, View::Of(U32), false, at);
        let (old, new) = (self.value_as(&arguments[1], U32)?, self.value_as(&arguments[2], U32)?);
        let word = self.writer.int(32);
        let (scope, order) = (self.writer.u32(DEVICE), self.writer.u32(RELAXED));
        let operands = [place, scope, order, order, new, old];
        Ok(self.writer.op(Op::AtomicCompareExchange, word, &operands))
    }
}
