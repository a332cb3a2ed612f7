//! A kernel's module: its work-groups, its parameters, and what a caller is told of it.

use super::place::{Base, Pointer};
use super::{Lower, Named, Source, Value};
use crate::syntax::{Function, I32, Int, Number, Passed, Type, U32};
use crate::{Error, Kernel, Parameter, Scalar};
use rspirv::spirv::{BuiltIn, Op, StorageClass, Word};
use std::rc::Rc;

/// The module of `kernel`.
pub(crate) fn kernel(kernel: &Function, source: &Source<'_>) -> Result<Kernel, Error> {
    let mut lower = Lower::new(source);
    let group = group(kernel)?;
    let (members, first) = pushed(kernel)?;
    (lower.pushed, lower.first) = (lower.writer.push_constants(&members), first);
    lower.functions(&[kernel])?;
    let void = lower.writer.void();
    let entry = lower.writer.id();
    lower.writer.begin(entry, void, &[]);
    let parameters = lower.parameters(kernel, &members)?;
    lower.kernel = true;
    lower.statements(&kernel.body)?;
    if lower.writer.is_open() {
        lower.writer.close(Op::Return, vec![]);
    }
    lower.writer.end();
    if group.is_none() {
        lower.writer.open_group();
    }
    let local_bytes = lower.local_bytes;
    let counts_groups = lower.writer.has_builtin(BuiltIn::NumWorkgroups);
    let (words, needs) = lower.writer.assemble(entry, &kernel.name, group);
    Ok(Kernel {
        name: kernel.name.to_string(),
        words,
        group,
        parameters,
        scalar_bytes: members.last().map_or(0, |(ty, offset)| offset + ty.bytes()),
        first_offset: first.filter(|_| !counts_groups).map(|at| members[at as usize].1),
        local_bytes,
        needs: needs.into_iter().collect(),
    })
}

/// The push constants that every device has room for.
const PUSHED_BYTES: u32 = 128;

/// Push constants with their first bytes.
type Members = Vec<(Type, u32)>;

/// A kernel's push constants with their first bytes: its scalars, and behind them, where there is room, the first
/// work-group of a piece of the grid, of which the first member's number is answered.
fn pushed(kernel: &Function) -> Result<(Members, Option<u32>), Error> {
    let mut types = Vec::new();
    for parameter in kernel.parameters.iter().filter(|it| it.kind == Passed::Value) {
        let (name, ty) = (&parameter.name, parameter.ty);
        if scalar(ty).is_none() {
            let message = format!("a kernel takes no {}, which {name} is", ty.name());
            return Err(Error::new(parameter.line, message));
        }
        types.push(ty);
    }
    let scalars = types.len();
    types.extend([U32; 3]);
    let mut bytes = 0u32;
    let members = types.into_iter().map(|ty| {
        let offset = bytes.next_multiple_of(ty.bytes());
        bytes = offset + ty.bytes();
        (ty, offset)
    });
    let mut members: Members = members.collect();
    if bytes > PUSHED_BYTES {
        members.truncate(scalars);
        return Ok((members, None));
    }
    Ok((members, u32::try_from(scalars).ok()))
}

/// The sides of a kernel's work-groups.
fn group(kernel: &Function) -> Result<Option<[u32; 3]>, Error> {
    let Some(Some(given)) = &kernel.kernel else { return Ok(None) };
    let mut sides = [0; 3];
    for (side, given) in sides.iter_mut().zip(given) {
        let value = given.number().and_then(Number::size);
        let value = value.filter(|value| *value > 0);
        *side = value.ok_or_else(|| {
            Error::new(kernel.line, "a side of GROUP_SIZE is no constant above 0")
        })?;
    }
    let items = sides.iter().fold(1u32, |items, side| items.saturating_mul(*side));
    if items > crate::GROUP_ITEMS_MAX {
        let most = crate::GROUP_ITEMS_MAX;
        let message = format!("a work-group has {items} items, at most {most} are allowed");
        return Err(Error::new(kernel.line, message));
    }
    Ok(Some(sides))
}

impl Lower<'_> {
    /// Declares a kernel's parameters, whose scalars are these push constants.
    fn parameters(
        &mut self,
        kernel: &Function,
        members: &[(Type, u32)],
    ) -> Result<Vec<Parameter>, Error> {
        let (mut parameters, mut binding) = (Vec::new(), 0);
        let mut members = (0..).zip(members);
        for parameter in &kernel.parameters {
            let (name, ty) = (Rc::clone(&parameter.name), parameter.ty);
            match parameter.kind {
                Passed::Buffer { constant } => {
                    let base = Base::Buffer { binding, constant };
                    let pointer = Pointer { base, offset: None, ty, constant };
                    self.declare(name, Named::Pointer(pointer), parameter.line)?;
                    parameters.push(Parameter::Buffer { binding, written: !constant });
                    binding += 1;
                }
                Passed::Array => {
                    let message = format!("{name} is no pointer to a buffer (GLOBAL)");
                    return Err(Error::new(parameter.line, message));
                }
                Passed::Value => {
                    let Some(((at, (_, offset)), scalar)) = members.next().zip(scalar(ty)) else {
                        continue;
                    };
                    let id = self.pushed(at, ty);
                    self.variable(name, Value { id, ty }, parameter.line)?;
                    parameters.push(Parameter::Scalar { ty: scalar, offset: *offset });
                }
            }
        }
        Ok(parameters)
    }

    /// A push constant by its number.
    pub(super) fn pushed(&mut self, member: u32, ty: Type) -> Word {
        let register = self.writer.register(ty);
        let to = self.writer.pointer(StorageClass::PushConstant, register);
        let member = self.writer.u32(member);
        let place = self.writer.op(Op::AccessChain, to, &[self.pushed, member]);
        self.writer.op(Op::Load, register, &[place])
    }
}

/// The type of a kernel's scalar, if it may have one of this type.
fn scalar(ty: Type) -> Option<Scalar> {
    Some(match ty {
        I32 => Scalar::I32,
        Type::Int(Int { bits: 32, .. }) => Scalar::U32,
        Type::Int(Int { bits: 64, signed: true }) => Scalar::I64,
        Type::Int(Int { bits: 64, .. }) => Scalar::U64,
        Type::F32 => Scalar::F32,
        _ => return None,
    })
}
