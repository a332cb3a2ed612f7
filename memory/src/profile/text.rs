//! The profile as CSV, for spreadsheets.

use super::{MemoryKind, MemoryProfile};
use crate::error::{Error, Result};
use std::io::Write;

impl MemoryProfile {
    /// Writes one line per change of an owner's memory: the time, the phase, device or host, the
    /// owner, and how much the owner and all owners on the device hold afterwards.
    ///
    /// # Errors
    /// [`Error::LogFile`] when the target refuses.
    pub fn write_csv(&self, target: impl Write) -> Result<()> {
        let io = |error: csv::Error| Error::LogFile { reason: error.to_string() };
        let mut out = csv::Writer::from_writer(target);
        out.write_record(["time_us", "phase", "memory", "owner", "owner_bytes", "device_bytes"])
            .map_err(io)?;
        for step in &self.steps {
            let phase = self.phases.get(step.phase).map_or("", |phase| &*phase.name);
            let memory = match step.kind {
                MemoryKind::Device => "device",
                MemoryKind::Host => "host",
            };
            let [time, own, all] = [
                step.time.as_micros().to_string(),
                step.owner_bytes.to_string(),
                step.device_bytes.to_string(),
            ];
            out.write_record([&*time, phase, memory, &*step.owner, &*own, &*all]).map_err(io)?;
        }
        out.flush().map_err(|error| Error::LogFile { reason: error.to_string() })
    }
}
