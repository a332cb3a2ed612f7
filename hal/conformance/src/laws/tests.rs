//! Each law can fail: a law catches a device that breaks its promise.

use super::*;
use crate::backends::{Report, run_device};
use lgp_hal::testing::HostBlas;
use lgp_hal::{
    Blas, Buffer, Caps, Event, Gemm, NullDevice, Pinned, Program, Queue, Result, Transfer, pass_on,
};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// The promises that the faulty device can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A written byte flips.
    Write,
    /// A write reaches one byte too far.
    Spill,
    /// Transfers past the end are ignored.
    Bounds,
    /// Copies are forgotten.
    Copy,
    /// Programs are refused with a wrong error.
    Programs,
    /// The capabilities contradict each other.
    Caps,
    /// A pinned block loses a bit during its transfer.
    Transfer,
    /// Events are never done.
    Event,
    /// Products ignore the result's old content.
    Gemm,
    /// The library that the capabilities announce is missing.
    Library,
}

#[derive(Debug)]
struct Faulty {
    inner: NullDevice,
    caps: Caps,
    fault: Fault,
}

struct FaultyQueue(Box<dyn Queue>, Fault);

impl Faulty {
    fn new(fault: Fault) -> Self {
        let inner = NullDevice::new(Some(1 << 30));
        let mut caps = inner.caps().clone();
        caps.gemm = true;
        if fault == Fault::Caps {
            caps.memory_bytes = Some(1);
        }
        Self { inner, caps, fault }
    }
}

impl Device for Faulty {
    pass_on!(inner: id, allocate, pinned, load, arithmetic);

    fn name(&self) -> &str {
        "faulty device"
    }
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(FaultyQueue(self.inner.queue()?, self.fault)))
    }
    fn blas(&self) -> Option<Arc<dyn Blas>> {
        (self.fault != Fault::Library).then(|| Arc::new(FaultyBlas(self.fault)) as Arc<dyn Blas>)
    }
    fn compile(&self, source: &str, options: &str) -> Result<Arc<dyn Program>> {
        match self.fault {
            Fault::Programs => Err(Error::Compile { device: self.id(), log: String::new() }),
            _ => self.inner.compile(source, options),
        }
    }
}

/// A library whose products the host computes.
#[derive(Debug)]
struct FaultyBlas(Fault);

impl Blas for FaultyBlas {
    fn gemm(&self, queue: &mut dyn Queue, gemm: &Gemm<'_>) -> Result<()> {
        let beta = if self.0 == Fault::Gemm { 0.0 } else { gemm.beta };
        HostBlas.gemm(queue, &Gemm { beta, ..*gemm })
    }
}

/// An event that is never done.
#[derive(Debug)]
struct Never(Arc<dyn Event>);

impl Event for Never {
    fn is_done(&self) -> Result<bool> {
        Ok(false)
    }
    fn wait(&self) -> Result<()> {
        self.0.wait()
    }
    fn since(&self, earlier: &dyn Event) -> Result<Option<Duration>> {
        self.0.since(earlier)
    }
    fn as_any(&self) -> &dyn Any {
        self.0.as_any()
    }
}

impl FaultyQueue {
    fn forgive(&self, result: Result<()>) -> Result<()> {
        match result {
            Err(Error::OutOfBounds { .. }) if self.1 == Fault::Bounds => Ok(()),
            other => other,
        }
    }
}

impl Queue for FaultyQueue {
    pass_on!(0: device, read_async, launch, wait_for, submit, finish, as_any_mut);

    fn write(&mut self, buffer: &dyn Buffer, offset: usize, data: &[u8]) -> Result<()> {
        let mut data = data.to_vec();
        match self.1 {
            Fault::Write if !data.is_empty() => data[0] ^= 1,
            Fault::Spill if offset + data.len() < buffer.bytes() => data.push(0x55),
            _ => {}
        }
        let result = self.0.write(buffer, offset, &data);
        self.forgive(result)
    }
    fn read(&mut self, buffer: &dyn Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        let result = self.0.read(buffer, offset, out);
        self.forgive(result)
    }
    fn copy(
        &mut self,
        from: &dyn Buffer,
        from_offset: usize,
        to: &dyn Buffer,
        to_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        if self.1 == Fault::Copy {
            return Ok(());
        }
        let result = self.0.copy(from, from_offset, to, to_offset, bytes);
        self.forgive(result)
    }
    fn write_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        mut block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        if self.1 == Fault::Transfer && !block.is_empty() {
            block[0] ^= 1;
        }
        self.0.write_async(buffer, offset, block, bytes)
    }
    fn record(&mut self) -> Result<Arc<dyn Event>> {
        let event = self.0.record()?;
        Ok(if self.1 == Fault::Event { Arc::new(Never(event)) } else { event })
    }
}

#[test]
fn each_fault_is_caught_by_the_law_about_it() {
    for (fault, law) in [
        (Fault::Write, "what is written is read"),
        (Fault::Spill, "a write leaves the rest alone"),
        (Fault::Bounds, "every bound is checked"),
        (Fault::Copy, "copies copy"),
        (Fault::Copy, "a queue is in order"),
        (Fault::Copy, "two queues do not disturb each other"),
        (Fault::Copy, "the self-test passes"),
        (Fault::Programs, "no programs is a typed answer"),
        (Fault::Caps, "capabilities are plausible"),
        (Fault::Transfer, "pinned blocks carry bytes both ways"),
        (Fault::Event, "an event is done after what is before it"),
        (Fault::Gemm, "the vendor's library multiplies"),
        (Fault::Library, "a library is there where the caps say so"),
    ] {
        let device = Faulty::new(fault);
        let law = LAWS.iter().find(|it| it.name == law).expect("the law is in the table");
        let verdict = (law.check)(&device);
        assert!(verdict.is_failure(), "{fault:?} passes {:?}: {verdict}", law.name);
    }
}

#[test]
fn a_faultless_device_passes_and_skips_are_counted() {
    let mut report = Report::default();
    run_device(&mut report, &Faulty::new(Fault::None));
    assert_eq!(report.failed, 0, "{:#?}", report.lines);
    assert_eq!(report.passed + report.skipped, LAWS.len());
    let known = ["skipped: the device has ", "skipped: there is one recording device"];
    let skips = report.lines.iter().filter(|line| known.iter().any(|it| line.contains(it)));
    assert_eq!(skips.count(), report.skipped, "{:#?}", report.lines);
}
