//! Concrete shapes, and shapes with symbolic dimensions.

use crate::dtype::DType;
use crate::error::{Error, Result};
use std::sync::Arc;

/// The dimensions of a tensor, outermost first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// A shape from its dimensions; a scalar has none.
    #[must_use]
    pub fn new(dims: impl Into<Vec<usize>>) -> Self {
        Self(dims.into())
    }

    /// The dimensions, outermost first.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements: the product of the dimensions, 1 for a scalar.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the product overflows.
    pub fn elements(&self) -> Result<usize> {
        // A zero anywhere makes the product zero, however large the other factors are.
        if self.0.contains(&0) {
            return Ok(0);
        }
        self.0
            .iter()
            .try_fold(1usize, |n, &d| n.checked_mul(d))
            .ok_or_else(|| Error::TooLarge { shape: self.0.clone() })
    }

    /// Bytes of a contiguous tensor of this shape.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the product passes `isize::MAX`.
    pub fn byte_len(&self, dtype: DType) -> Result<usize> {
        self.elements()?
            .checked_mul(dtype.size())
            .filter(|&n| isize::try_from(n).is_ok())
            .ok_or_else(|| Error::TooLarge { shape: self.0.clone() })
    }
}

impl std::ops::Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self(dims)
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Self(dims.to_vec())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self(dims.to_vec())
    }
}

/// One dimension, which may be known only when the model runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A fixed size.
    Known(usize),
    /// A named size: equal names are equal sizes within one graph.
    Symbol(Arc<str>),
    /// An unknown size.
    Unknown,
}

impl Dim {
    /// The size, if it is fixed.
    #[must_use]
    pub fn known(&self) -> Option<usize> {
        match self {
            Self::Known(n) => Some(*n),
            _ => None,
        }
    }
}

impl std::fmt::Display for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known(n) => write!(f, "{n}"),
            Self::Symbol(s) => f.write_str(s),
            Self::Unknown => f.write_str("?"),
        }
    }
}

/// A shape with a known rank and possibly symbolic dimensions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SymShape(pub Vec<Dim>);

impl SymShape {
    /// The concrete shape, if every dimension is fixed.
    #[must_use]
    pub fn concrete(&self) -> Option<Shape> {
        self.0.iter().map(Dim::known).collect::<Option<Vec<_>>>().map(Shape)
    }

    /// Number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.len()
    }
}

impl From<&Shape> for SymShape {
    fn from(shape: &Shape) -> Self {
        Self(shape.dims().iter().map(|&d| Dim::Known(d)).collect())
    }
}

impl std::fmt::Display for SymShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

/// The type of a value before it exists: always the dtype, and the shape if its rank is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, or `None` if the rank is unknown.
    pub shape: Option<SymShape>,
}

impl TensorType {
    /// A type with a fully known shape.
    #[must_use]
    pub fn concrete(dtype: DType, shape: &Shape) -> Self {
        Self { dtype, shape: Some(shape.into()) }
    }

    /// The concrete shape, if every dimension is fixed.
    #[must_use]
    pub fn concrete_shape(&self) -> Option<Shape> {
        self.shape.as_ref().and_then(SymShape::concrete)
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.shape {
            Some(shape) => write!(f, "{} {shape}", self.dtype),
            None => write!(f, "{} of unknown rank", self.dtype),
        }
    }
}
