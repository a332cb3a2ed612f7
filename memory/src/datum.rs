//! The values of a graph: tensors, sequences, maps and optional values.

use crate::shape::TensorType;
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// A value: a tensor, or one of the other kinds that a few operators make and take.
#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    /// A tensor.
    Tensor(Tensor),
    /// A list of values.
    Sequence(Vec<Datum>),
    /// A dictionary: keys (i64 or strings) and as many values, both of rank 1.
    Map {
        /// The keys, each once.
        keys: Tensor,
        /// The value of each key.
        values: Tensor,
    },
    /// An optional value that is absent. A present one is just the value.
    Absent,
}

impl Datum {
    /// The tensor, if it is one.
    #[must_use]
    pub fn tensor(&self) -> Option<&Tensor> {
        if let Self::Tensor(tensor) = self { Some(tensor) } else { None }
    }

    /// The kind of the value, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "a tensor",
            Self::Sequence(_) => "a sequence",
            Self::Map { .. } => "a map",
            Self::Absent => "an absent optional",
        }
    }
}

impl From<Tensor> for Datum {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

/// The kind of value behind a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ValueKind {
    /// A tensor of the type.
    #[default]
    Tensor,
    /// A sequence of tensors of the type.
    Sequence,
    /// A tensor of the type, or nothing.
    Optional,
    /// A sequence of tensors of the type, or nothing.
    OptionalSequence,
    /// A map whose values have the type's dtype.
    Map,
    /// A sequence of such maps.
    SequenceOfMaps,
}

impl ValueKind {
    /// Whether a value is of this kind.
    #[must_use]
    pub fn holds(self, value: &Datum) -> bool {
        let all = |items: &[Datum], kind: Self| items.iter().all(|item| kind.holds(item));
        match (self, value) {
            (Self::Tensor | Self::Optional, Datum::Tensor(_))
            | (Self::Optional | Self::OptionalSequence, Datum::Absent)
            | (Self::Map, Datum::Map { .. }) => true,
            (Self::Sequence | Self::OptionalSequence, Datum::Sequence(items)) => {
                all(items, Self::Tensor)
            }
            (Self::SequenceOfMaps, Datum::Sequence(items)) => all(items, Self::Map),
            _ => false,
        }
    }

    /// Whether values of this kind are tensors.
    #[must_use]
    pub fn holds_tensors(self) -> bool {
        matches!(self, Self::Tensor | Self::Optional)
    }

    /// The kind without the type, for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tensor => "a tensor",
            Self::Sequence => "a sequence",
            Self::Optional => "an optional tensor",
            Self::OptionalSequence => "an optional sequence",
            Self::Map => "a map",
            Self::SequenceOfMaps => "a sequence of maps",
        }
    }

    /// The kind and its tensors' type, for messages.
    #[must_use]
    pub fn describe(self, ty: &TensorType) -> String {
        match self {
            Self::Tensor => ty.to_string(),
            Self::Sequence => format!("a sequence of {ty}"),
            Self::Optional => format!("optionally {ty}"),
            Self::OptionalSequence => format!("optionally a sequence of {ty}"),
            Self::Map => format!("a map to {}", ty.dtype),
            Self::SequenceOfMaps => format!("a sequence of maps to {}", ty.dtype),
        }
    }
}
