//! Pointers and places: elements of buffers and arrays, variables, and parts of vectors.

use super::{Lower, Named, Value};
use crate::Error;
use crate::module::View;
use crate::syntax::{Expression, Int, Of, Type, U32};
use rspirv::dr::Operand;
use rspirv::spirv::{Op, StorageClass, Word};

/// What a pointer points into.
#[derive(Debug, Clone)]
pub(super) enum Base {
    Buffer {
        binding: u32,
        /// Whether the kernel writes nothing to it.
        constant: bool,
    },
    /// An array, with the indices that are given so far; the sizes are those of all dimensions.
    Array { pointer: Word, indices: Vec<Word>, sizes: Vec<u32>, local: bool },
}

/// A pointer to elements of a type, `offset` elements after the base's first one.
#[derive(Debug, Clone)]
pub(super) struct Pointer {
    pub(super) base: Base,
    pub(super) offset: Option<Word>,
    pub(super) ty: Type,
    /// Whether nothing is written through it.
    pub(super) constant: bool,
}

/// Where a value is read or written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pointer: Word,
    /// The type in a register.
    ty: Type,
    /// Whether it has the form of memory rather than of a register.
    memory: bool,
    constant: bool,
}

impl Lower<'_> {
    /// The pointer that an expression gives: a name, a part of an array, or one of these moved.
    pub(super) fn pointer(&mut self, expression: &Expression) -> Result<Pointer, Error> {
        let line = expression.line;
        match &expression.kind {
            Of::Name(name) => match self.find(name, line)? {
                Named::Pointer(pointer) => Ok(pointer.clone()),
                Named::Variable { .. } => {
                    Err(Error::new(line, format!("{name} is a number, expected a pointer")))
                }
            },
            Of::Binary("+", left, right) => {
                let (pointer, by) =
                    if self.is_pointer(left) { (left, right) } else { (right, left) };
                let pointer = self.pointer(pointer)?;
                let by = self.index(by)?;
                self.moved(pointer, by, line)
            }
            Of::Index(of, at) => {
                let pointer = self.pointer(of)?;
                let at = self.index(at)?;
                match self.inside(pointer, at, line)? {
                    (pointer, false) => Ok(pointer),
                    (_, true) => Err(Error::new(line, "a number where a pointer is expected")),
                }
            }
            _ => Err(Error::new(line, "a pointer is a name, p + i or a part of an array")),
        }
    }

    /// Whether an expression is a pointer rather than a number.
    pub(super) fn is_pointer(&self, expression: &Expression) -> bool {
        self.rank(expression) > 0
    }

    /// How many indices an expression takes before it is a number.
    fn rank(&self, expression: &Expression) -> usize {
        match &expression.kind {
            Of::Name(name) => match self.find(name, expression.line) {
                Ok(Named::Pointer(pointer)) => pointer.rank(),
                _ => 0,
            },
            Of::Binary("+", left, right) => self.rank(left).max(self.rank(right)),
            Of::Index(of, _) => self.rank(of).saturating_sub(1),
            _ => 0,
        }
    }

    /// The type of a pointer's elements, without code.
    pub(super) fn element_of(&self, expression: &Expression) -> Option<Type> {
        match &expression.kind {
            Of::Name(name) => match self.find(name, expression.line) {
                Ok(Named::Pointer(pointer)) => Some(pointer.ty),
                _ => None,
            },
            Of::Binary("+", left, right) => {
                self.element_of(left).or_else(|| self.element_of(right))
            }
            Of::Index(of, _) => self.element_of(of),
            _ => None,
        }
    }

    fn moved(&mut self, pointer: Pointer, by: Word, line: u32) -> Result<Pointer, Error> {
        if pointer.rank() != 1 {
            return Err(Error::new(line, "an array of several dimensions cannot be moved"));
        }
        Ok(Pointer { offset: Some(self.sum(pointer.offset, by)), ..pointer })
    }

    fn sum(&mut self, offset: Option<Word>, by: Word) -> Word {
        let word = self.writer.int(32);
        offset.map_or(by, |offset| self.writer.op(Op::IAdd, word, &[offset, by]))
    }

    /// An index as a word.
    pub(super) fn index(&mut self, index: &Expression) -> Result<Word, Error> {
        let value = self.value(index)?;
        if !value.ty.is_integer() || matches!(value.ty, Type::Int(Int { bits: 64, .. })) {
            let ty = value.ty.name();
            let message = format!("an index is {ty}, expected an integer of at most 32 bits");
            return Err(Error::new(index.line, message));
        }
        Ok(self.convert(value, U32, index.line)?.id)
    }

    /// The pointer at one more index; whether it is an element now.
    fn inside(
        &mut self,
        mut pointer: Pointer,
        at: Word,
        line: u32,
    ) -> Result<(Pointer, bool), Error> {
        let rank = pointer.rank();
        if rank == 0 {
            return Err(Error::new(line, "more indices than dimensions"));
        }
        if rank == 1 {
            pointer.offset = Some(self.sum(pointer.offset, at));
            return Ok((pointer, true));
        }
        if let Base::Array { indices, .. } = &mut pointer.base {
            indices.push(at);
        }
        Ok((pointer, false))
    }

    /// The place of the pointer's element, which is its first one without an index.
    pub(super) fn place_of(&mut self, pointer: &Pointer, at: Option<Word>) -> Place {
        let at = match (pointer.offset, at) {
            (None, None) => self.writer.u32(0),
            (Some(offset), None) => offset,
            (offset, Some(at)) => self.sum(offset, at),
        };
        let Pointer { ty, constant, .. } = *pointer;
        match &pointer.base {
            Base::Buffer { binding, constant: unwritten } => {
                let pointer = self.view_at(*binding, View::Of(ty), *unwritten, at);
                Place { pointer, ty, memory: true, constant }
            }
            Base::Array { pointer, indices, local, .. } => {
                let (class, element) = match local {
                    true => (StorageClass::Workgroup, self.writer.stored(ty)),
                    false => (StorageClass::Function, self.writer.register(ty)),
                };
                let to = self.writer.pointer(class, element);
                let all: Vec<Word> =
                    std::iter::once(*pointer).chain(indices.iter().copied()).chain([at]).collect();
                let pointer = self.writer.op(Op::AccessChain, to, &all);
                Place { pointer, ty, memory: *local, constant }
            }
        }
    }

    /// A pointer to an element of a buffer in a view.
    pub(super) fn view_at(&mut self, binding: u32, view: View, constant: bool, at: Word) -> Word {
        let variable = self.writer.buffer(binding, view, constant);
        let element = self.writer.element(view);
        let to = self.writer.pointer(StorageClass::StorageBuffer, element);
        let first = self.writer.u32(0);
        self.writer.op(Op::AccessChain, to, &[variable, first, at])
    }

    /// The place that an expression names.
    pub(super) fn place(&mut self, expression: &Expression) -> Result<Place, Error> {
        let line = expression.line;
        match &expression.kind {
            Of::Name(name) => match self.find(name, line)? {
                &Named::Variable { pointer, ty, constant } => {
                    Ok(Place { pointer, ty, memory: false, constant })
                }
                Named::Pointer(_) => {
                    Err(Error::new(line, format!("{name} is a pointer, expected {name}[i]")))
                }
            },
            Of::Index(of, at) => {
                let pointer = self.pointer(of)?;
                let at = self.index(at)?;
                let (pointer, element) = self.inside(pointer, at, line)?;
                if !element {
                    return Err(Error::new(line, "fewer indices than dimensions"));
                }
                Ok(self.place_of(&pointer, None))
            }
            Of::Member(of, part) => {
                let place = self.place(of)?;
                let part = part_of(place.ty, part, line)?;
                let float = self.writer.register(Type::F32);
                let to = self.writer.pointer(StorageClass::Function, float);
                let part = self.writer.u32(part);
                if place.memory {
                    return Err(Error::new(line, "parts of a vector in memory are not written"));
                }
                let pointer = self.writer.op(Op::AccessChain, to, &[place.pointer, part]);
                Ok(Place { pointer, ty: Type::F32, ..place })
            }
            _ => Err(Error::new(line, "this is no place that can be written")),
        }
    }

    pub(super) fn read(&mut self, place: Place, line: u32) -> Result<Value, Error> {
        let Place { pointer, ty, memory, .. } = place;
        if matches!(ty, Type::F16 | Type::BF16) {
            let name = ty.name();
            let message = format!("{name} is stored only, expected load_{name}(p, i)");
            return Err(Error::new(line, message));
        }
        let of = if memory { self.writer.stored(ty) } else { self.writer.register(ty) };
        let id = self.writer.op(Op::Load, of, &[pointer]);
        Ok(if memory { self.widened(id, ty) } else { Value { id, ty } })
    }

    /// A value as it is in memory in the form that it has in a register.
    fn widened(&mut self, id: Word, ty: Type) -> Value {
        let Type::Int(Int { bits, signed }) = ty else { return Value { id, ty } };
        if bits >= 32 {
            return Value { id, ty };
        }
        let word = self.writer.int(32);
        let op = if signed { Op::SConvert } else { Op::UConvert };
        Value { id: self.writer.op(op, word, &[id]), ty }
    }

    pub(super) fn write(&mut self, place: Place, value: Value, line: u32) -> Result<(), Error> {
        let Place { pointer, ty, memory, constant } = place;
        if constant {
            return Err(Error::new(line, "what is const is written"));
        }
        if matches!(ty, Type::F16 | Type::BF16) {
            let name = ty.name();
            let message = format!("{name} is stored only, expected store_{name}(x, p, i)");
            return Err(Error::new(line, message));
        }
        let mut id = self.convert(value, ty, line)?.id;
        if memory && ty.bytes() < 4 && ty != Type::Bool {
            let stored = self.writer.stored(ty);
            id = self.writer.op(Op::UConvert, stored, &[id]);
        }
        self.writer.act(Op::Store, [pointer, id].map(Operand::IdRef).to_vec());
        Ok(())
    }
}

/// The number of a vector's part.
pub(super) fn part_of(ty: Type, part: &str, line: u32) -> Result<u32, Error> {
    let at = ["x", "y", "z", "w"].iter().position(|own| *own == part);
    match (ty, at) {
        (Type::F32x4, Some(at)) => Ok(u32::try_from(at).unwrap_or(0)),
        (Type::F32x4, None) => {
            Err(Error::new(line, format!("float4 has no part {part}, only x, y, z and w")))
        }
        _ => Err(Error::new(line, format!("{} has no parts", ty.name()))),
    }
}

impl Pointer {
    /// How many indices lead to an element.
    pub(super) fn rank(&self) -> usize {
        match &self.base {
            Base::Buffer { .. } => 1,
            Base::Array { indices, sizes, .. } => sizes.len() - indices.len(),
        }
    }
}
