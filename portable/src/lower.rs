//! From the tree to SPIR-V. What C checks of types and names is checked here, on the way.

mod builtin;
mod call;
mod convert;
mod expression;
mod kernel;
mod memory;
mod place;
mod statement;
mod types;
mod unroll;

use crate::Error;
use crate::module::Writer;
use crate::syntax::{Function, Type};
pub(crate) use builtin::is_known as is_builtin;
pub(crate) use kernel::kernel;
use place::Pointer;
use rspirv::dr::Operand;
use rspirv::spirv::{Op, Word};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// Statements and expressions one in another, also in functions that are written where they are called: each takes
/// stack.
const DEPTH_MAX: u32 = 400;
/// Statements and expressions that are written for all kernels of a source.
const WRITTEN_MAX: u32 = 1 << 18;

/// What a name stands for.
#[derive(Debug, Clone)]
enum Named {
    /// A variable in a register.
    Variable { pointer: Word, ty: Type, constant: bool },
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
}

/// The functions of a source by their names, with their places in it.
pub(crate) type Functions<'a> = HashMap<&'a str, (usize, &'a Function)>;

/// What kernels are written from.
pub(crate) struct Source<'a> {
    functions: Functions<'a>,
    /// How many more statements and expressions are written: functions and steps that are written several times make
    /// much of little.
    left: Cell<u32>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(functions: &'a [Function]) -> Self {
        let places = functions.iter().enumerate();
        let functions = places.map(|(at, function)| (&*function.name, (at, function))).collect();
        Self { functions, left: Cell::new(WRITTEN_MAX) }
    }
}

/// The writer of one kernel.
struct Lower<'a> {
    writer: Writer,
    source: &'a Source<'a>,
    /// Functions of values alone, which are functions in SPIR-V too.
    written: HashMap<Rc<str>, Word>,
    scopes: Vec<HashMap<Rc<str>, Named>>,
    loops: Vec<Around>,
    result: Type,
    /// Whether `return` ends the function in SPIR-V; elsewhere the function is written where it is called.
    returns: bool,
    local_bytes: u32,
    /// Whether a kernel is written, whose outermost block may have LOCAL arrays.
    kernel: bool,
    /// The push constants; a function that no kernel calls has none, and is only checked.
    pushed: Word,
    /// The member of those that is a piece's first work-group; one more for each further dimension. `None` where they
    /// have no room for it.
    first: Option<u32>,
    /// How many statements and expressions are around.
    depth: u32,
}

/// Finds the mistakes in functions, which no kernel may call.
pub(crate) fn check(functions: &[&Function], source: &Source<'_>) -> Result<(), Error> {
    let mut lower = Lower::new(source);
    lower.functions(functions)?;
    for function in functions {
        match function.takes_values() {
            false => lower.alone(function)?,
            true if lower.written.contains_key(&function.name) => {}
            true => lower.function(function)?,
        }
    }
    Ok(())
}

impl<'a> Lower<'a> {
    fn new(source: &'a Source<'a>) -> Self {
        Self {
            writer: Writer::new(),
            source,
            written: HashMap::new(),
            scopes: vec![HashMap::new()],
            loops: Vec::new(),
            result: Type::Void,
            returns: true,
            local_bytes: 0,
            kernel: false,
            pushed: 0,
            first: None,
            depth: 0,
        }
    }

    /// Counts a statement or expression that is written.
    fn deeper(&mut self, line: u32) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let message = format!("more than {DEPTH_MAX} levels of nesting, with those of calls");
            return Err(Error::new(line, message));
        }
        let left = self.source.left.get().checked_sub(1).ok_or_else(|| {
            let what = "statements and expressions, with each copy of a function or step";
            Error::new(line, format!("the kernels are of more than {WRITTEN_MAX} {what}"))
        })?;
        self.source.left.set(left);
        Ok(())
    }

    /// Finds the mistakes in what is never reached, of which nothing is kept.
    fn aside(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        let mut scratch = Writer::new();
        let (void, id) = (scratch.void(), scratch.id());
        scratch.begin(id, void, &[]);
        let (writer, local_bytes) =
            (std::mem::replace(&mut self.writer, scratch), self.local_bytes);
        let done = write(self);
        (self.writer, self.local_bytes) = (writer, local_bytes);
        done
    }

    /// Writes what follows, or only finds its mistakes where nothing leads to it.
    fn where_reached(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.writer.is_open() { write(self) } else { self.aside(write) }
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
        self.statements(&function.body)?;
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
        self.declare(name, Named::Variable { pointer, ty: value.ty, constant: false }, line)
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
