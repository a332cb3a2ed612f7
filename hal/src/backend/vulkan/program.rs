//! A program of the portable language, compiled to SPIR-V and by the driver.

use super::kernel::{Cache, Kernel};
use super::shared::Shared;
use crate::backend::binary;
use crate::error::{Error, Result};
use crate::program::{Launch, Program};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

/// A compiled program with its source: a binary holds the source too, because only the driver's
/// part of compiling takes time.
#[derive(Debug)]
pub(super) struct VkProgram {
    shared: Arc<Shared>,
    cache: Arc<Cache>,
    maker: String,
    source: String,
    options: String,
    names: Vec<String>,
    kernels: HashMap<String, Arc<Kernel>>,
}

impl VkProgram {
    /// Compiles `source`.
    pub(super) fn build(
        shared: &Arc<Shared>,
        maker: String,
        source: &str,
        options: &str,
    ) -> Result<Self> {
        let device = shared.id;
        if let Some(at) = options.bytes().position(|byte| byte == 0) {
            let log = format!("the compiler options have a zero byte at {at}");
            return Err(Error::Compile { device, log });
        }
        // SAFETY: the store has no data.
        let cache = unsafe { Cache::new(shared, &[]) }?;
        Self::of(shared, cache, maker, source, options)
    }

    /// Loads a binary that [`Program::binary`] returned.
    ///
    /// # Safety
    /// As [`crate::Device::load`].
    pub(super) unsafe fn load(shared: &Arc<Shared>, maker: String, binary: &[u8]) -> Result<Self> {
        let device = shared.id;
        let refuse = |reason: String| Error::Binary { device, reason };
        let payload = binary::open(device, &maker, binary)?;
        let (source, options, data) =
            unpack(payload).ok_or_else(|| refuse("it is no program with its source".to_owned()))?;
        // SAFETY: the caller promises that this driver wrote the data.
        let cache = unsafe { Cache::new(shared, data) }?;
        Self::of(shared, cache, maker, source, options).map_err(|error| match error {
            Error::Compile { log, .. } => refuse(log),
            error => error,
        })
    }

    fn of(
        shared: &Arc<Shared>,
        cache: Cache,
        maker: String,
        source: &str,
        options: &str,
    ) -> Result<Self> {
        let device = shared.id;
        let codes = lgp_portable::compile(source, options)
            .map_err(|error| Error::Compile { device, log: error.to_string() })?;
        let cache = Arc::new(cache);
        let (mut names, mut kernels) = (Vec::new(), HashMap::new());
        for code in codes {
            let name = code.name.clone();
            kernels.insert(name.clone(), Arc::new(Kernel::new(&cache, code)?));
            names.push(name);
        }
        let (source, options) = (source.to_owned(), options.to_owned());
        Ok(Self { shared: Arc::clone(shared), cache, maker, source, options, names, kernels })
    }

    /// The program behind `program`, if it was compiled by this opened device.
    pub(super) fn downcast<'a>(program: &'a dyn Program, shared: &Arc<Shared>) -> Result<&'a Self> {
        program
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| Arc::ptr_eq(&own.shared, shared))
            .ok_or(Error::Foreign { what: "program", device: shared.id })
    }

    /// The kernel of a launch.
    pub(super) fn kernel(&self, launch: &Launch<'_>) -> Result<&Arc<Kernel>> {
        self.kernels.get(launch.kernel).ok_or_else(|| {
            let names = self.names.join(", ");
            launch.refusal(format!("the program has no such kernel, only {names}"))
        })
    }
}

impl Program for VkProgram {
    fn kernels(&self) -> &[String] {
        &self.names
    }

    fn binary(&self) -> Option<Vec<u8>> {
        let payload = pack(&self.source, &self.options, &self.cache.data()?);
        Some(binary::seal(&self.maker, &payload))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A program's source, its options and the driver's data in one piece.
fn pack(source: &str, options: &str, data: &[u8]) -> Vec<u8> {
    let length = |text: &str| (text.len() as u64).to_le_bytes();
    [&length(source), &length(options), source.as_bytes(), options.as_bytes(), data].concat()
}

/// The parts that [`pack`] joined.
fn unpack(payload: &[u8]) -> Option<(&str, &str, &[u8])> {
    let (source, rest) = payload.split_first_chunk::<8>()?;
    let (options, rest) = rest.split_first_chunk::<8>()?;
    let length = |bytes: &[u8; 8]| usize::try_from(u64::from_le_bytes(*bytes)).ok();
    let (source, rest) = rest.split_at_checked(length(source)?)?;
    let (options, data) = rest.split_at_checked(length(options)?)?;
    Some((str::from_utf8(source).ok()?, str::from_utf8(options).ok()?, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_s_parts_come_back_and_nothing_else_does() {
        let packed = pack("KERNEL", "-D A=1", &[1, 2, 3]);
        assert_eq!(unpack(&packed), Some(("KERNEL", "-D A=1", &[1, 2, 3][..])));
        assert_eq!(unpack(&pack("", "", &[])), Some(("", "", &[][..])));
        let mut long = packed.clone();
        long[7] = 0xff;
        for faulty in [&packed[..15], &packed[..27], &long, &[]] {
            assert_eq!(unpack(faulty), None, "{faulty:?}");
        }
    }
}
