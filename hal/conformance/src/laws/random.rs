//! A law about the meaning of programs: random ones give what C says, which the host works out beside them.
//!
//! Programs keep to what C defines: no signed sum beyond 32 bits, no quotient by 0, no index out of its array.

mod draw;
mod meaning;
mod text;

use super::programs::{download, upload, with_programs};
use super::{Broken, Lawful, Verdict, same};
use draw::Draw;
use lgp_hal::{Arg, Device, Launch};
use std::ops::Range;

/// Work-items of the one work-group.
const ITEMS: usize = 64;
/// The variables of a program, by their types; they are its output.
const VARIABLES: [Type; 9] = [
    Type::U32,
    Type::U32,
    Type::I32,
    Type::U8,
    Type::I8,
    Type::U16,
    Type::I16,
    Type::I64,
    Type::U64,
];
/// Programs that the law tries.
const PROGRAMS: u64 = 16;

/// The types of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I16 => "i16",
            Self::U16 => "u16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F32 => "float",
        }
    }
}

/// An expression.
#[derive(Debug, Clone)]
enum Node {
    Number(i64),
    Variable(usize),
    /// The work-item's place.
    Lane,
    /// What a function was given.
    Parameter(usize),
    /// A function of two words.
    Call(usize, Box<[Node; 2]>),
    /// An element of an input, at an index modulo its length: of words, bytes and pairs of bytes.
    Input(Type, Box<Node>),
    /// An element of the private array.
    Array(Box<Node>),
    Cast(Type, Box<Node>),
    Not(Box<Node>),
    Binary(&'static str, Box<Node>, Box<Node>),
    Choice(Box<[Node; 3]>),
}

/// A statement.
#[derive(Debug, Clone)]
enum Step {
    Assign(usize, Option<&'static str>, Node),
    /// An element of the private array is written, here or by a function that takes the array.
    Keep(bool, Node, Node),
    If(Node, Vec<Step>, Vec<Step>),
    /// So many steps, with a variable of its own; left early where a condition holds.
    Repeat {
        way: Way,
        name: usize,
        count: i64,
        body: Vec<Step>,
        leave: Option<(Node, bool)>,
    },
    /// A variable is exchanged with another work-item.
    Exchange(usize, u32),
}

/// How a loop is written.
#[derive(Debug, Clone, Copy)]
enum Way {
    For,
    While,
    Do,
}

/// A function of two words; it returns early where a condition holds.
#[derive(Debug)]
struct Function {
    early: Option<(Node, Node)>,
    result: Node,
}

#[derive(Debug)]
struct Program {
    functions: Vec<Function>,
    steps: Vec<Step>,
}

pub(super) fn law(device: &dyn Device) -> Verdict {
    with_programs(device, |device| programs(device, 0..PROGRAMS))
}

/// Tries the programs of these seeds.
fn programs(device: &dyn Device, seeds: Range<u64>) -> Lawful {
    seeds.into_iter().try_for_each(|seed| {
        let program = Draw::new(seed).program();
        let source = text::program(&program);
        one(device, &program, &source)
            .map_err(|Broken(what)| Broken(format!("program {seed}: {what}\n{source}")))
    })
}

/// Tries the random programs of some seeds, as the law does with the first ones.
///
/// # Errors
/// The first program that gives something else than C says, with its text.
pub fn random_programs(device: &dyn Device, seeds: Range<u64>) -> Result<(), String> {
    programs(device, seeds).map_err(|Broken(what)| what)
}

fn one(device: &dyn Device, drawn: &Program, source: &str) -> Lawful {
    let words = super::pattern(4 * ITEMS, 1);
    let words: Vec<u32> = words
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    let program = device.compile(source, "")?;
    let mut queue = device.queue()?;
    let input = upload(device, &mut *queue, &words)?;
    let out = upload(device, &mut *queue, &vec![0; ITEMS * VARIABLES.len()])?;
    let given = Arg::Buffer(&*input);
    let args = [given, given, given, Arg::Buffer(&*out)];
    let local = Some([ITEMS, 1, 1]);
    let launch =
        Launch { program: &*program, kernel: "drawn", global: [ITEMS, 1, 1], local, args: &args };
    // SAFETY: every index is taken modulo the length of its array.
    unsafe { queue.launch(&launch)? };
    let found = download(&mut *queue, &*out)?;
    same("its variables", &found, &meaning::run(drawn, &words))
}
