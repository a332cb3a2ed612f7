//! The functions of two elements.

/// A function of two elements.
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
    /// `a` to the power `b`, whose numeric dtype may differ from a's.
    Pow,
    /// The smaller number; NaN if either is NaN.
    Min,
    /// The larger number; NaN if either is NaN.
    Max,
    /// The remainder, with the dividend's sign if `fmod`, otherwise with the divisor's.
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
    /// Whether both bools are true.
    And,
    /// Whether at least one bool is true.
    Or,
    /// Whether exactly one bool is true.
    Xor,
}
