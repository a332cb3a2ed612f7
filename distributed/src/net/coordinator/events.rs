//! Events of the cluster, for subscribers.

use super::Coordinator;
use crate::clock::unix_ms;
use crate::proto::event::Event;
use std::time::Duration;
use tokio::sync::broadcast;

impl Coordinator {
    /// Events from now on, each with its time in milliseconds since 1970. A subscriber that reads
    /// too slowly misses some, and is told how many ([`Event::Missed`]).
    #[must_use]
    pub fn events(&self) -> Events {
        Events(self.shared.events.subscribe())
    }

    /// Tells subscribers of something that this coordinator cannot see itself.
    pub fn announce(&self, event: Event) {
        self.shared.with(|core, _| core.tell(event));
    }
}

/// A subscription to [`Coordinator::events`].
#[derive(Debug)]
pub struct Events(broadcast::Receiver<(Duration, Event)>);

impl Events {
    /// The next event and its time; `None` once the coordinator is gone.
    pub async fn next(&mut self) -> Option<(u64, Event)> {
        let ms = |at: Duration| u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        match self.0.recv().await {
            Ok((at, event)) => Some((ms(at), event)),
            Err(broadcast::error::RecvError::Lagged(count)) => {
                Some((unix_ms(), Event::Missed { count }))
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
