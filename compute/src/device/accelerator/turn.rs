//! Turns: the hold that a run has on a device from its first command to its last; and tensors that
//! stay on the device between runs while there is room.

use super::memory::DeviceArena;
use super::{Accelerator, lock};
use crate::device::tensor::DeviceTensor;
use crate::error::{Error, Result};
use lgp_memory::{DType, PinnedBlock, RelocatableBlock, Shape, TensorView};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

/// The runs of a device.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Runs share the gate; a run that needs the memory of others waits until it holds the gate
    /// alone.
    gate: RwLock<()>,
    /// Counts the runs.
    clock: AtomicU64,
    kept: Mutex<Vec<Weak<Kept>>>,
}

/// A tensor that stays on the device until a run needs its memory. Of all sessions' tensors, the
/// least recently used one is evicted first. The host must keep the content, which is uploaded
/// again after an eviction.
#[derive(Debug)]
pub struct Kept {
    /// The number of the last run that wanted the tensor.
    used: AtomicU64,
    place: Mutex<Option<Arc<RelocatableBlock>>>,
}

/// A [`Kept`] tensor that keeps its memory until this is dropped.
#[derive(Debug, Clone)]
pub struct Resident {
    dtype: DType,
    shape: Shape,
    block: Arc<RelocatableBlock>,
}

/// A [`Resident`] tensor that is not moved until this is dropped.
#[derive(Debug)]
pub struct PinnedTensor<'a> {
    tensor: DeviceTensor,
    _pin: PinnedBlock<'a>,
}

impl Resident {
    /// The tensor where it lies now.
    ///
    /// # Errors
    /// A device that refuses a slice.
    pub fn pin(&self) -> Result<PinnedTensor<'_>> {
        let pin = self.block.pin()?;
        let tensor = DeviceTensor::new(self.dtype, self.shape.clone(), pin.handle());
        Ok(PinnedTensor { tensor, _pin: pin })
    }
}

impl PinnedTensor<'_> {
    /// The tensor, which must not be used after this is dropped.
    #[must_use]
    pub fn tensor(&self) -> &DeviceTensor {
        &self.tensor
    }
}

#[derive(Debug)]
enum Gate<'a> {
    Shared { _guard: RwLockReadGuard<'a, ()> },
    Alone { guard: RwLockWriteGuard<'a, ()> },
}

/// A run's turn on a device: other runs may share it unless it is alone.
#[derive(Debug)]
pub struct Turn<'a> {
    accelerator: &'a Accelerator,
    gate: Gate<'a>,
    number: u64,
}

impl Accelerator {
    /// A tensor that is to stay on the device; it has no memory yet.
    #[must_use]
    pub fn keep(&self) -> Arc<Kept> {
        let kept = Arc::new(Kept { used: AtomicU64::new(0), place: Mutex::default() });
        let mut all = lock(&self.0.runs.kept);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&kept));
        kept
    }

    /// A turn that others may share. It takes free memory only.
    #[must_use]
    pub fn turn(&self) -> Turn<'_> {
        let guard = self.0.runs.gate.read().unwrap_or_else(PoisonError::into_inner);
        self.numbered(Gate::Shared { _guard: guard })
    }

    /// A turn that no other run shares: it waits for earlier runs, and later runs wait for it. It
    /// evicts kept tensors that it does not want where it needs their memory.
    #[must_use]
    pub fn turn_alone(&self) -> Turn<'_> {
        let guard = self.0.runs.gate.write().unwrap_or_else(PoisonError::into_inner);
        self.numbered(Gate::Alone { guard })
    }

    fn numbered<'a>(&'a self, gate: Gate<'a>) -> Turn<'a> {
        let number = 1 + self.0.runs.clock.fetch_add(1, Ordering::Relaxed);
        Turn { accelerator: self, gate, number }
    }
}

impl Turn<'_> {
    /// Marks a kept tensor as wanted by this run, so that the run does not evict it for other
    /// tensors.
    pub fn want(&self, kept: &Kept) {
        kept.used.fetch_max(self.number, Ordering::Relaxed);
    }

    /// A kept tensor in its memory. If it has none, it gets memory and `content` is copied there.
    ///
    /// # Errors
    /// Out of memory, with the owners of the memory.
    pub fn resident(&self, kept: &Kept, content: &TensorView<'_>) -> Result<Resident> {
        let (dtype, shape) = (content.dtype(), content.shape().clone());
        let mut place = lock(&kept.place);
        if let Some(block) = &*place {
            return Ok(Resident { dtype, shape, block: Arc::clone(block) });
        }
        let block = Arc::new(self.relocatable(content.as_bytes().len())?);
        let resident = Resident { dtype, shape, block: Arc::clone(&block) };
        self.accelerator.write(resident.pin()?.tensor(), content.as_bytes())?;
        *place = Some(block);
        Ok(resident)
    }

    fn relocatable(&self, bytes: usize) -> Result<RelocatableBlock> {
        Ok(self.make_room(|| self.accelerator.take(bytes, "weights"))?.relocatable())
    }

    /// Blocks of these sizes, for all tensors with planned places.
    ///
    /// # Errors
    /// Out of memory, with the owners of the memory.
    pub fn arena(&self, blocks: &[usize]) -> Result<DeviceArena> {
        let take = |&bytes: &usize| {
            Ok(self.make_room(|| self.accelerator.take(bytes, "arena"))?.into_buffer())
        };
        Ok(DeviceArena::new(blocks.iter().map(take).collect::<Result<_>>()?))
    }

    /// Lets others share the turn from now on.
    #[must_use]
    pub fn shared(self) -> Self {
        let gate = match self.gate {
            Gate::Alone { guard } => Gate::Shared { _guard: RwLockWriteGuard::downgrade(guard) },
            shared @ Gate::Shared { .. } => shared,
        };
        Self { gate, ..self }
    }

    /// Takes memory. Where there is none, and this turn is alone, it evicts kept tensors one by
    /// one.
    fn make_room<T>(&self, take: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match take() {
                Err(Error::Memory(lgp_memory::Error::Shortage { .. })) if self.evict() => {}
                other => return other,
            }
        }
    }

    /// Evicts all kept tensors, if this turn is alone, so that its own tensors find memory without
    /// gaps.
    pub fn clear(&self) {
        if let Gate::Alone { .. } = self.gate {
            let all = lock(&self.accelerator.0.runs.kept);
            all.iter().filter_map(Weak::upgrade).for_each(|kept| drop(lock(&kept.place).take()));
        }
    }

    /// Evicts the kept tensor that was wanted least recently, if this turn is alone. Answers
    /// whether one was evicted.
    fn evict(&self) -> bool {
        if let Gate::Shared { .. } = self.gate {
            return false;
        }
        let all: Vec<Arc<Kept>> =
            lock(&self.accelerator.0.runs.kept).iter().filter_map(Weak::upgrade).collect();
        let unwanted = |kept: &&Arc<Kept>| {
            // A tensor that is being uploaded is locked, and wanted.
            let placed = kept.place.try_lock().is_ok_and(|place| place.is_some());
            placed && kept.used.load(Ordering::Relaxed) < self.number
        };
        let oldest =
            all.iter().filter(unwanted).min_by_key(|kept| kept.used.load(Ordering::Relaxed));
        match oldest {
            Some(kept) => lock(&kept.place).take().is_some(),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
