//! One rank's turn in a call.

use super::carry::Wire;
use super::error::RingError;
use crate::error::Result;
use crate::proto::ring::{CHUNK_BYTES, Call, Pass, RingElement, Round, Sum, Word, parts};
use lgp_memory::Reduction;
use std::ops::Range;
use std::time::Duration;

/// A call under way. Dropping one before its end ends the ring: the neighbours would take later
/// frames for the missing ones.
pub(super) struct Turn<'a> {
    pub(super) wire: &'a mut Wire,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) patience: Duration,
    pub(super) ended: bool,
}

impl Turn<'_> {
    pub(super) fn around<T>(&self, len: usize, first: usize) -> Pass {
        Pass::around(&parts(len, self.size), first % self.size, chunk::<T>())
    }

    pub(super) async fn go<W: Word, F: Fn(&[u8], &mut [W])>(
        &mut self,
        round: Round<'_, W, F>,
    ) -> Result<()> {
        Ok(self.wire.carry(round, self.patience).await?)
    }

    /// Reduces the elements of all ranks; returns the range that this rank has then.
    pub(super) async fn reduce<T: RingElement>(
        &mut self,
        call: &Call,
        data: &mut [T],
        how: Reduction,
    ) -> Result<Range<usize>> {
        if let Some(wide) = T::as_wide(data) {
            return self.reduce_wide(call, wide, how).await;
        }
        let mut wide: Vec<T::Wide> = data.iter().map(|x| x.widen()).collect();
        let own = self.reduce_wide(call, &mut wide, how).await?;
        let narrowed = data.get_mut(own.clone()).into_iter().flatten();
        for (x, wide) in narrowed.zip(wide.get(own.clone()).into_iter().flatten()) {
            *x = T::narrow(*wide);
        }
        Ok(own)
    }

    async fn reduce_wide<W: Sum>(
        &mut self,
        call: &Call,
        data: &mut [W],
        how: Reduction,
    ) -> Result<Range<usize>> {
        let own = parts(data.len(), self.size).get(self.rank).cloned().unwrap_or(0..0);
        let pass = self.around::<W>(data.len(), self.rank + self.size - 1);
        let join = |bytes: &[u8], own: &mut [W]| W::join(how, bytes, own);
        self.go(Round::new(call, pass, &mut *data, join)).await?;
        if let (Reduction::Mean, Some(sums)) = (how, data.get_mut(own.clone())) {
            W::divide(sums, u16::try_from(self.size).unwrap_or(u16::MAX));
        }
        Ok(own)
    }

    /// This rank's part of the call is done.
    pub(super) fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // After a failure this changes nothing.
            self.wire.links.fail(RingError::Dropped);
        }
    }
}

/// Elements in a frame.
pub(super) fn chunk<T>() -> usize {
    CHUNK_BYTES / size_of::<T>().max(1)
}
