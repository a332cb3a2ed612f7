//! The type and the known contents of a value while a graph is compiled.

use lgp_memory::{Dim, Tensor, TensorType, ValueKind};

/// The type and the known contents of a value while a graph is compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueInfo {
    /// The dtype and, when the rank is known, the shape.
    pub ty: TensorType,
    /// The value itself, where it does not depend on the graph's inputs.
    pub constant: Option<Tensor>,
    /// The contents of a small integer tensor that holds dimensions, such as the output of
    /// `Shape`: entries may be symbolic.
    pub dims: Option<Vec<Dim>>,
    /// The value's kind: `ty` is the type of the value itself, or of the tensors inside.
    pub kind: ValueKind,
}

impl ValueInfo {
    /// A value of which only the type is known.
    #[must_use]
    pub fn of(ty: TensorType) -> Self {
        Self { ty, constant: None, dims: None, kind: ValueKind::Tensor }
    }

    /// A value that holds tensors of a type.
    #[must_use]
    pub fn holding(kind: ValueKind, ty: TensorType) -> Self {
        Self { kind, ..Self::of(ty) }
    }
}
