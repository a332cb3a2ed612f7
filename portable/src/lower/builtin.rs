//! The functions that the language itself has: ids, memory, and mathematics that one instruction does.

use super::place::Base;
use super::{Lower, Value};
use crate::Error;
use crate::constant;
use crate::module::View;
use crate::syntax::{Expression, Int, Number, Type, U32};
use rspirv::dr::Operand;
use rspirv::spirv::{BuiltIn, Decoration, GlslStd450Op, Op, StorageClass, Word};

/// What a function of the language does.
#[derive(Debug, Clone, Copy)]
enum Does {
    /// The place of a work-item, in a dimension.
    Place(BuiltIn),
    Barrier,
    /// From memory to a `float`; to memory.
    LoadHalf(Type),
    StoreHalf(Type),
    /// Four neighbours.
    Load4,
    /// Four bytes.
    LoadWord,
    /// The bits as of another type.
    Bits {
        from: Type,
        to: Type,
    },
    Vector,
    Swap,
    /// One instruction on floats.
    Math(GlslStd450Op, usize),
    IsNan,
    IsInf,
}

const FUNCTIONS: &[(&str, Does)] = &[
    ("GLOBAL_ID", Does::Place(BuiltIn::GlobalInvocationId)),
    ("LOCAL_ID", Does::Place(BuiltIn::LocalInvocationId)),
    ("GROUP_ID", Does::Place(BuiltIn::WorkgroupId)),
    ("GROUPS", Does::Place(BuiltIn::NumWorkgroups)),
    ("BARRIER", Does::Barrier),
    ("load_f16", Does::LoadHalf(Type::F16)),
    ("load_bf16", Does::LoadHalf(Type::BF16)),
    ("store_f16", Does::StoreHalf(Type::F16)),
    ("store_bf16", Does::StoreHalf(Type::BF16)),
    ("load4", Does::Load4),
    ("load_u32", Does::LoadWord),
    ("BITS_F32", Does::Bits { from: Type::F32, to: U32 }),
    ("F32_BITS", Does::Bits { from: U32, to: Type::F32 }),
    ("F32X4", Does::Vector),
    ("compare_and_swap", Does::Swap),
    ("floor", Does::Math(GlslStd450Op::Floor, 1)),
    ("ceil", Does::Math(GlslStd450Op::Ceil, 1)),
    ("trunc", Does::Math(GlslStd450Op::Trunc, 1)),
    ("rint", Does::Math(GlslStd450Op::RoundEven, 1)),
    ("fabs", Does::Math(GlslStd450Op::FAbs, 1)),
    ("sqrt", Does::Math(GlslStd450Op::Sqrt, 1)),
    ("fmin", Does::Math(GlslStd450Op::NMin, 2)),
    ("fmax", Does::Math(GlslStd450Op::NMax, 2)),
    ("isnan", Does::IsNan),
    ("isinf", Does::IsInf),
];

/// The specialisation constants of a pipeline for pieces of a grid: work-groups, and work-items in each dimension, of a
/// first work-group. They are 0 for whole grids, so that the driver's compiler removes what they are multiplied with.
const GROUPS_OF_FIRST: u32 = 3;
const ITEMS_OF_FIRST: u32 = 4;
/// One group, and the order of what it does with local memory.
const WORKGROUP: u32 = 2;
const DEVICE: u32 = 1;
const ACQUIRE_RELEASE_WORKGROUP: u32 = 0x108;
const RELAXED: u32 = 0;

fn of(name: &str) -> Option<Does> {
    FUNCTIONS.iter().find(|(own, _)| *own == name).map(|(_, does)| *does)
}

pub(super) fn is_known(name: &str) -> bool {
    of(name).is_some()
}

/// The type of the result.
pub(super) fn type_of(name: &str) -> Option<Type> {
    Some(match of(name)? {
        Does::Place(_) | Does::LoadWord | Does::Swap => U32,
        Does::Barrier | Does::StoreHalf(_) => Type::Void,
        Does::LoadHalf(_) | Does::Math(..) => Type::F32,
        Does::Load4 | Does::Vector => Type::F32x4,
        Does::Bits { to, .. } => to,
        Does::IsNan | Does::IsInf => Type::Bool,
    })
}

/// Whether a call needs no memory.
pub(super) fn is_free(name: &str) -> bool {
    matches!(
        of(name),
        Some(
            Does::Place(_)
                | Does::Bits { .. }
                | Does::Vector
                | Does::Math(..)
                | Does::IsNan
                | Does::IsInf
        )
    )
}

impl Lower<'_> {
    pub(super) fn builtin(
        &mut self,
        name: &str,
        arguments: &[Expression],
        line: u32,
    ) -> Result<Option<Value>, Error> {
        let Some(does) = of(name) else {
            return Err(Error::new(line, format!("there is no function {name}")));
        };
        let expected = match does {
            Does::Barrier => 0,
            Does::Place(_) | Does::Bits { .. } | Does::IsNan | Does::IsInf => 1,
            Does::LoadHalf(_) | Does::Load4 | Does::LoadWord => 2,
            Does::StoreHalf(_) | Does::Swap => 3,
            Does::Vector => 4,
            Does::Math(_, count) => count,
        };
        if arguments.len() != expected {
            let given = arguments.len();
            return Err(Error::new(
                line,
                format!("{name} gets {given} arguments, expected {expected}"),
            ));
        }
        let ty = type_of(name).unwrap_or(Type::Void);
        let id = match does {
            Does::Barrier => {
                let operands = [WORKGROUP, WORKGROUP, ACQUIRE_RELEASE_WORKGROUP];
                let operands = operands.map(|value| Operand::IdScope(self.writer.u32(value)));
                self.writer.act(Op::ControlBarrier, operands.to_vec());
                return Ok(None);
            }
            Does::Place(builtin) => self.place_in_grid(builtin, &arguments[0])?,
            Does::LoadHalf(half) => self.load_half(half, &arguments[0], &arguments[1])?,
            Does::StoreHalf(half) => {
                self.store_half(half, arguments)?;
                return Ok(None);
            }
            Does::Load4 => self.load_four(&arguments[0], &arguments[1])?,
            Does::LoadWord => self.load_word(&arguments[0], &arguments[1])?,
            Does::Bits { from, to } => {
                let value = self.value_as(&arguments[0], from)?;
                let register = self.writer.register(to);
                self.writer.op(Op::Bitcast, register, &[value])
            }
            Does::Vector => {
                let parts = arguments.iter().map(|part| self.value_as(part, Type::F32));
                let parts = parts.collect::<Result<Vec<Word>, _>>()?;
                let register = self.writer.register(ty);
                self.writer.op(Op::CompositeConstruct, register, &parts)
            }
            Does::Swap => self.swap(arguments)?,
            Does::Math(function, _) => {
                let values = arguments.iter().map(|each| self.value_as(each, Type::F32));
                let values = values.collect::<Result<Vec<Word>, _>>()?;
                let float = self.writer.register(Type::F32);
                self.writer.extended(function, float, &values)
            }
            Does::IsNan | Does::IsInf => {
                let value = self.value_as(&arguments[0], Type::F32)?;
                let register = self.writer.register(Type::Bool);
                let op = if matches!(does, Does::IsNan) { Op::IsNan } else { Op::IsInf };
                self.writer.op(op, register, &[value])
            }
        };
        Ok(Some(Value { id, ty }))
    }

    fn place_in_grid(&mut self, builtin: BuiltIn, dimension: &Expression) -> Result<Word, Error> {
        let known = constant::evaluate(dimension).and_then(Number::size).filter(|d| *d < 3);
        let known = known
            .ok_or_else(|| Error::new(dimension.line, "a dimension is no constant 0, 1 or 2"))?;
        let variable = self.writer.builtin(builtin);
        let word = self.writer.int(32);
        let to = self.writer.pointer(StorageClass::Input, word);
        let dimension = self.writer.u32(known);
        let place = self.writer.op(Op::AccessChain, to, &[variable, dimension]);
        let place = self.writer.op(Op::Load, word, &[place]);
        let scale = match builtin {
            BuiltIn::WorkgroupId => GROUPS_OF_FIRST,
            BuiltIn::GlobalInvocationId => ITEMS_OF_FIRST + known,
            _ => return Ok(place),
        };
        let first = self.pushed(self.first + known, U32);
        let scale = self.writer.specialised(scale, 0);
        let before = self.writer.op(Op::IMul, word, &[first, scale]);
        Ok(self.writer.op(Op::IAdd, word, &[place, before]))
    }

    /// The buffer, whether it is const, and the index in it, of a pointer to one of `types` and an index.
    fn element(
        &mut self,
        pointer: &Expression,
        at: &Expression,
        types: &[Type],
    ) -> Result<(u32, bool, Word, Type), Error> {
        let line = pointer.line;
        let pointer = self.pointer(pointer)?;
        let Base::Buffer { binding, constant } = pointer.base else {
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
        Ok((binding, constant, at, pointer.ty))
    }

    fn load_half(
        &mut self,
        half: Type,
        pointer: &Expression,
        at: &Expression,
    ) -> Result<Word, Error> {
        let (binding, constant, at, _) = self.element(pointer, at, &[half])?;
        let place = self.view_at(binding, View::Of(half), constant, at);
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

    fn store_half(&mut self, half: Type, arguments: &[Expression]) -> Result<(), Error> {
        let value = self.value_as(&arguments[0], Type::F32)?;
        let (binding, constant, at, _) = self.element(&arguments[1], &arguments[2], &[half])?;
        if constant {
            return Err(Error::new(arguments[1].line, "what is const is written"));
        }
        let place = self.view_at(binding, View::Of(half), constant, at);
        let stored = self.writer.stored(half);
        let id = if half == Type::F16 {
            let id = self.writer.op(Op::FConvert, stored, &[value]);
            let nearest = Operand::FPRoundingMode(rspirv::spirv::FPRoundingMode::RTE);
            self.writer.decorate(id, Decoration::FPRoundingMode, vec![nearest]);
            id
        } else {
            let float = self.functions.iter().find(|own| &*own.name == crate::ROUNDED_BF16);
            let rounded = float.and_then(|own| self.written.get(&own.name)).copied();
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
    fn load_four(&mut self, pointer: &Expression, at: &Expression) -> Result<Word, Error> {
        let types = [Type::F32, Type::F16, Type::BF16];
        let (binding, constant, at, ty) = self.element(pointer, at, &types)?;
        let word = self.writer.int(32);
        let two = self.writer.u32(2);
        let at = self.writer.op(Op::ShiftRightLogical, word, &[at, two]);
        let vector = self.writer.register(Type::F32x4);
        if ty == Type::F32 {
            let place = self.view_at(binding, View::F32x4, constant, at);
            return Ok(self.writer.op(Op::Load, vector, &[place]));
        }
        let place = self.view_at(binding, View::Words(2), constant, at);
        let pair = self.writer.vector(word, 2);
        let words = self.writer.op(Op::Load, pair, &[place]);
        let mut parts = Vec::new();
        for half in 0..2 {
            let operands = vec![Operand::IdRef(words), Operand::LiteralBit32(half)];
            let bits = self.writer.instruction(Op::CompositeExtract, Some(word), operands);
            parts.extend(self.halves(bits, ty));
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
    fn load_word(&mut self, pointer: &Expression, at: &Expression) -> Result<Word, Error> {
        let int = |bits, signed| Type::Int(Int { bits, signed });
        let types = [int(8, false), int(8, true), int(16, false), int(16, true)];
        let (binding, constant, at, ty) = self.element(pointer, at, &types)?;
        let word = self.writer.int(32);
        let by = self.writer.u32(if ty.bytes() == 1 { 2 } else { 1 });
        let at = self.writer.op(Op::ShiftRightLogical, word, &[at, by]);
        let place = self.view_at(binding, View::Of(U32), constant, at);
        Ok(self.writer.op(Op::Load, word, &[place]))
    }

    /// `compare_and_swap(pointer, old, new)`: what was there before.
    fn swap(&mut self, arguments: &[Expression]) -> Result<Word, Error> {
        let line = arguments[0].line;
        let pointer = self.pointer(&arguments[0])?;
        let Base::Buffer { binding, constant: false } = pointer.base else {
            return Err(Error::new(line, "compare_and_swap takes a buffer that is not const"));
        };
        if pointer.ty != U32 {
            return Err(Error::new(line, "compare_and_swap takes a pointer to u32"));
        }
        let at = match pointer.offset {
            Some(offset) => offset,
            None => self.writer.u32(0),
        };
        let place = self.view_at(binding, View::Of(U32), false, at);
        let (old, new) = (self.value_as(&arguments[1], U32)?, self.value_as(&arguments[2], U32)?);
        let word = self.writer.int(32);
        let (scope, order) = (self.writer.u32(DEVICE), self.writer.u32(RELAXED));
        let operands = [place, scope, order, order, new, old];
        Ok(self.writer.op(Op::AtomicCompareExchange, word, &operands))
    }
}
