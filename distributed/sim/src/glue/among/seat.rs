//! A coordinator's view of the shared log, as its process opens it.

use super::log::SharedLog;
use super::queue::Queue;
use crate::glue::net::Node;
use lgp_distributed::JournalError;
use lgp_distributed::inside::log::{Each, Log, Opened, Opener, Place, Told};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// One coordinator's view of the log.
pub(super) struct Seat {
    pub(super) log: SharedLog,
    pub(super) node: Node,
    /// Whether its process has ended.
    pub(super) dead: Arc<AtomicBool>,
    /// The log that the process has open.
    pub(super) running: Arc<Mutex<Option<Arc<Queue>>>>,
}

impl Place for Seat {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        let (last, epochs) = self.log.open(self.node, &self.dead, opener, each)?;
        self.log.scene.note(|| format!("machine {} opens the log: {opener:?}", self.node));
        let (log, node, running) = (self.log.clone(), self.node, Arc::clone(&self.running));
        let start = move |told: Told| -> Result<Arc<dyn Log>, JournalError> {
            let (queue, handle) = Queue::start(log, node, last, told);
            *running.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue);
            Ok(handle)
        };
        Ok(Opened { epoch: opener.epoch, epochs, start: Box::new(start) })
    }
}
