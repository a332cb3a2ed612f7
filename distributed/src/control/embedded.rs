//! The log that a coordinator has of its own: a journal in one file, and the thread that writes it.

use super::journal::{self, Journal};
use super::log::{Each, Opened, Place, Told};
use super::migrate::Format;
use super::writer::{BATCH_BYTES, Writer};
use crate::error::JournalError;
use std::path::PathBuf;
use std::sync::Arc;

/// A journal's file.
#[derive(Debug)]
pub(crate) struct Embedded(pub(crate) PathBuf);

impl Place for Embedded {
    fn open(&self, now_ms: u64, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        Journal::open(&self.0, now_ms, Format::CURRENT, each)
            .map(|found| opened(found, BATCH_BYTES))
    }
}

/// A journal that was opened, as a log with commits of so many bytes.
pub(super) fn opened(found: journal::Opened, batch_bytes: usize) -> Opened {
    let journal::Opened { journal, epoch, epochs } = found;
    let start = move |told: Told| -> Result<Arc<dyn super::log::Log>, JournalError> {
        Ok(Arc::new(Writer::start(journal, batch_bytes, told)?))
    };
    Opened { epoch, epochs, start: Box::new(start) }
}
