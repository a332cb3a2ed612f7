//! A set of devices that compute together.

mod ring;

use super::arrival::Arrival;
use super::place::Place;
use super::reduce::wide;
use super::transfers::{TransferConfig, Transfers};
use crate::device::{Accelerator, DeviceTensor};
use crate::error::{Error, Result};
use lgp_memory::{DType, Reduction, Shape};
use ring::{Spot, parts};
use std::ops::Range;
use std::sync::Arc;

/// The name in errors.
const NAME: &str = "Group";

/// Devices with the collectives over them. Each is a rank, numbered as it was given; a collective
/// takes one tensor of each rank, and returns when its transfers are done and its kernels are
/// queued. After an error, the contents of its results are undefined.
///
/// All collectives use the ring in which each rank sends to the next. A result is calculated once
/// and copied, so that it is the same to the bit on each rank, and in each repetition: with `n`
/// ranks and `len` elements, the elements from `p · len / n` to `(p + 1) · len / n` are added up in
/// the order of ranks `p + 1`, `p + 2` … `p`, counted around. Sums of f16 and bf16 are f32 until
/// they are stored, on their way between devices too.
#[derive(Debug)]
pub struct Group {
    ranks: Vec<Accelerator>,
    transfers: Transfers,
}

impl Group {
    /// A group of these devices.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there is none.
    pub fn new(ranks: Vec<Accelerator>, config: TransferConfig) -> Result<Self> {
        if ranks.is_empty() {
            return Err(Error::invalid("there is no device, expected 1 at least").of(NAME));
        }
        let devices = ranks.iter().map(|rank| Arc::clone(rank.device())).collect();
        Ok(Self { ranks, transfers: Transfers::new(devices, config) })
    }

    /// The devices.
    #[must_use]
    pub fn ranks(&self) -> &[Accelerator] {
        &self.ranks
    }

    /// The transfers between the devices.
    #[must_use]
    pub fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// Sends a tensor of rank `from` to rank `to`, once all work launched on both is done. The copy
    /// must not be used before it has arrived, and the tensor must be kept until then.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a rank that is not there; out of memory.
    pub fn send(
        &self,
        tensor: &DeviceTensor,
        (from, to): (usize, usize),
        priority: u8,
    ) -> Result<(DeviceTensor, Arrival)> {
        let copy = self.rank(to)?.alloc(tensor.dtype(), tensor.shape().clone())?;
        let place = |rank: usize, tensor: &DeviceTensor| -> Result<Place> {
            let ready = Some(self.rank(rank)?.record()?);
            Ok(Place { ready, ..Place::new(rank, Arc::clone(tensor.buffer())) })
        };
        let bytes = tensor.shape().byte_len(tensor.dtype())?;
        let arrival =
            self.transfers.send(place(from, tensor)?, place(to, &copy)?, bytes, priority)?;
        Ok((copy, arrival))
    }

    /// Copies the tensor of rank `root` into the tensors of all ranks.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a root that is not there, or unless each rank has one tensor, all of
    /// the same type; [`Error::Transfer`].
    pub fn broadcast(&self, root: usize, tensors: &[DeviceTensor]) -> Result<()> {
        self.rank(root)?;
        let (dtype, shape) = self.alike(tensors)?;
        // Each rank gets one part from the root, and the other parts around the ring, so that the
        // root does not send the whole tensor to each rank.
        let ranges = parts(shape.byte_len(dtype)?, tensors.len());
        let others = ranges.iter().enumerate().filter(|(rank, _)| *rank != root);
        self.round(others.map(|(rank, part)| {
            let spot = |rank: usize| Spot(rank, &tensors[rank], part.start);
            (spot(root), spot(rank), part.len())
        }))?;
        self.ring_gather(tensors, &ranges)
    }

    /// Replaces every tensor with the reduction of all, element by element. Tensors are f32, f16,
    /// bf16, i32 or i64.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless each rank has one tensor, all of the same type;
    /// [`Error::Unsupported`] for another dtype or more elements than 31 bits count;
    /// [`Error::Transfer`]; out of memory.
    pub fn all_reduce(&self, how: Reduction, tensors: &[DeviceTensor]) -> Result<()> {
        let (dtype, shape) = self.alike(tensors)?;
        wide(dtype)?;
        if tensors.len() == 1 {
            return Ok(());
        }
        let parts = parts(shape.elements()?, tensors.len());
        let starts: Vec<usize> = parts.iter().map(|part| part.start).collect();
        self.ring_reduce(how, tensors, (tensors, &starts))?;
        self.ring_gather(tensors, &in_bytes(parts, dtype))
    }

    /// Reduces all tensors, element by element. Rank `p` gets the elements from `p · len / n` to
    /// `(p + 1) · len / n` of the result, in one dimension.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn reduce_scatter(
        &self,
        how: Reduction,
        tensors: &[DeviceTensor],
    ) -> Result<Vec<DeviceTensor>> {
        let (dtype, shape) = self.alike(tensors)?;
        wide(dtype)?;
        let parts = parts(shape.elements()?, tensors.len());
        let shares = self.ranks.iter().zip(&parts);
        let shares: Vec<DeviceTensor> =
            shares.map(|(rank, part)| rank.alloc(dtype, [part.len()])).collect::<Result<_>>()?;
        match tensors {
            [one] => {
                self.round([(Spot(0, one, 0), Spot(0, &shares[0], 0), shape.byte_len(dtype)?)])?
            }
            _ => self.ring_reduce(how, tensors, (&shares, &vec![0; tensors.len()]))?,
        }
        Ok(shares)
    }

    /// Gives every rank the tensors of all ranks, joined along the first dimension. Tensors may
    /// differ in this dimension only.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless each rank has one tensor, and all fit each other;
    /// [`Error::Transfer`]; out of memory.
    pub fn all_gather(&self, tensors: &[DeviceTensor]) -> Result<Vec<DeviceTensor>> {
        let first = self.each(tensors)?;
        let inner = |x: &DeviceTensor| x.shape().dims().split_first().map(|(_, d)| d.to_vec());
        if let Some(other) =
            tensors.iter().find(|x| x.dtype() != first.dtype() || inner(x) != inner(first))
        {
            return Err(unlike("along the first dimension", first, other));
        }
        let Some(inner) = inner(first) else {
            return Err(Error::invalid("a scalar has no first dimension").of(NAME));
        };
        let (mut rows, mut end, mut ranges) = (0, 0, Vec::with_capacity(tensors.len()));
        for x in tensors {
            rows += x.shape().dims()[0];
            let start = end;
            end += x.shape().byte_len(x.dtype())?;
            ranges.push(start..end);
        }
        let shape: Vec<usize> = std::iter::once(rows).chain(inner).collect();
        let alloc = |rank: &Accelerator| rank.alloc(first.dtype(), shape.clone());
        let all: Vec<DeviceTensor> = self.ranks.iter().map(alloc).collect::<Result<_>>()?;
        self.round((0..tensors.len()).map(|rank| {
            let to = Spot(rank, &all[rank], ranges[rank].start);
            (Spot(rank, &tensors[rank], 0), to, ranges[rank].len())
        }))?;
        self.ring_gather(&all, &ranges)?;
        Ok(all)
    }

    fn rank(&self, rank: usize) -> Result<&Accelerator> {
        let missing = format!("rank {rank} is asked for, there are {}", self.ranks.len());
        self.ranks.get(rank).ok_or_else(|| Error::invalid(missing).of(NAME))
    }

    /// The first tensor; an error unless there is one tensor for each rank.
    fn each<'a>(&self, tensors: &'a [DeviceTensor]) -> Result<&'a DeviceTensor> {
        let (given, wanted) = (tensors.len(), self.ranks.len());
        let message = format!("{given} tensors are given, expected one of each of {wanted} ranks");
        tensors.first().filter(|_| given == wanted).ok_or_else(|| Error::invalid(message).of(NAME))
    }

    /// The type that all tensors have; an error if one has another.
    fn alike<'a>(&self, tensors: &'a [DeviceTensor]) -> Result<(DType, &'a Shape)> {
        let first = self.each(tensors)?;
        let differs = |x: &&DeviceTensor| x.dtype() != first.dtype() || x.shape() != first.shape();
        match tensors.iter().find(differs) {
            None => Ok((first.dtype(), first.shape())),
            Some(other) => Err(unlike("", first, other)),
        }
    }
}

fn unlike(except: &str, first: &DeviceTensor, other: &DeviceTensor) -> Error {
    let shown = |x: &DeviceTensor| format!("{} {:?}", x.dtype(), x.shape());
    let but = if except.is_empty() { String::new() } else { format!(" but {except}") };
    let message =
        format!("a rank has {}, expected {} as rank 0 has{but}", shown(other), shown(first));
    Error::invalid(message).of(NAME)
}

fn in_bytes(parts: Vec<Range<usize>>, dtype: DType) -> Vec<Range<usize>> {
    let size = dtype.size();
    parts.into_iter().map(|part| part.start * size..part.end * size).collect()
}
