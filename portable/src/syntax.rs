//! The tree of a source: kernels and functions, statements and expressions.

use std::rc::Rc;

/// The type of a value. Halves exist in memory only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    Void,
    Bool,
    Int(Int),
    F32,
    F32x4,
    F16,
    BF16,
}

/// An integer type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Int {
    /// 8, 16, 32 or 64.
    pub(crate) bits: u32,
    pub(crate) signed: bool,
}

pub(crate) const I32: Type = Type::Int(Int { bits: 32, signed: true });
pub(crate) const I64: Type = Type::Int(Int { bits: 64, signed: true });
pub(crate) const U32: Type = Type::Int(Int { bits: 32, signed: false });

/// Every type by its name.
const TYPES: &[(&str, Type)] = &[
    ("void", Type::Void),
    ("bool", Type::Bool),
    ("float", Type::F32),
    ("float4", Type::F32x4),
    ("f16", Type::F16),
    ("bf16", Type::BF16),
    ("i8", Type::Int(Int { bits: 8, signed: true })),
    ("u8", Type::Int(Int { bits: 8, signed: false })),
    ("i16", Type::Int(Int { bits: 16, signed: true })),
    ("u16", Type::Int(Int { bits: 16, signed: false })),
    ("i32", I32),
    ("u32", U32),
    ("i64", I64),
    ("u64", Type::Int(Int { bits: 64, signed: false })),
];

impl Type {
    pub(crate) fn named(name: &str) -> Option<Self> {
        TYPES.iter().find(|(own, _)| *own == name).map(|(_, ty)| *ty)
    }

    pub(crate) fn name(self) -> &'static str {
        TYPES.iter().find(|(_, ty)| *ty == self).map_or("", |(name, _)| name)
    }

    /// Bytes in memory.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::Void => 0,
            Self::Bool => 1,
            Self::Int(Int { bits, .. }) => bits / 8,
            Self::F32 => 4,
            Self::F32x4 => 16,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// Whether values of the type have operators.
    pub(crate) fn is_number(self) -> bool {
        matches!(self, Self::Bool | Self::Int(_) | Self::F32)
    }

    pub(crate) fn is_integer(self) -> bool {
        matches!(self, Self::Bool | Self::Int(_))
    }

    /// The type after C's promotion of integers below 32 bits.
    pub(crate) fn promoted(self) -> Self {
        match self {
            Self::Bool => I32,
            Self::Int(Int { bits, .. }) if bits < 32 => I32,
            other => other,
        }
    }

    /// The type in which C calculates with values of two types.
    pub(crate) fn common(self, other: Self) -> Self {
        match (self.promoted(), other.promoted()) {
            (Self::Int(a), Self::Int(b)) => {
                let bits = a.bits.max(b.bits);
                let unsigned = |int: Int| int.bits == bits && !int.signed;
                Self::Int(Int { bits, signed: !unsigned(a) && !unsigned(b) })
            }
            (Self::F32x4, _) | (_, Self::F32x4) => Self::F32x4,
            _ => Self::F32,
        }
    }
}

/// A kernel or function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: Rc<str>,
    pub(crate) line: u32,
    pub(crate) result: Type,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Vec<Statement>,
    /// For a kernel: `Some` with the expressions of the sides of a work-group, if they are given.
    pub(crate) kernel: Option<Option<[Expression; 3]>>,
    /// Whether float operators keep to their own rounding, as the functions of the language itself need it.
    pub(crate) precise: bool,
}

impl Function {
    /// Whether no parameter is a pointer.
    pub(crate) fn takes_values(&self) -> bool {
        self.parameters.iter().all(|parameter| parameter.kind == Passed::Value)
    }
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: Rc<str>,
    pub(crate) line: u32,
    pub(crate) ty: Type,
    pub(crate) kind: Passed,
}

/// How a parameter is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    Value,
    /// A pointer to a buffer.
    Buffer {
        constant: bool,
    },
    /// A pointer to a private array, or to a part of one.
    Array,
}

#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) line: u32,
    pub(crate) kind: Do,
}

#[derive(Debug)]
pub(crate) enum Do {
    Nothing,
    Block(Vec<Statement>),
    Declare(Vec<Declaration>),
    /// Expressions that commas join.
    Expressions(Vec<Expression>),
    If(Expression, Box<Statement>, Option<Box<Statement>>),
    For {
        first: Option<Box<Statement>>,
        condition: Option<Expression>,
        step: Vec<Expression>,
        body: Box<Statement>,
        unroll: Unroll,
    },
    /// `do` tests after its body.
    While {
        condition: Expression,
        body: Box<Statement>,
        after: bool,
    },
    Return(Option<Expression>),
    Break,
    Continue,
}

/// What stands before a loop about unrolling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unroll {
    /// Nothing.
    Unsaid,
    Whole,
    Never,
    /// By so many steps.
    By(u32),
}

#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) name: Rc<str>,
    pub(crate) ty: Type,
    pub(crate) kind: Declared,
    pub(crate) constant: bool,
    pub(crate) sizes: Vec<Expression>,
    pub(crate) value: Option<Expression>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declared {
    Private,
    Local,
    /// A pointer to a buffer.
    Pointer,
}

#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) line: u32,
    pub(crate) kind: Of,
    /// How many expressions are one in another, with this one.
    pub(crate) height: u32,
}

impl Expression {
    pub(crate) fn new(line: u32, kind: Of) -> Self {
        let inner = match &kind {
            Of::Number(_) | Of::Name(_) => 0,
            Of::Call(_, arguments) => arguments.iter().map(|each| each.height).max().unwrap_or(0),
            Of::Index(a, b) | Of::Binary(_, a, b) | Of::Assign(_, a, b) => a.height.max(b.height),
            Of::Member(of, _) | Of::Unary(_, of) | Of::Cast(_, of) => of.height,
            Of::Choice(parts) => parts.iter().map(|part| part.height).max().unwrap_or(0),
        };
        Self { line, kind, height: inner + 1 }
    }

    /// The number that the expression is, if it is made of numbers alone.
    pub(crate) fn number(&self) -> Option<Number> {
        match self.kind {
            Of::Number(number) => Some(number),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Of {
    Number(Number),
    Name(Rc<str>),
    Call(Rc<str>, Vec<Expression>),
    Index(Box<Expression>, Box<Expression>),
    Member(Box<Expression>, Rc<str>),
    Unary(&'static str, Box<Expression>),
    Binary(&'static str, Box<Expression>, Box<Expression>),
    Choice(Box<[Expression; 3]>),
    Cast(Type, Box<Expression>),
    /// `=` with no operator, `+=` with `+`, and so on; `++` and `--` add to it and subtract 1.
    Assign(Option<&'static str>, Box<Expression>, Box<Expression>),
}

/// A number that is known when a kernel is compiled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Bool(bool),
    /// The bits of an integer of a type of 32 or 64 bits; those beyond 32 are 0.
    Int(Int, u64),
    Float(f32),
}
