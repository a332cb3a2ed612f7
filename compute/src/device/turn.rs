//! Turns: what a run holds of a device from its first command to its last, and tensors that stay
//! on the device between runs for as long as there is room.

use super::accelerator::{Accelerator, lock};
use super::memory::DeviceArena;
use super::tensor::DeviceTensor;
use crate::error::{Error, Result};
use lgp_memory::{DType, PinnedBlock, RelocatableBlock, Shape, TensorView};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

/// The runs of a device.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Runs share it; one that needs room which others have waits until it has it alone.
    gate: RwLock<()>,
    /// Counts the runs.
    clock: AtomicU64,
    kept: Mutex<Vec<Weak<Kept>>>,
}

/// A tensor that has a place on the device as long as nobody needs the room more: the one that no
/// run has used for the longest time goes first, of whatever session. Its content must be at hand
/// on the host, for it comes from there again.
#[derive(Debug)]
pub struct Kept {
    /// The last run that wanted it.
    used: AtomicU64,
    place: Mutex<Option<Arc<RelocatableBlock>>>,
}

/// A [`Kept`] tensor that has its place until this is dropped.
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
    /// The tensor, to be used no longer than this lives.
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
    /// A tensor that is to stay on the device; it has no place yet.
    #[must_use]
    pub fn keep(&self) -> Arc<Kept> {
        let kept = Arc::new(Kept { used: AtomicU64::new(0), place: Mutex::default() });
        let mut all = lock(&self.inner().runs.kept);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&kept));
        kept
    }

    /// A turn that others may share. It takes memory only where there is room.
    #[must_use]
    pub fn turn(&self) -> Turn<'_> {
        let guard = self.inner().runs.gate.read().unwrap_or_else(PoisonError::into_inner);
        self.numbered(Gate::Shared { _guard: guard })
    }

    /// A turn that nobody shares: waits for the runs before it, and holds up those after it. It
    /// takes memory from kept tensors that it does not want.
    #[must_use]
    pub fn turn_alone(&self) -> Turn<'_> {
        let guard = self.inner().runs.gate.write().unwrap_or_else(PoisonError::into_inner);
        self.numbered(Gate::Alone { guard })
    }

    fn numbered<'a>(&'a self, gate: Gate<'a>) -> Turn<'a> {
        let number = 1 + self.inner().runs.clock.fetch_add(1, Ordering::Relaxed);
        Turn { accelerator: self, gate, number }
    }
}

impl Turn<'_> {
    /// Says that this run wants a kept tensor: it is not taken away for the others that it wants.
    pub fn want(&self, kept: &Kept) {
        kept.used.fetch_max(self.number, Ordering::Relaxed);
    }

    /// A kept tensor in its place. `content` is copied there where it has none.
    ///
    /// # Errors
    /// Out of memory with who holds what.
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

    /// Blocks of these sizes for all that has a planned place.
    ///
    /// # Errors
    /// Out of memory with who holds what.
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

    /// Takes memory; where there is none and nobody else runs, from kept tensors, one by one.
    fn make_room<T>(&self, take: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match take() {
                Err(Error::Memory(lgp_memory::Error::Shortage { .. })) if self.evict() => {}
                other => return other,
            }
        }
    }

    /// Takes their places from all kept tensors, if this turn is alone: what it wants itself has then
    /// a memory without gaps to lie in.
    pub fn clear(&self) {
        if let Gate::Alone { .. } = self.gate {
            let all = lock(&self.accelerator.inner().runs.kept);
            all.iter().filter_map(Weak::upgrade).for_each(|kept| drop(lock(&kept.place).take()));
        }
    }

    /// Takes its place from the kept tensor that was wanted least recently, if this turn may.
    fn evict(&self) -> bool {
        if let Gate::Shared { .. } = self.gate {
            return false;
        }
        let all: Vec<Arc<Kept>> =
            lock(&self.accelerator.inner().runs.kept).iter().filter_map(Weak::upgrade).collect();
        let unwanted = |kept: &&Arc<Kept>| {
            // One that is being given its place is locked, and wanted.
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
