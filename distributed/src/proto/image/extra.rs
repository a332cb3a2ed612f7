//! The data that follow the header of an image; most tasks have none.

use super::invalid;
use crate::proto::frame::FrameError;
use crate::proto::message::{TensorBlob, TensorMeta};
use crate::proto::tensors::plan;
use crate::task::{Backoff, ModelRef};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Data that not every task has. Reading one takes all of the bytes.
#[derive(Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Extra {
    pub(super) apart: Option<Apart>,
    pub(super) gone: bool,
    pub(super) variant: Option<ModelRef>,
    pub(super) run_limit: Option<Duration>,
    pub(super) backoff: Option<Backoff>,
    pub(super) story: Vec<(Duration, String)>,
}

/// Set in the header's length where [`Extra`] follows it.
pub(super) const EXTRA: u32 = 1 << 31;

/// Inputs or outputs that are kept outside their task's record, under the digest of their bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Apart {
    pub blob: TensorBlob,
    pub tensors: Vec<TensorMeta>,
}

impl Extra {
    /// Appends what there is to a header; returns the mark for the header's length.
    pub(super) fn encode(
        self,
        bytes: Vec<u8>,
        inputs: Option<&Apart>,
        outputs: Option<&Apart>,
    ) -> Result<(Vec<u8>, u32), FrameError> {
        if self == Self::default() && outputs.is_none() {
            return match inputs {
                Some(apart) => Ok((postcard::to_extend(apart, bytes).map_err(invalid)?, 0)),
                None => Ok((bytes, 0)),
            };
        }
        let extra = Self { apart: inputs.cloned(), ..self };
        let mut bytes = postcard::to_extend(&extra, bytes).map_err(invalid)?;
        if let Some(apart) = outputs {
            bytes = postcard::to_extend(apart, bytes).map_err(invalid)?;
        }
        Ok((bytes, EXTRA))
    }

    /// What follows a header, and where outputs lie that are kept apart.
    pub(super) fn decode(marked: bool, bytes: &[u8]) -> Result<(Self, Option<Apart>), FrameError> {
        if !marked {
            let apart = if bytes.is_empty() { None } else { Some(Apart::decode(bytes)?) };
            return Ok((Self { apart, ..Self::default() }, None));
        }
        let (extra, rest): (Self, _) = postcard::take_from_bytes(bytes).map_err(invalid)?;
        extra.apart.as_ref().map_or(Ok(()), Apart::check)?;
        let outputs = if rest.is_empty() { None } else { Some(Apart::decode(rest)?) };
        Ok((extra, outputs))
    }
}

impl Apart {
    fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (apart, rest): (Self, _) = postcard::take_from_bytes(bytes).map_err(invalid)?;
        if !rest.is_empty() {
            return Err(invalid(format!("{} bytes follow its header", rest.len())));
        }
        apart.check()?;
        Ok(apart)
    }

    fn check(&self) -> Result<(), FrameError> {
        let length = usize::try_from(self.blob.bytes).map_err(invalid)?;
        plan(self.tensors.clone(), length).map(drop)
    }
}
