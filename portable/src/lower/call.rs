//! Calls of functions: those of values alone are calls in SPIR-V, others are written where they are called.

use super::place::{Base, Pointer};
use super::{Lower, Named, Source, Value, builtin};
use crate::Error;
use crate::syntax::{Do, Expression, Function, Of, Passed, Statement, Type};
use rspirv::dr::Operand;
use rspirv::spirv::Op;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// The levels of nesting that a call counts for, by the stack that it takes.
const CALL_DEPTH: u32 = 3;

/// The functions that others call, also through others, in the order of the source.
fn reached<'a>(callers: &[&Function], source: &'a Source<'a>) -> Result<Vec<&'a Function>, Error> {
    let mut waiting = BTreeMap::new();
    let mut names = BTreeSet::new();
    callers.iter().for_each(|caller| calls(&caller.body, &mut names));
    let known = |names: BTreeSet<Rc<str>>| {
        names.into_iter().filter_map(|name| source.functions.get(&*name).copied())
    };
    waiting.extend(known(names));
    let mut reached = Vec::new();
    while let Some((at, function)) = waiting.pop_last() {
        let mut names = BTreeSet::new();
        calls(&function.body, &mut names);
        for (other, later) in known(names) {
            // A function calls only those before it, so that no call leads back.
            if other >= at {
                let (name, later) = (&function.name, &later.name);
                let message = format!("{name} calls {later}, which is not defined before it");
                return Err(Error::new(function.line, message));
            }
            waiting.insert(other, later);
        }
        reached.push(function);
    }
    reached.reverse();
    Ok(reached)
}

/// Collects the names of what statements call.
fn calls(statements: &[Statement], names: &mut BTreeSet<Rc<str>>) {
    for statement in statements {
        let mut all = |expressions: &[Expression]| {
            expressions.iter().for_each(|expression| called(expression, names));
        };
        match &statement.kind {
            Do::Nothing | Do::Return(None) | Do::Break | Do::Continue => {}
            Do::Block(inner) => calls(inner, names),
            Do::Declare(declarations) => {
                declarations
                    .iter()
                    .filter_map(|own| own.value.as_ref())
                    .for_each(|value| called(value, names));
            }
            Do::Expressions(expressions) => all(expressions),
            Do::If(condition, then, other) => {
                called(condition, names);
                calls(std::slice::from_ref(then), names);
                other.iter().for_each(|other| calls(std::slice::from_ref(other), names));
            }
            Do::For { first, condition, step, body, .. } => {
                all(step);
                first.iter().for_each(|first| calls(std::slice::from_ref(first), names));
                condition.iter().for_each(|condition| called(condition, names));
                calls(std::slice::from_ref(body), names);
            }
            Do::While { condition, body, .. } => {
                called(condition, names);
                calls(std::slice::from_ref(body), names);
            }
            Do::Return(Some(value)) => called(value, names),
        }
    }
}

fn called(expression: &Expression, names: &mut BTreeSet<Rc<str>>) {
    match &expression.kind {
        Of::Number(_) | Of::Name(_) => {}
        Of::Call(name, arguments) => {
            names.insert(Rc::clone(name));
            if &**name == "store_bf16" {
                names.insert(crate::ROUNDED_BF16.into());
            }
            arguments.iter().for_each(|each| called(each, names));
        }
        Of::Member(of, _) | Of::Unary(_, of) | Of::Cast(_, of) => called(of, names),
        Of::Index(a, b) | Of::Binary(_, a, b) | Of::Assign(_, a, b) => {
            called(a, names);
            called(b, names);
        }
        Of::Choice(parts) => parts.iter().for_each(|part| called(part, names)),
    }
}

impl<'a> Lower<'a> {
    /// Writes the functions of values alone that others call.
    pub(super) fn functions(&mut self, callers: &[&Function]) -> Result<(), Error> {
        for function in reached(callers, self.source)? {
            if function.takes_values() {
                self.function(function)?;
            }
        }
        Ok(())
    }

    /// The function of a name.
    pub(super) fn callee(&self, name: &str, line: u32) -> Result<&'a Function, Error> {
        let found = self.source.functions.get(name).map(|(_, function)| *function);
        found.ok_or_else(|| Error::new(line, format!("there is no function {name}")))
    }

    /// A call; `None` where it gives nothing.
    pub(super) fn call(
        &mut self,
        name: &str,
        arguments: &[Expression],
        line: u32,
    ) -> Result<Option<Value>, Error> {
        if builtin::is_known(name) {
            return self.builtin(name, arguments, line);
        }
        let function = self.callee(name, line)?;
        let (given, expected) = (arguments.len(), function.parameters.len());
        if given != expected {
            let message = format!("{name} gets {given} arguments, expected {expected}");
            return Err(Error::new(line, message));
        }
        let Some(id) = self.written.get(name).copied() else {
            return self.inlined(function, arguments, line);
        };
        let mut operands = vec![id];
        for (argument, parameter) in arguments.iter().zip(&function.parameters) {
            operands.push(self.value_as(argument, parameter.ty)?);
        }
        let result = self.writer.register(function.result);
        let id = self.writer.op(Op::FunctionCall, result, &operands);
        Ok((function.result != Type::Void).then_some(Value { id, ty: function.result }))
    }

    /// Writes a function that takes pointers in place of its call.
    fn inlined(
        &mut self,
        function: &'a Function,
        arguments: &[Expression],
        line: u32,
    ) -> Result<Option<Value>, Error> {
        let mut own = HashMap::new();
        for (argument, parameter) in arguments.iter().zip(&function.parameters) {
            let named = match parameter.kind {
                Passed::Value => {
                    let value = self.value_as(argument, parameter.ty)?;
                    let pointer = self.writer.variable(parameter.ty, &[]);
                    self.writer.act(Op::Store, [pointer, value].map(Operand::IdRef).to_vec());
                    Named::Variable { pointer, ty: parameter.ty, constant: false }
                }
                passed => Named::Pointer(self.passed(argument, parameter.ty, passed)?),
            };
            own.insert(Rc::clone(&parameter.name), named);
        }
        self.in_place(function, own, line)
    }

    /// Writes the body of a function where it is called, with its own names.
    fn in_place(
        &mut self,
        function: &Function,
        own: HashMap<Rc<str>, Named>,
        line: u32,
    ) -> Result<Option<Value>, Error> {
        let scopes = std::mem::replace(&mut self.scopes, vec![own]);
        let loops = std::mem::take(&mut self.loops);
        let returns = std::mem::replace(&mut self.returns, false);
        self.depth += CALL_DEPTH;
        let (last, body) = match function.body.split_last() {
            Some((Statement { kind: Do::Return(value), .. }, body)) => (value.as_ref(), body),
            _ => (None, &function.body[..]),
        };
        self.statements(body)?;
        let value = last.map(|value| self.value_as(value, function.result)).transpose()?;
        self.depth -= CALL_DEPTH;
        (self.scopes, self.loops, self.returns) = (scopes, loops, returns);
        match (value, function.result) {
            (None, Type::Void) => Ok(None),
            (Some(id), ty) if ty != Type::Void => Ok(Some(Value { id, ty })),
            (_, ty) => {
                let message = format!("{} does not end by returning {}", function.name, ty.name());
                Err(Error::new(line, message))
            }
        }
    }

    /// Finds the mistakes in a function that no kernel calls.
    pub(super) fn alone(&mut self, function: &Function) -> Result<(), Error> {
        let mut own = HashMap::new();
        for parameter in &function.parameters {
            let ty = parameter.ty;
            let named = match parameter.kind {
                Passed::Buffer { constant } => {
                    let base = Base::Buffer { binding: 0, constant };
                    Named::Pointer(Pointer { base, offset: None, ty, constant })
                }
                Passed::Array => {
                    let pointer = self.writer.variable(ty, &[1]);
                    let base =
                        Base::Array { pointer, indices: vec![], sizes: vec![1], local: false };
                    Named::Pointer(Pointer { base, offset: None, ty, constant: false })
                }
                Passed::Value => {
                    let pointer = self.writer.variable(ty, &[]);
                    Named::Variable { pointer, ty, constant: false }
                }
            };
            own.insert(Rc::clone(&parameter.name), named);
        }
        self.aside(|lower| lower.in_place(function, own, function.line).map(|_| ()))
    }

    /// An argument for a parameter that is a pointer.
    fn passed(
        &mut self,
        argument: &Expression,
        ty: Type,
        passed: Passed,
    ) -> Result<Pointer, Error> {
        let mut pointer = self.pointer(argument)?;
        let refuse = |message: String| Err(Error::new(argument.line, message));
        if pointer.ty != ty {
            return refuse(format!(
                "a pointer to {} where {} is expected",
                pointer.ty.name(),
                ty.name()
            ));
        }
        if pointer.rank() != 1 {
            return refuse("an array of several dimensions is passed".to_owned());
        }
        match (&pointer.base, passed) {
            (Base::Buffer { .. }, Passed::Buffer { constant: false }) if pointer.constant => {
                refuse("what is const is passed as what is not".to_owned())
            }
            (Base::Buffer { .. }, Passed::Buffer { constant }) => {
                pointer.constant = constant;
                Ok(pointer)
            }
            (Base::Array { local: false, .. }, Passed::Array) => Ok(pointer),
            (Base::Buffer { .. }, _) => {
                refuse("a buffer is passed, its parameter lacks GLOBAL".to_owned())
            }
            (Base::Array { local: true, .. }, _) => refuse("local memory is not passed".to_owned()),
            (Base::Array { .. }, _) => {
                refuse("an array is passed where a buffer is expected".to_owned())
            }
        }
    }
}
