//! Element-wise operators of two inputs, with numpy broadcasting.

/// Which function of two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryKind {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`; integers truncate towards zero, and a zero divisor is an error.
    Div,
    /// `a` to the power `b`; b may have another numeric dtype than a.
    Pow,
    /// The smaller; NaN wins.
    Min,
    /// The larger; NaN wins.
    Max,
    /// The remainder; with `fmod` its sign is the dividend's, otherwise the divisor's.
    Mod {
        /// C's `fmod` rather than Python's `%`.
        fmod: bool,
    },
    /// `a` where it is not negative, else `a * b`; b broadcasts to a.
    PRelu,
    /// `a == b`, as bool.
    Equal,
    /// `a < b`, as bool.
    Less,
    /// `a <= b`, as bool.
    LessOrEqual,
    /// `a > b`, as bool.
    Greater,
    /// `a >= b`, as bool.
    GreaterOrEqual,
    /// Both, of bools.
    And,
    /// Either, of bools.
    Or,
    /// Exactly one, of bools.
    Xor,
}

/// An element-wise operator of two inputs of one dtype that broadcast to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    /// The function.
    pub kind: BinaryKind,
}

impl Binary {
    /// The operator of a function.
    #[must_use]
    pub fn new(kind: BinaryKind) -> Self {
        Self { kind }
    }
}
crate::ops::stub!(Binary);
