//! Values that pass between the steps of a request.

use crate::fault::Fault;
use crate::oip::Blobs;
use axum::body::Bytes;
use lgp_common::vision::Pixels;
use lgp_sdk::tensor::{DType, Tensor};
use std::sync::Arc;

/// A value. Clones share its data.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// BYTES elements of which some are not text.
    Blobs(Arc<Blobs>),
    /// Decoded images.
    Pictures(Arc<Vec<Pixels>>),
    Tensor(Tensor),
}

impl Value {
    /// The elements of a BYTES value.
    pub(super) fn elements(&self) -> Result<Vec<Bytes>, Fault> {
        match self {
            Self::Blobs(blobs) => Ok(blobs.elements.clone()),
            Self::Tensor(tensor) if tensor.dtype() == DType::Str => {
                let texts = tensor.strings().map_err(Fault::internal)?;
                Ok(texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect())
            }
            _ => Err(Fault::internal("a step was given another kind of value than was checked")),
        }
    }

    /// The decoded images.
    pub(super) fn pictures(&self) -> Result<&[Pixels], Fault> {
        match self {
            Self::Pictures(all) => Ok(all),
            _ => Err(Fault::internal("a step was given another kind of value than was checked")),
        }
    }

    /// The value as a tensor; images become `[count, height, width, channels]` of UINT8.
    pub(super) fn tensor(&self) -> Result<Tensor, Fault> {
        match self {
            Self::Tensor(tensor) => Ok(tensor.clone()),
            Self::Blobs(blobs) => Err(blobs.is_no_text()),
            Self::Pictures(all) => {
                let [width, height, channels] = common_size(all)?;
                let data: Vec<u8> = all.iter().flat_map(Pixels::data).copied().collect();
                Tensor::from_slice(vec![all.len(), height, width, channels], &data)
                    .map_err(Fault::internal)
            }
        }
    }

    /// Bytes that [`tensor`](Self::tensor) copies.
    pub(super) fn copied_bytes(&self) -> usize {
        match self {
            Self::Pictures(_) => self.bytes(),
            Self::Tensor(_) | Self::Blobs(_) => 0,
        }
    }

    /// Bytes of the value, which decide whether work on it runs off the request's thread.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Blobs(blobs) => blobs.elements.iter().map(Bytes::len).sum(),
            Self::Pictures(all) => all.iter().map(|one| one.data().len()).sum(),
            Self::Tensor(tensor) => tensor.packed_len(),
        }
    }
}

/// The width, height and channels that all images share; zeros for no images.
pub(super) fn common_size(all: &[Pixels]) -> Result<[usize; 3], Fault> {
    let Some(first) = all.first() else { return Ok([0; 3]) };
    let (width, height) = (first.width(), first.height());
    if let Some(at) = all.iter().position(|one| (one.width(), one.height()) != (width, height)) {
        return Err(Fault::bad_input(format!(
            "picture {at} has another size than picture 0, expected {width}x{height} pixels for all of \
             them, or a step resize before"
        )));
    }
    let side = |side: u32| usize::try_from(side).map_err(Fault::internal);
    Ok([side(width)?, side(height)?, first.channels().count()])
}
