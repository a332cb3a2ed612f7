//! Statements: structured control flow, whose merge blocks SPIR-V wants to be named.

use super::place::{Base, Pointer};
use super::unroll::{Loop, steps};
use super::{Around, Lower, Named, Value};
use crate::Error;
use crate::syntax::{Declaration, Declared, Do, Expression, Number, Statement, Type, Unroll};
use rspirv::dr::Operand;
use rspirv::spirv::{Op, SelectionControl, Word};
use std::collections::HashMap;
use std::rc::Rc;

impl Lower<'_> {
    /// Statements with names of their own.
    pub(super) fn block(&mut self, statements: &[Statement]) -> Result<(), Error> {
        self.scopes.push(HashMap::new());
        let done = self.statements(statements);
        self.scopes.pop();
        done
    }

    pub(super) fn statements(&mut self, statements: &[Statement]) -> Result<(), Error> {
        for statement in statements {
            self.deeper(statement.line)?;
            self.where_reached(|lower| lower.statement(statement))?;
            self.depth -= 1;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), Error> {
        let line = statement.line;
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
                first.as_deref().map_or(Ok(()), |first| self.statement(first))?;
                let steps = steps(first.as_deref(), condition.as_ref(), step);
                let condition = condition.as_ref();
                let unroll = *unroll;
                let parts = Loop { condition, step, body, after: false, unroll, steps };
                self.repeat(&parts)?;
                self.scopes.pop();
                Ok(())
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
                let around = self.loops.last();
                let around = around
                    .ok_or_else(|| Error::new(line, "break or continue outside of a loop"))?;
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
        if let Some(known) = condition.number() {
            let (chosen, never) =
                if known.is_true() { (Some(then), other) } else { (other, Some(then)) };
            never.map_or(Ok(()), |never| self.aside(|lower| lower.scoped(never)))?;
            return chosen.map_or(Ok(()), |chosen| self.scoped(chosen));
        }
        let condition = self.value_as(condition, Type::Bool)?;
        let [yes, no, after] = [self.writer.id(), self.writer.id(), self.writer.id()];
        self.selection(after);
        self.writer.branch_if(condition, yes, if other.is_some() { no } else { after });
        self.writer.enter(yes);
        self.scoped(then)?;
        self.writer.branch(after);
        if let Some(other) = other {
            self.writer.enter(no);
            self.scoped(other)?;
            self.writer.branch(after);
        }
        self.writer.merge(after);
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
        self.writer.enter(head);
        let control = Operand::LoopControl(parts.control());
        let operands = vec![Operand::IdRef(after), Operand::IdRef(next), control];
        self.writer.act(Op::LoopMerge, operands);
        if parts.after {
            self.writer.branch(body);
        } else {
            self.writer.branch(test);
            self.writer.enter(test);
            match parts.condition {
                Some(condition) => {
                    let condition = self.value_as(condition, Type::Bool)?;
                    self.writer.branch_if(condition, body, after);
                }
                None => self.writer.branch(body),
            }
        }
        self.writer.enter(body);
        self.loops.push(Around { after, next });
        for copy in 0..copies {
            if copy > 0 {
                self.steps(parts)?;
            }
            self.scoped(parts.body)?;
        }
        self.loops.pop();
        self.writer.branch(next);
        if self.writer.next(next, head) {
            self.lead_back(parts, head, after)?;
        } else {
            self.aside(|lower| lower.lead_back(parts, head, after))?;
        }
        self.writer.merge(after);
        Ok(())
    }

    /// The end of a loop's step.
    fn lead_back(&mut self, parts: &Loop<'_>, head: Word, after: Word) -> Result<(), Error> {
        self.steps(parts)?;
        if let Some(condition) = parts.condition.filter(|_| parts.after) {
            let condition = self.value_as(condition, Type::Bool)?;
            if self.writer.is_open() {
                self.writer.branch_if(condition, head, after);
                return Ok(());
            }
        }
        self.writer.back(head);
        Ok(())
    }

    fn steps(&mut self, parts: &Loop<'_>) -> Result<(), Error> {
        self.where_reached(|lower| parts.step.iter().try_for_each(|step| lower.effect(step)))
    }

    fn declaration(&mut self, declaration: &Declaration, line: u32) -> Result<(), Error> {
        let Declaration { name, ty, kind, constant, sizes, value } = declaration;
        let (name, ty, constant) = (Rc::clone(name), *ty, *constant);
        if *kind == Declared::Pointer {
            return self.pointer_declaration(name, ty, constant, value.as_ref(), line);
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
            // OpenCL C has local memory nowhere else.
            if !self.kernel || !self.returns || self.scopes.len() > 1 {
                let message = format!("{name} is LOCAL outside of a kernel's outermost block");
                return Err(Error::new(line, message));
            }
            // Every array begins where one that is ALIGNED may.
            let own = if ty == Type::Bool { 4 } else { ty.bytes() };
            let bytes = sizes.iter().try_fold(own, |bytes, size| bytes.checked_mul(*size));
            let begin = self.local_bytes.checked_next_multiple_of(16);
            let all = begin.zip(bytes).and_then(|(begin, bytes)| begin.checked_add(bytes));
            let all = all.filter(|all| *all <= crate::LOCAL_BYTES_MAX);
            self.local_bytes = all.ok_or_else(|| {
                let most = crate::LOCAL_BYTES_MAX;
                Error::new(line, format!("with {name} local memory is above {most} bytes"))
            })?;
            let pointer = self.writer.local(ty, &sizes);
            let base = Base::Array { pointer, indices: vec![], sizes, local: true };
            let pointer = Pointer { base, offset: None, ty, constant: false };
            return self.declare(name, Named::Pointer(pointer), line);
        }
        if sizes.is_empty() {
            let pointer = self.writer.variable(ty, &[]);
            if let Some(value) = value {
                let value = self.value_as(value, ty)?;
                self.writer.act(Op::Store, [pointer, value].map(Operand::IdRef).to_vec());
            }
            return self.declare(name, Named::Variable { pointer, ty, constant }, line);
        }
        if value.is_some() {
            return Err(Error::new(line, format!("the array {name} has a first value")));
        }
        let pointer = self.writer.variable(ty, &sizes);
        let base = Base::Array { pointer, indices: vec![], sizes, local: false };
        let pointer = Pointer { base, offset: None, ty, constant: false };
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
        let mut pointer = self.pointer(value)?;
        let given = pointer.ty;
        if given != ty {
            let (given, ty) = (given.name(), ty.name());
            let message = format!("{name} points to {ty}, its value to {given}");
            return Err(Error::new(line, message));
        }
        if !matches!(pointer.base, Base::Buffer { .. }) {
            return Err(Error::new(line, format!("{name} points into no buffer (GLOBAL)")));
        }
        if pointer.constant && !constant {
            return Err(Error::new(line, format!("{name} lacks const, which its value has")));
        }
        pointer.constant = constant;
        self.declare(name, Named::Pointer(pointer), line)
    }

    fn size(&self, size: &Expression) -> Result<u32, Error> {
        let value = size.number().and_then(Number::size).filter(|size| *size > 0);
        value.ok_or_else(|| Error::new(size.line, "an array's size is no constant above 0"))
    }

    /// A constant as a value.
    pub(super) fn number(&mut self, number: Number) -> Value {
        Value { id: self.writer.constant(number), ty: number.ty() }
    }
}
