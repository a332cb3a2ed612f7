//! A kernel's module: its work-groups, its parameters, and what a caller is told of it.

use super::place::{Base, Pointer};
use super::{Lower, Named, Source, Value};
use crate::syntax::{Function, I32, Int, Number, Passed, Type};
use crate::{Error, Kernel, Parameter, Scalar};
use rspirv::spirv::{BuiltIn, Op, StorageClass};
use std::rc::Rc;

/// The module of `kernel`.
pub(crate) fn kernel(kernel: &Function, source: &Source<'_>) -> Result<Kernel, Error> {
    let mut lower = Lower::new(source);
    let group = group(kernel)?;
    lower.functions(&[kernel])?;
    let void = lower.writer.void();
    let entry = lower.writer.id();
    lower.writer.begin(entry, void, &[]);
    let (parameters, scalar_bytes) = lower.parameters(kernel)?;
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
        scalar_bytes,
        local_bytes,
        counts_groups,
        needs: needs.into_iter().collect(),
    })
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
    /// Declares a kernel's parameters; answers them with the bytes of all scalars.
    fn parameters(&mut self, kernel: &Function) -> Result<(Vec<Parameter>, u32), Error> {
        let (mut parameters, mut members, mut scalars) = (Vec::new(), Vec::new(), Vec::new());
        let (mut binding, mut bytes) = (0, 0u32);
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
                    let scalar = scalar(ty).ok_or_else(|| {
                        let message = format!("a kernel takes no {}, which {name} is", ty.name());
                        Error::new(parameter.line, message)
                    })?;
                    let offset = bytes.next_multiple_of(ty.bytes());
                    bytes = offset + ty.bytes();
                    members.push((ty, offset));
                    scalars.push((name, parameter.line));
                    parameters.push(Parameter::Scalar { ty: scalar, offset });
                }
            }
        }
        if !members.is_empty() {
            let block = self.writer.push_constants(&members);
            for (at, ((ty, _), (name, line))) in (0..).zip(members.iter().zip(scalars)) {
                let register = self.writer.register(*ty);
                let to = self.writer.pointer(StorageClass::PushConstant, register);
                let at = self.writer.u32(at);
                let place = self.writer.op(Op::AccessChain, to, &[block, at]);
                let id = self.writer.op(Op::Load, register, &[place]);
                self.variable(name, Value { id, ty: *ty }, line)?;
            }
        }
        Ok((parameters, bytes))
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
