//! The stack machine that runs a pickle.

use super::calls;
use super::{Heap, Id, Node};
use crate::weights::Fail;
use crate::weights::bytes::{Cursor, text};
use std::collections::HashMap;

/// More than the values of any model: bounds the memory that a small file can take.
const NODES_MAX: usize = 1 << 22;

/// The values that exist only once.
const NONE: Id = 0;
const TRUE: Id = 1;
const FALSE: Id = 2;
const EMPTY: Id = 3;

/// Runs the pickle at `start`; answers its values, the result among them, and the pickle's end.
pub(crate) fn run(bytes: &[u8], start: usize) -> Result<(Heap<'_>, Id, usize), Fail> {
    let mut cursor = Cursor::new(bytes);
    cursor.skip(start)?;
    let nodes = vec![Node::None, Node::Bool(true), Node::Bool(false), Node::Tuple(Vec::new())];
    let heap = Heap { pickle: bytes, nodes, copies: bytes.len() };
    let mut machine =
        Machine { cursor, heap, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() };
    loop {
        let op = machine.cursor.u8()?;
        if op == b'.' {
            let result = machine.pop()?;
            return Ok((machine.heap, result, machine.cursor.position()));
        }
        machine.step(op)?;
    }
}

struct Machine<'a> {
    cursor: Cursor<'a>,
    heap: Heap<'a>,
    stack: Vec<Id>,
    /// Heights of the stack at marks, lowest first.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
}

impl Machine<'_> {
    fn step(&mut self, op: u8) -> Result<(), Fail> {
        match op {
            // The protocol's number and a frame's length have no effect.
            0x80 => _ = self.cursor.u8()?,
            0x95 => _ = self.cursor.u64()?,
            b'(' => self.marks.push(self.stack.len()),
            b'0' => _ = self.pop()?,
            b'1' => _ = self.pop_mark()?,
            b'2' => self.stack.push(self.top()?),
            b'N' => self.stack.push(NONE),
            0x88 => self.stack.push(TRUE),
            0x89 => self.stack.push(FALSE),
            b')' => self.stack.push(EMPTY),
            b'J' | b'K' | b'M' | 0x8a | 0x8b | b'G' => self.number(op)?,
            b'X' | 0x8c | 0x8d | b'T' | b'U' | b'B' | b'C' | 0x8e => self.string(op)?,
            b']' => self.push(Node::List(Vec::new()))?,
            b'}' => self.push(Node::Dict(Vec::new()))?,
            0x8f => self.push(Node::Other)?,
            b't' | b'l' | b'd' | 0x85..=0x87 => self.collect(op)?,
            b'a' | b'e' | 0x90 | b's' | b'u' => self.extend(op)?,
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.remember(op)?,
            b'c' | 0x93 => self.global(op)?,
            b'R' | 0x81 => {
                let (args, callee) = (self.pop()?, self.pop()?);
                let made = calls::call(&mut self.heap, callee, args)?;
                self.push(made)?;
            }
            // The state of a dictionary or tensor only holds notes about it.
            b'b' => {
                self.pop()?;
                self.top()?;
            }
            b'Q' => {
                let id = self.pop()?;
                self.push(calls::storage(&self.heap, id)?)?;
            }
            other => {
                let at = self.cursor.position().saturating_sub(1);
                let message = format!("a pickle has opcode {other:#04x} at byte {at}");
                return Err(Fail::Bad(message + ", which no dictionary of tensors needs"));
            }
        }
        Ok(())
    }

    fn push(&mut self, node: Node) -> Result<(), Fail> {
        let id = Id::try_from(self.heap.nodes.len()).ok();
        let Some(id) = id.filter(|_| self.heap.nodes.len() < NODES_MAX) else {
            return Err(Fail::Bad(format!("a pickle has more than {NODES_MAX} values")));
        };
        self.heap.nodes.push(node);
        self.stack.push(id);
        Ok(())
    }

    /// The height below which nothing may be popped.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Id, Fail> {
        let above = self.stack.get(self.floor()..).unwrap_or_default();
        above.last().copied().ok_or_else(|| Fail::from("a pickle takes from an empty stack"))
    }

    fn pop(&mut self) -> Result<Id, Fail> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// The values pushed since the last mark.
    fn pop_mark(&mut self) -> Result<Vec<Id>, Fail> {
        let mark = self.marks.pop().ok_or("a pickle lacks a mark")?;
        // Nothing pops below a mark.
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn number(&mut self, op: u8) -> Result<(), Fail> {
        let value = match op {
            b'J' => i64::from(i32::from_le_bytes(self.cursor.array()?)),
            b'K' => i64::from(self.cursor.u8()?),
            b'M' => i64::from(u16::from_le_bytes(self.cursor.array()?)),
            b'G' => {
                let value = f64::from_be_bytes(self.cursor.array()?);
                return self.push(Node::Float(value));
            }
            _ => {
                let len =
                    if op == 0x8a { u32::from(self.cursor.u8()?) } else { self.cursor.u32()? };
                let digits = self.cursor.take(size(len)?)?;
                let negative = digits.last().is_some_and(|&b| b > 0x7f);
                let mut value = [if negative { 0xff } else { 0 }; 8];
                let Some(low) = value.get_mut(..digits.len()) else {
                    // No size is that large, but a seed may be.
                    return self.push(Node::Other);
                };
                low.copy_from_slice(digits);
                i64::from_le_bytes(value)
            }
        };
        self.push(Node::Int(value))
    }

    fn string(&mut self, op: u8) -> Result<(), Fail> {
        let len = match op {
            0x8c | b'U' | b'C' => usize::from(self.cursor.u8()?),
            b'X' | b'T' | b'B' => size(self.cursor.u32()?)?,
            _ => self.cursor.count()?,
        };
        let range = self.cursor.skip(len)?;
        match op {
            b'B' | b'C' | 0x8e => self.push(Node::Other),
            _ => {
                text(self.heap.pickle.get(range.clone()).unwrap_or_default())?;
                self.push(Node::Text(range))
            }
        }
    }

    /// Makes a tuple, list or dictionary from values on the stack.
    fn collect(&mut self, op: u8) -> Result<(), Fail> {
        let node = match op {
            b't' => Node::Tuple(self.pop_mark()?),
            b'l' => Node::List(self.pop_mark()?),
            b'd' => Node::Dict(pairs(&self.pop_mark()?)?),
            _ => {
                let mut items = (0x84..op).map(|_| self.pop()).collect::<Result<Vec<_>, _>>()?;
                items.reverse();
                Node::Tuple(items)
            }
        };
        self.push(node)
    }

    /// Adds values to the list, set or dictionary below them.
    fn extend(&mut self, op: u8) -> Result<(), Fail> {
        let items = match op {
            b'a' => vec![self.pop()?],
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                vec![key, value]
            }
            _ => self.pop_mark()?,
        };
        let target = usize::try_from(self.top()?).ok();
        match (op, target.and_then(|id| self.heap.nodes.get_mut(id))) {
            (b'a' | b'e', Some(Node::List(list))) => list.extend(items),
            (b's' | b'u', Some(Node::Dict(dict))) => dict.extend(pairs(&items)?),
            (0x90, Some(Node::Other)) => {}
            _ => return Err(Fail::from("a pickle adds items to what cannot take them")),
        }
        Ok(())
    }

    fn remember(&mut self, op: u8) -> Result<(), Fail> {
        let key = match op {
            b'q' | b'h' => u32::from(self.cursor.u8()?),
            b'r' | b'j' => self.cursor.u32()?,
            _ => u32::try_from(self.memo.len()).unwrap_or(u32::MAX),
        };
        if matches!(op, b'h' | b'j') {
            let id = self.memo.get(&key).ok_or_else(|| format!("a pickle forgot value {key}"))?;
            self.stack.push(*id);
        } else {
            self.memo.insert(key, self.top()?);
        }
        Ok(())
    }

    fn global(&mut self, op: u8) -> Result<(), Fail> {
        let found = if op == b'c' {
            let (module, name) = (text(self.cursor.line()?)?, text(self.cursor.line()?)?);
            calls::global(module, name)?
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            let (Some(module), Some(name)) = (self.heap.text(module), self.heap.text(name)) else {
                return Err(Fail::from("a pickle names something by what is no text"));
            };
            calls::global(module, name)?
        };
        self.push(Node::Global(found))
    }
}

fn size(len: u32) -> Result<usize, Fail> {
    usize::try_from(len).map_err(|_| Fail::from("a length is too large"))
}

fn pairs(items: &[Id]) -> Result<Vec<(Id, Id)>, Fail> {
    let (pairs, rest) = items.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Fail::from("a pickle has a key without a value"));
    }
    Ok(pairs.iter().map(|&[key, value]| (key, value)).collect())
}
