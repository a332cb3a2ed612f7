//! Statements: structured control flow, whose merge blocks SPIR-V wants to be named.

use super::place::{Base, Pointer};
use super::unroll::{Loop, steps};
use super::{Around, Lower, Named, Value};
use crate::syntax::{Declaration, Declared, Do, Expression, Number, Statement, Type, Unroll};
use crate::{Error, constant};
use rspirv::dr::Operand;
use rspirv::spirv::{Op, SelectionControl, Word};
use std::collections::HashMap;
use std::rc::Rc;

impl Lower<'_> {
    /// Statements with names of their own.
    pub(super) fn block(&mut self, statements: &[Statement]) -> Result<(), Error> {
        self.scopes.push(HashMap::new());
        let done = statements.iter().try_for_each(|statement| self.statement(statement));
        self.scopes.pop();
        done
    }

    pub(super) fn statement(&mut self, statement: &Statement) -> Result<(), Error> {
        let line = statement.line;
        // What follows `return`, `break` or `continue` is never reached, and has no block to stand in.
        if !self.writer.is_open() {
            return Ok(());
        }
        match &statement.kind {
            Do::Nothing => Ok(()),
            Do::Block(statements) => self.block(statements),
            Do::Declare(declarations) => {
                declarations.iter().try_for_each(|declaration| self.declaration(declaration, line))
            }
            Do::Expressions(expressions) => {
                expressions.iter().try_for_each(|expression| self.effect(expression))
            }
            Do::If(condition, then, other) => self.choice(condition, then, other.as_deref()),
            Do::For { first, condition, step, body, unroll } => {
                self.scopes.push(HashMap::new());
                let done = first.as_deref().map_or(Ok(()), |first| self.statement(first));
                let steps = steps(first.as_deref(), condition.as_ref(), step);
                let condition = condition.as_ref();
                let unroll = *unroll;
                let parts = Loop { condition, step, body, after: false, unroll, steps };
                let done = done.and_then(|()| self.repeat(&parts));
                self.scopes.pop();
                done
            }
            Do::While { condition, body, after } => self.repeat(&Loop {
                condition: Some(condition),
                step: &[],
                body,
                after: *after,
                unroll: Unroll::Unsaid,
                steps: None,
            }),
            Do::Return(value) => self.give(value.as_ref(), line),
            Do::Break | Do::Continue => {
                let breaks = matches!(statement.kind, Do::Break);
                let around = self.loops.last_mut();
                let around = around
                    .ok_or_else(|| Error::new(line, "break or continue outside of a loop"))?;
                around.is_left |= breaks;
                let to = if breaks { around.after } else { around.next };
                self.writer.branch(to);
                Ok(())
            }
        }
    }

    /// `return`, where it ends a function in SPIR-V.
    fn give(&mut self, value: Option<&Expression>, line: u32) -> Result<(), Error> {
        if !self.returns {
            let message = "a function that takes pointers returns at its end only";
            return Err(Error::new(line, message));
        }
        match (value, self.result) {
            (None, Type::Void) => self.writer.close(Op::Return, vec![]),
            (Some(value), result) if result != Type::Void => {
                let value = self.value_as(value, result)?;
                self.writer.close(Op::ReturnValue, vec![Operand::IdRef(value)]);
            }
            (_, result) => {
                return Err(Error::new(line, format!("the function returns {}", result.name())));
            }
        }
        Ok(())
    }

    fn choice(
        &mut self,
        condition: &Expression,
        then: &Statement,
        other: Option<&Statement>,
    ) -> Result<(), Error> {
        if let Some(known) = constant::evaluate(condition) {
            let chosen = if known.is_true() { Some(then) } else { other };
            return chosen.map_or(Ok(()), |chosen| self.scoped(chosen));
        }
        let condition = self.value_as(condition, Type::Bool)?;
        let [yes, no, after] = [self.writer.id(), self.writer.id(), self.writer.id()];
        self.selection(after);
        self.writer.branch_if(condition, yes, if other.is_some() { no } else { after });
        self.writer.label(yes);
        self.scoped(then)?;
        let mut reached = self.writer.is_open() || other.is_none();
        self.writer.branch(after);
        if let Some(other) = other {
            self.writer.label(no);
            self.scoped(other)?;
            reached |= self.writer.is_open();
            self.writer.branch(after);
        }
        self.writer.label(after);
        if !reached {
            self.writer.close(Op::Unreachable, vec![]);
        }
        Ok(())
    }

    pub(super) fn selection(&mut self, after: Word) {
        let control = Operand::SelectionControl(SelectionControl::NONE);
        self.writer.act(Op::SelectionMerge, vec![Operand::IdRef(after), control]);
    }

    /// One statement with names of its own.
    fn scoped(&mut self, statement: &Statement) -> Result<(), Error> {
        self.block(std::slice::from_ref(statement))
    }

    fn repeat(&mut self, parts: &Loop<'_>) -> Result<(), Error> {
        let [head, test, body, next, after] = std::array::from_fn(|_| self.writer.id());
        let copies = parts.copies();
        self.writer.branch(head);
        self.writer.label(head);
        let control = Operand::LoopControl(parts.control());
        let operands = vec![Operand::IdRef(after), Operand::IdRef(next), control];
        self.writer.act(Op::LoopMerge, operands);
        if parts.after {
            self.writer.branch(body);
        } else {
            self.writer.branch(test);
            self.writer.label(test);
            match parts.condition {
                Some(condition) => {
                    let condition = self.value_as(condition, Type::Bool)?;
                    self.writer.branch_if(condition, body, after);
                }
                None => self.writer.branch(body),
            }
        }
        self.writer.label(body);
        self.loops.push(Around { after, next, is_left: false });
        for copy in 0..copies {
            if copy > 0 {
                parts.step.iter().try_for_each(|step| self.effect(step))?;
            }
            self.scoped(parts.body)?;
        }
        let is_left = self.loops.pop().is_some_and(|around| around.is_left);
        self.writer.branch(next);
        self.writer.label(next);
        match parts.condition.filter(|_| parts.after) {
            Some(condition) => {
                let condition = self.value_as(condition, Type::Bool)?;
                self.writer.branch_if(condition, head, after);
            }
            None => {
                parts.step.iter().try_for_each(|step| self.effect(step))?;
                self.writer.branch(head);
            }
        }
        self.writer.label(after);
        if parts.condition.is_none() && !is_left {
            self.writer.close(Op::Unreachable, vec![]);
        }
        Ok(())
    }

    fn declaration(&mut self, declaration: &Declaration, line: u32) -> Result<(), Error> {
        let Declaration { name, ty, kind, sizes, value } = declaration;
        let (name, ty) = (Rc::clone(name), *ty);
        if let Declared::Pointer { constant } = kind {
            return self.pointer_declaration(name, ty, *constant, value.as_ref(), line);
        }
        if !ty.is_number() && ty != Type::F32x4 {
            let message = format!("{name} is of {}, which is in buffers only", ty.name());
            return Err(Error::new(line, message));
        }
        let sizes = sizes.iter().map(|size| self.size(size)).collect::<Result<Vec<u32>, _>>()?;
        if *kind == Declared::Local {
            if sizes.is_empty() || value.is_some() {
                let message = format!("{name} is LOCAL, so it is an array without a first value");
                return Err(Error::new(line, message));
            }
            let count = sizes.iter().try_fold(1u32, |count, size| count.checked_mul(*size));
            let bytes = count.and_then(|count| count.checked_mul(ty.bytes()));
            let all = bytes.and_then(|bytes| self.local_bytes.checked_add(bytes));
            let all = all.filter(|all| *all <= crate::LOCAL_BYTES_MAX);
            self.local_bytes = all.ok_or_else(|| {
                let most = crate::LOCAL_BYTES_MAX;
                Error::new(line, format!("with {name} local memory is above {most} bytes"))
            })?;
            let pointer = self.writer.local(ty, &sizes);
            let base = Base::Array { pointer, indices: vec![], sizes, local: true };
            let pointer = Pointer { base, offset: None, ty };
            return self.declare(name, Named::Pointer(pointer), line);
        }
        if sizes.is_empty() {
            let pointer = self.writer.variable(ty, &[]);
            if let Some(value) = value {
                let value = self.value_as(value, ty)?;
                self.writer.act(Op::Store, [pointer, value].map(Operand::IdRef).to_vec());
            }
            return self.declare(name, Named::Variable { pointer, ty }, line);
        }
        if value.is_some() {
            return Err(Error::new(line, format!("the array {name} has a first value")));
        }
        let pointer = self.writer.variable(ty, &sizes);
        let base = Base::Array { pointer, indices: vec![], sizes, local: false };
        let pointer = Pointer { base, offset: None, ty };
        self.declare(name, Named::Pointer(pointer), line)
    }

    fn pointer_declaration(
        &mut self,
        name: Rc<str>,
        ty: Type,
        constant: bool,
        value: Option<&Expression>,
        line: u32,
    ) -> Result<(), Error> {
        let value = value.ok_or_else(|| {
            Error::new(line, format!("the pointer {name} points to nothing, expected a value"))
        })?;
        let pointer = self.pointer(value)?;
        let given = pointer.ty;
        if given != ty {
            let (given, ty) = (given.name(), ty.name());
            let message = format!("{name} points to {ty}, its value to {given}");
            return Err(Error::new(line, message));
        }
        if !constant && matches!(pointer.base, Base::Buffer { constant: true, .. }) {
            return Err(Error::new(line, format!("{name} lacks const, which its value has")));
        }
        self.declare(name, Named::Pointer(pointer), line)
    }

    fn size(&self, size: &Expression) -> Result<u32, Error> {
        let value = constant::evaluate(size).and_then(Number::size).filter(|size| *size > 0);
        value.ok_or_else(|| Error::new(size.line, "an array's size is no constant above 0"))
    }

    /// A constant as a value.
    pub(super) fn number(&mut self, number: Number) -> Value {
        Value { id: self.writer.constant(number), ty: number.ty() }
    }
}
