//! Collectives between processes, on machines of one cluster.

mod carry;
mod config;
mod error;
mod join;
mod links;
pub(crate) mod meet;
#[cfg(test)]
mod tests;
mod tls;
mod turn;

pub use config::{RingConfig, RingPeers};
pub use error::RingError;

use crate::error::{Error, Result};
use crate::net::transport::close::Close;
use crate::proto::ring::{Call, Operation, Pass, RingElement, Round, Word};
use carry::Wire;
use lgp_memory::{DType, Reduction};
use quinn::{Endpoint, StoppedError};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use turn::{Turn, chunk};

/// Longest [`RingConfig::timeout`].
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Extra time after the deadline for the first barrier: the last rank may connect just in time.
const GRACE: Duration = Duration::from_millis(500);
/// Time for the last packets to leave.
const FAREWELL: Duration = Duration::from_millis(500);

/// One rank among processes that compute together.
///
/// Each rank sends to the next one, and the last to the first, over QUIC; each end shows the
/// certificate of a worker of the same cluster. All ranks make the same calls in the same order:
/// the first bytes of a call show when a rank makes another call, which ends the ring for all.
///
/// A result is calculated once and passed on, so that every rank has the same bits, in each
/// repetition. Of `n` ranks and `len` elements, the elements from `p · len / n` to
/// `(p + 1) · len / n` are added up in the order of ranks `p + 1`, `p + 2` … `p`, wrapping around.
/// Partial sums of f16 and bf16 travel as f32 and are rounded once. Elements travel in frames of
/// 256 KiB; a rank sends each frame on while it receives the next one.
///
/// Every call fails with [`Error::Ring`]. Unless an argument is bad, the first failure of any rank
/// ends the ring for all ranks, and every later call returns that failure. The data that a failed
/// call would have written is undefined. A rank that falls silent is noticed within three seconds;
/// a rank that lives but does not take part, after [`RingConfig::timeout`].
///
/// The Tokio runtime in which a rank joined must keep running while the caller computes: on its own
/// thread, or on several. A ring ends with [`Ring::leave`]. Dropping a ring makes the other ranks
/// fail, because they may still need data from this rank.
#[derive(Debug)]
pub struct Ring {
    rank: u32,
    size: u32,
    timeout: Duration,
    /// Number of the next call.
    call: u64,
    /// `None` for a ring of one.
    wire: Option<(Endpoint, Wire)>,
}

impl Ring {
    /// Finds the other ranks and resolves once all are connected; fails half a second after
    /// [`RingConfig::timeout`] at the latest.
    ///
    /// # Errors
    /// [`Error::Ring`] when ranks are missing after [`RingConfig::timeout`], do not fit together or
    /// do not trust one another; [`Error::Refused`] by the coordinator; [`Error::Connection`] when
    /// it does not answer; [`Error::Bind`]; [`Error::Pki`].
    pub async fn join(config: RingConfig) -> Result<Self> {
        // `Instant::now() + timeout` must not overflow for a caller who wants to wait for ever.
        let config = RingConfig { timeout: config.timeout.min(TIMEOUT_MAX), ..config };
        let &RingConfig { rank, size, timeout, .. } = &config;
        let deadline = Instant::now() + timeout;
        let wire = match (rank, size) {
            (0, 1) => None,
            _ => Some(join::join(&config, deadline).await?),
        };
        let mut ring = Self { rank, size, timeout, call: 0, wire };
        // A barrier checks all ranks: a neighbour may be connected while another rank is refused.
        let links = ring.wire.as_ref().map(|(_, wire)| Arc::clone(&wire.links));
        {
            let mut meeting = pin!(ring.barrier());
            let met = timeout_at(deadline + GRACE, &mut meeting).await;
            met.unwrap_or_else(|_| {
                // Fail the links before the call is dropped, which would give a vaguer error.
                let error = RingError::Stalled { rank: (rank + size - 1) % size, waited: timeout };
                Err(links.map_or(error.clone(), |links| links.fail(error)).into())
            })?;
        }
        Ok(ring)
    }

    /// Which of the ranks this is.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// What ended the ring, if it has ended.
    #[must_use]
    pub fn fault(&self) -> Option<&RingError> {
        self.wire.as_ref().and_then(|(_, wire)| wire.links.fault())
    }

    /// Resolves once every rank has called it.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub async fn barrier(&mut self) -> Result<()> {
        let call = self.next(Operation::Barrier, DType::I32, 0);
        let Some(mut turn) = self.turn()? else { return Ok(()) };
        let pass = turn.around::<i32>(0, turn.rank);
        turn.go(Round::new(&call, pass, &mut [], <i32 as Word>::get)).await?;
        turn.end();
        Ok(())
    }

    /// Every rank's elements become those of rank `root`.
    ///
    /// Each rank takes and sends every byte once; the rank before the root sends none.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub async fn broadcast<T: RingElement>(&mut self, data: &mut [T], root: u32) -> Result<()> {
        if root >= self.size {
            let (given, expected) = (usize::try_from(root).unwrap_or(usize::MAX), self.size);
            let expected = format!("a rank below {expected}");
            return Err(Error::from(RingError::Argument { what: "root", given, expected }));
        }
        let call = self.next(Operation::Broadcast, T::DTYPE, data.len());
        let call = Call { root: Some(root), ..call };
        let Some(mut turn) = self.turn()? else { return Ok(()) };
        let root = usize::try_from(root).unwrap_or(0);
        let pass = Pass::along(data.len(), (turn.rank, root, turn.size), chunk::<T>());
        turn.go(Round::new(&call, pass, data, Word::get)).await?;
        turn.end();
        Ok(())
    }

    /// Every rank's elements become the reduction of those of all ranks, place by place.
    ///
    /// Each rank receives and sends `2 (n - 1) / n` of the bytes, the least that any algorithm
    /// needs (f16 and bf16: half as much again, for their sums travel as f32).
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub async fn all_reduce<T: RingElement>(
        &mut self,
        data: &mut [T],
        how: Reduction,
    ) -> Result<()> {
        let call = self.next(Operation::AllReduce, T::DTYPE, data.len());
        let call = Call { how: Some(how), ..call };
        let Some(mut turn) = self.turn()? else { return Ok(()) };
        turn.reduce(&call, data, how).await?;
        let pass = turn.around::<T>(data.len(), turn.rank);
        turn.go(Round::new(&call, pass, data, Word::get)).await?;
        turn.end();
        Ok(())
    }

    /// Reduces the elements of all ranks. Rank `p` gets the elements from `p · len / n` to
    /// `(p + 1) · len / n`, at their places in `data`; returns that range. The rest of `data` is
    /// undefined afterwards.
    ///
    /// Each rank takes and sends `(n - 1) / n` of the bytes.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub async fn reduce_scatter<T: RingElement>(
        &mut self,
        data: &mut [T],
        how: Reduction,
    ) -> Result<Range<usize>> {
        let call = self.next(Operation::ReduceScatter, T::DTYPE, data.len());
        let call = Call { how: Some(how), ..call };
        let Some(mut turn) = self.turn()? else { return Ok(0..data.len()) };
        let own = turn.reduce(&call, data, how).await?;
        turn.end();
        Ok(own)
    }

    /// The elements of all ranks, one rank after the other. Every rank must give the same number.
    ///
    /// Each rank takes and sends `(n - 1) / n` of the result's bytes.
    ///
    /// # Errors
    /// [`Error::Ring`], also when there is no memory for the result.
    pub async fn all_gather<T: RingElement>(&mut self, own: &[T]) -> Result<Vec<T>> {
        let mut all = Vec::new();
        let len = own.len().saturating_mul(usize::try_from(self.size).unwrap_or(usize::MAX));
        if all.try_reserve_exact(len).is_err() {
            let (given, expected) = (own.len(), "as many of each rank as fit the memory".into());
            return Err(Error::from(RingError::Argument { what: "elements", given, expected }));
        }
        all.resize(len, T::default());
        let call = self.next(Operation::AllGather, T::DTYPE, own.len());
        let Some(mut turn) = self.turn()? else { return Ok(own.to_vec()) };
        let start = turn.rank * own.len();
        if let Some(place) = all.get_mut(start..start + own.len()) {
            place.copy_from_slice(own);
        }
        let pass = turn.around::<T>(all.len(), turn.rank);
        turn.go(Round::new(&call, pass, &mut all, Word::get)).await?;
        turn.end();
        Ok(all)
    }

    /// Leaves once the next rank has everything that this rank sent. After that, the other ranks
    /// can only leave, too.
    ///
    /// # Errors
    /// [`Error::Ring`] when the ring has failed, or the next rank does not take the rest.
    pub async fn leave(mut self) -> Result<()> {
        // `wire` stays in `self`: if this future is dropped, so is the ring.
        let Some((endpoint, wire)) = &mut self.wire else { return Ok(()) };
        let links = Arc::clone(&wire.links);
        if let Some(fault) = links.fault() {
            return Err(fault.clone().into());
        }
        // The stream has not been finished before, so this cannot fail.
        let _ = wire.send.finish();
        match tokio::time::timeout(self.timeout, wire.send.stopped()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                let (rank, reason) = (links.next.0, error.to_string());
                let error = match &error {
                    StoppedError::ConnectionLost(error) => RingError::of(rank, error),
                    StoppedError::ZeroRttRejected => RingError::Lost { rank, reason },
                };
                // A rank that left before has all that it needed.
                if !matches!(error, RingError::Left { .. }) {
                    return Err(links.fail(error).into());
                }
            }
            Err(_) => {
                let (rank, waited) = (links.next.0, self.timeout);
                return Err(links.fail(RingError::Stalled { rank, waited }).into());
            }
        }
        links.close(Close::Farewell, Close::Farewell.reason().as_bytes());
        // The other ranks may be gone and never confirm.
        let _ = tokio::time::timeout(FAREWELL, endpoint.wait_idle()).await;
        Ok(())
    }

    /// The next call, as every rank must make it.
    fn next(&mut self, operation: Operation, dtype: DType, count: usize) -> Call {
        let number = self.call;
        self.call += 1;
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        Call { number, operation, dtype, count, how: None, root: None }
    }

    /// This rank's turn in a call; `None` in a ring of one.
    fn turn(&mut self) -> Result<Option<Turn<'_>>> {
        let wide = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let (rank, size, patience) = (wide(self.rank), wide(self.size), self.timeout);
        let Some((_, wire)) = &mut self.wire else { return Ok(None) };
        if let Some(fault) = wire.links.fault() {
            return Err(fault.clone().into());
        }
        Ok(Some(Turn { wire, rank, size, patience, ended: false }))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some((_, wire)) = &self.wire {
            wire.links.fail(RingError::Dropped);
        }
    }
}
