//! A device's sensors and memory, read on a separate thread: a driver that is busy with a lost
//! device may take seconds, and a heartbeat must not wait for it.

use lgp_compute::device::Accelerator;
use lgp_hal::{DeviceId, Monitor, ProbeOptions, Telemetry};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest wait for a reading; after it, the last one is returned.
const WAIT: Duration = Duration::from_millis(10);

/// A device's readings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readings {
    pub(crate) telemetry: Telemetry,
    /// Bytes in use of the device's memory, if it has its own.
    pub(crate) memory_bytes: Option<u64>,
}

#[derive(Default)]
struct Shared {
    /// The count of readings, and the last one.
    last: Mutex<(u64, Readings)>,
    came: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (u64, Readings)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device's sensors and the thread that reads them; dropping them ends the thread.
pub(crate) struct Sensors {
    family: &'static str,
    /// The device's name and its driver.
    name: String,
    driver: String,
    asked: SyncSender<Option<Accelerator>>,
    shared: Arc<Shared>,
}

impl Sensors {
    /// Finds the sensors of a device.
    pub(crate) fn new(device: DeviceId) -> Self {
        let mut monitor = Monitor::new(device, ProbeOptions::default());
        let family = monitor.family().unwrap_or_default();
        let (name, driver) = (monitor.name().to_owned(), monitor.driver().to_owned());
        let sensors = Self::reading(family, move |accelerator| Readings {
            telemetry: monitor.read(),
            memory_bytes: accelerator.map(|it| it.pool().stats().reserved_bytes as u64),
        });
        Self { name, driver, ..sensors }
    }

    fn reading(
        family: &'static str,
        read: impl FnMut(Option<&Accelerator>) -> Readings + Send + 'static,
    ) -> Self {
        let (asked, requests) = sync_channel(1);
        let shared = Arc::<Shared>::default();
        let thread = std::thread::Builder::new().name("sensors".to_owned());
        let readings = Arc::clone(&shared);
        if let Err(error) = thread.spawn(move || serve(&requests, &readings, read)) {
            tracing::warn!(%error, "no thread for sensors: they say nothing");
        }
        let (name, driver) = (String::new(), String::new());
        Self { family, name, driver, asked, shared }
    }

    /// The family of the device's chip, if known; else empty.
    pub(crate) fn family(&self) -> &'static str {
        self.family
    }

    /// The device's display name; empty if the device is missing.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its driver and the driver's version.
    pub(crate) fn driver(&self) -> &str {
        &self.driver
    }

    /// The current readings; the last ones if the sensors do not answer within milliseconds.
    pub(crate) fn read(&self, accelerator: Option<&Accelerator>) -> Readings {
        let before = self.shared.lock().0;
        match self.asked.try_send(accelerator.cloned()) {
            Ok(()) => {}
            // The thread is behind, or could not start.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                return self.shared.lock().1.clone();
            }
        }
        let last = self.shared.lock();
        let waited = self.shared.came.wait_timeout_while(last, WAIT, |last| last.0 == before);
        waited.unwrap_or_else(PoisonError::into_inner).0.1.clone()
    }
}

fn serve(
    requests: &Receiver<Option<Accelerator>>,
    shared: &Shared,
    mut read: impl FnMut(Option<&Accelerator>) -> Readings,
) {
    while let Ok(accelerator) = requests.recv() {
        let readings = read(accelerator.as_ref());
        // Dropped first, so that the reader of the readings may be the device's only user.
        drop(accelerator);
        let mut last = shared.lock();
        *last = (last.0.wrapping_add(1), readings);
        shared.came.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    #[test]
    fn slow_sensors_are_not_waited_for() {
        let hang = Arc::new(AtomicBool::new(false));
        let (hangs, mut count) = (Arc::clone(&hang), 0);
        let sensors = Sensors::reading("none", move |_| {
            while hangs.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            count += 1;
            Readings { telemetry: Telemetry::default(), memory_bytes: Some(count) }
        });
        while sensors.read(None).memory_bytes < Some(3) {}
        hang.store(true, Ordering::SeqCst);
        let start = Instant::now();
        let last: Vec<_> = (0..100).map(|_| sensors.read(None).memory_bytes).collect();
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        let before = last.last().copied().flatten();
        assert!(before >= Some(3), "the last that they said stands: {before:?}");
        hang.store(false, Ordering::SeqCst);
        while sensors.read(None).memory_bytes <= before {}
    }
}
