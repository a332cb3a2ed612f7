//! The functions that the language itself has: ids, memory, and mathematics that one instruction does.

use super::{Lower, Value};
use crate::Error;
use crate::syntax::{Expression, Number, Type, U32};
use rspirv::dr::Operand;
use rspirv::spirv::{BuiltIn, GlslStd450Op, Op, StorageClass, Word};

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
const ACQUIRE_RELEASE_WORKGROUP: u32 = 0x108;

fn of(name: &str) -> Option<Does> {
    FUNCTIONS.iter().find(|(own, _)| *own == name).map(|(_, does)| *does)
}

pub(crate) fn is_known(name: &str) -> bool {
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
        let known = dimension.number().and_then(Number::size).filter(|d| *d < 3);
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
        let Some(first) = self.first else { return Ok(place) };
        let first = self.pushed(first + known, U32);
        let scale = self.writer.specialised(scale, 0);
        let before = self.writer.op(Op::IMul, word, &[first, scale]);
        Ok(self.writer.op(Op::IAdd, word, &[place, before]))
    }
}
