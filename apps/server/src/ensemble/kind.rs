//! Types of values, as far as they are known before a request.

use crate::oip;
use lgp_common::vision::Channels;
use lgp_sdk::tensor::{DType, Dim, SymShape, TensorType};
use std::fmt;

/// The type of a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// Decoded images. As a tensor they are `[count, height, width, channels]` of UINT8.
    Pictures {
        count: Dim,
        /// Width and height, if all images share them.
        size: Option<(u32, u32)>,
        channels: Channels,
    },
    Tensor(TensorType),
}

impl Kind {
    pub(super) fn tensor(dtype: DType, dims: Vec<Dim>) -> Self {
        Self::Tensor(TensorType { dtype, shape: Some(SymShape(dims)) })
    }

    /// The type of the value as a tensor.
    pub(super) fn as_tensor(&self) -> TensorType {
        match self {
            Self::Tensor(ty) => ty.clone(),
            Self::Pictures { count, size, channels } => {
                let [width, height] = side_dims(*size);
                let dims = vec![count.clone(), height, width, Dim::Known(channels.count())];
                TensorType { dtype: DType::U8, shape: Some(SymShape(dims)) }
            }
        }
    }

    /// Checks that the value may have the wanted type. Unknown sizes are checked with each request.
    pub(super) fn fits(&self, wanted: &TensorType) -> Result<(), String> {
        let given = self.as_tensor();
        let contradicts = || format!("it is {self}, expected {}", Shown(wanted));
        if given.dtype != wanted.dtype {
            return Err(contradicts());
        }
        let (Some(given), Some(wanted)) = (&given.shape, &wanted.shape) else { return Ok(()) };
        let differ =
            |(a, b): (&Dim, &Dim)| matches!((a.known(), b.known()), (Some(a), Some(b)) if a != b);
        match given.rank() != wanted.rank() || given.0.iter().zip(&wanted.0).any(differ) {
            true => Err(contradicts()),
            false => Ok(()),
        }
    }
}

/// Width and height as dimensions.
pub(super) fn side_dims(size: Option<(u32, u32)>) -> [Dim; 2] {
    let known = |side: u32| usize::try_from(side).map_or(Dim::Unknown, Dim::Known);
    size.map_or([Dim::Unknown, Dim::Unknown], |(width, height)| [known(width), known(height)])
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Shown(&self.as_tensor()))
    }
}

/// A type in the protocol's words.
struct Shown<'a>(&'a TensorType);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(oip::datatype_name(self.0.dtype))?;
        match &self.0.shape {
            None => Ok(()),
            shape => write!(f, " {:?}", oip::wire_dims(shape.as_ref())),
        }
    }
}
