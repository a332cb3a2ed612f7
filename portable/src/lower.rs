//! From the tree to SPIR-V. What C checks of types and names is checked here, on the way.

mod builtin;
mod call;
mod convert;
mod expression;
mod place;
mod statement;
mod types;
mod unroll;

use crate::constant;
use crate::module::Writer;
use crate::syntax::{Function, I32, Int, Passed, Type, U32};
use crate::{Error, Kernel, Parameter, Scalar};
use place::{Base, Pointer};
use rspirv::dr::Operand;
use rspirv::spirv::{BuiltIn, Op, StorageClass, Word};
use std::collections::HashMap;
use std::rc::Rc;

/// A work-group may have no more work-items.
const GROUP_MAX: u32 = 256;

/// What a name stands for.
#[derive(Debug, Clone)]
enum Named {
    /// A variable in a register.
    Variable { pointer: Word, ty: Type },
    /// A pointer to elements, which an array is too.
    Pointer(Pointer),
}

/// A value in a register.
#[derive(Debug, Clone, Copy)]
struct Value {
    id: Word,
    ty: Type,
}

/// A loop around what is written.
#[derive(Debug, Clone, Copy)]
struct Around {
    /// Where `break` goes.
    after: Word,
    /// Where `continue` goes.
    next: Word,
    /// Whether a `break` leaves it.
    is_left: bool,
}

/// The writer of one kernel.
struct Lower<'a> {
    writer: Writer,
    functions: &'a [Function],
    /// Functions of values alone, which are functions in SPIR-V too.
    written: HashMap<Rc<str>, Word>,
    scopes: Vec<HashMap<Rc<str>, Named>>,
    loops: Vec<Around>,
    result: Type,
    /// Whether `return` ends the function in SPIR-V; elsewhere the function is written where it is called.
    returns: bool,
    local_bytes: u32,
    /// The push constants.
    pushed: Word,
    /// The member of those that is a piece's first work-group; one more for each further dimension.
    first: u32,
}

/// The module of `kernel`, which calls `functions`.
pub(crate) fn kernel(kernel: &Function, functions: &[Function]) -> Result<Kernel, Error> {
    let mut writer = Writer::new();
    let (members, first) = pushed(kernel)?;
    let mut lower = Lower {
        pushed: writer.push_constants(&members),
        first,
        writer,
        functions,
        written: HashMap::new(),
        scopes: vec![HashMap::new()],
        loops: Vec::new(),
        result: Type::Void,
        returns: true,
        local_bytes: 0,
    };
    let group = group(kernel)?;
    for function in call::reached(kernel, functions)? {
        if function.parameters.iter().all(|parameter| parameter.kind == Passed::Value) {
            lower.function(function)?;
        }
    }
    let void = lower.writer.void();
    let entry = lower.writer.id();
    lower.writer.begin(entry, void, &[]);
    let parameters = lower.parameters(kernel, &members)?;
    lower.block(&kernel.body)?;
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
        first_offset: members.get(first as usize).map_or(0, |(_, offset)| *offset),
        local_bytes,
        counts_groups,
        needs: needs.into_iter().collect(),
    })
}

/// A kernel's push constants with their first bytes: its scalars, and behind them the first work-group of a piece of the
/// grid, of which the first member's number is answered.
fn pushed(kernel: &Function) -> Result<(Vec<(Type, u32)>, u32), Error> {
    let mut types = Vec::new();
    for parameter in kernel.parameters.iter().filter(|it| it.kind == Passed::Value) {
        let (name, ty) = (&parameter.name, parameter.ty);
        if scalar(ty).is_none() {
            let message = format!("a kernel takes no {}, which {name} is", ty.name());
            return Err(Error::new(parameter.line, message));
        }
        types.push(ty);
    }
    let first = u32::try_from(types.len()).unwrap_or(u32::MAX);
    let mut bytes = 0u32;
    let members = types.into_iter().chain([U32; 3]).map(|ty| {
        let offset = bytes.next_multiple_of(ty.bytes());
        bytes = offset + ty.bytes();
        (ty, offset)
    });
    Ok((members.collect(), first))
}

/// The sides of a kernel's work-groups.
fn group(kernel: &Function) -> Result<Option<[u32; 3]>, Error> {
    let Some(Some(given)) = &kernel.kernel else { return Ok(None) };
    let mut sides = [0; 3];
    for (side, given) in sides.iter_mut().zip(given) {
        let value = constant::evaluate(given).and_then(crate::syntax::Number::size);
        let value = value.filter(|value| *value > 0);
        *side = value.ok_or_else(|| {
            Error::new(kernel.line, "a side of GROUP_SIZE is no constant above 0")
        })?;
    }
    let items = sides.iter().fold(1u32, |items, side| items.saturating_mul(*side));
    if items > GROUP_MAX {
        let message = format!("a work-group has {items} items, at most {GROUP_MAX} are allowed");
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
                    let pointer = Pointer { base, offset: None, ty };
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
    fn pushed(&mut self, member: u32, ty: Type) -> Word {
        let register = self.writer.register(ty);
        let to = self.writer.pointer(StorageClass::PushConstant, register);
        let member = self.writer.u32(member);
        let place = self.writer.op(Op::AccessChain, to, &[self.pushed, member]);
        self.writer.op(Op::Load, register, &[place])
    }

    /// Writes a function of values alone.
    fn function(&mut self, function: &Function) -> Result<(), Error> {
        let result = self.writer.register(function.result);
        let types: Vec<Word> =
            function.parameters.iter().map(|own| self.writer.register(own.ty)).collect();
        let id = self.writer.id();
        let ids = self.writer.begin(id, result, &types);
        self.scopes = vec![HashMap::new()];
        self.result = function.result;
        self.writer.precise = function.precise;
        for (parameter, id) in function.parameters.iter().zip(ids) {
            let value = Value { id, ty: parameter.ty };
            self.variable(Rc::clone(&parameter.name), value, parameter.line)?;
        }
        self.block(&function.body)?;
        if self.writer.is_open() {
            match function.result {
                Type::Void => self.writer.close(Op::Return, vec![]),
                // C leaves it undefined, too, what is returned here.
                _ => self.writer.close(Op::Unreachable, vec![]),
            }
        }
        self.writer.end();
        self.written.insert(Rc::clone(&function.name), id);
        self.scopes = vec![HashMap::new()];
        self.result = Type::Void;
        self.writer.precise = false;
        Ok(())
    }

    /// A variable with a first value.
    fn variable(&mut self, name: Rc<str>, value: Value, line: u32) -> Result<(), Error> {
        let pointer = self.writer.variable(value.ty, &[]);
        self.writer.act(Op::Store, [pointer, value.id].map(Operand::IdRef).to_vec());
        self.declare(name, Named::Variable { pointer, ty: value.ty }, line)
    }

    fn declare(&mut self, name: Rc<str>, named: Named, line: u32) -> Result<(), Error> {
        let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
        match scope.insert(Rc::clone(&name), named) {
            None => Ok(()),
            Some(_) => Err(Error::new(line, format!("{name} is declared twice"))),
        }
    }

    fn find(&self, name: &str, line: u32) -> Result<&Named, Error> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        found.ok_or_else(|| Error::new(line, format!("{name} is not declared")))
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
