//! Sequences of stateful models. The server keeps their states between inferences, so that any worker can run the
//! next one and no state is lost with a worker.
//!
//! A state is an ordinary input and output of the model. Inferences of one sequence run one by one, in the order of
//! arrival; different sequences run concurrently.

mod asked;
mod line;
mod stateful;
mod table;
mod ticket;
mod turn;

pub(crate) use asked::Asked;
pub(crate) use line::Line;
pub(crate) use stateful::Stateful;
pub(crate) use ticket::Ticket;
pub(crate) use turn::{Turn, turn};

use crate::catalog::ModelEntry;
use crate::config::ServerConfig;
use crate::fault::Fault;
use crate::metrics::ModelKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use table::{Limits, Table};

/// The interval of sweeps for idle sequences. Each request also checks its own.
const SWEEP: Duration = Duration::from_secs(1);

/// The sequences of a server.
pub(crate) struct Sequences {
    table: Mutex<Table<ModelEntry>>,
}

impl Sequences {
    /// An empty table. Must be made within a Tokio runtime.
    pub(crate) fn new(config: &ServerConfig) -> Arc<Self> {
        let limits = Limits { sequences: config.sequences_max, bytes: config.sequences_bytes_max };
        let all = Arc::new(Self { table: Mutex::new(Table::new(limits)) });
        tokio::spawn(sweep(Arc::downgrade(&all)));
        all
    }

    /// Ends the sequences of a model, or of one of its versions.
    pub(crate) fn end(&self, name: &str, version: Option<u64>) {
        self.table().end(|key| key.0 == name && version.is_none_or(|version| version == key.1));
    }

    /// The number of open sequences of each model that has some.
    pub(crate) fn open(&self) -> HashMap<ModelKey, u64> {
        let mut table = self.table();
        table.sweep(Instant::now());
        table.open().clone()
    }

    fn table(&self) -> MutexGuard<'_, Table<ModelEntry>> {
        // The table's methods leave it consistent and do not panic halfway.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sweep(sequences: Weak<Sequences>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(sequences) = sequences.upgrade() else { return };
        sequences.table().sweep(Instant::now());
    }
}

/// Refuses an inference with a sequence if the model keeps none, and one without a sequence if it does.
pub(crate) fn check(entry: &ModelEntry, asked: Option<&Asked>) -> Result<(), Fault> {
    let name = entry.name();
    match (entry.stateful(), asked) {
        (None, Some(_)) => Err(Fault::unsupported(format!(
            "parameter sequence_id: model '{name}' keeps no sequences; 'sequences' of its deployment has \
             it keep them"
        ))),
        (Some(_), None) => Err(Fault::bad_input(format!(
            "model '{name}' keeps sequences, expected the parameter sequence_id"
        ))),
        _ => Ok(()),
    }
}
