//! The latest events of the cluster, kept for listeners that reconnect. One task fills the buffer for all
//! listeners; each listener reads it at its own pace.

use axum::body::Bytes;
use lgp_distributed::{Event, Events};
use lgp_sdk::cluster::{Coordinator, ModelRef};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The most bytes of all kept events.
const BYTES_MAX: usize = 4 << 20;
/// The most events that are checked for a listener at a time.
const AT_ONCE: usize = 64;

/// A position in one coordinator's events: after the event with this number; the first event is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventId {
    /// The coordinator's epoch.
    pub(crate) epoch: u64,
    /// The event's number.
    pub(crate) seq: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.epoch, self.seq)
    }
}

impl FromStr for EventId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| {
            let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            u64::from_str_radix(text, 16).ok().filter(|_| is_hex)
        };
        let (epoch, seq) = text.split_once('-').ok_or(())?;
        Ok(Self { epoch: number(epoch).ok_or(())?, seq: number(seq).ok_or(())? })
    }
}

/// The events of a coordinator since the server's start.
#[derive(Debug)]
pub(crate) struct Feed {
    buffer: Arc<Buffer>,
    /// The number of the latest event.
    last: watch::Receiver<u64>,
    filling: AbortHandle,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.filling.abort();
    }
}

impl Feed {
    /// Keeps up to `kept_max` events of a coordinator. Must be called within a Tokio runtime.
    pub(crate) fn new(coordinator: &Coordinator, kept_max: usize) -> Self {
        let buffer = Arc::new(Buffer::new(coordinator.epoch(), kept_max));
        let (latest, last) = watch::channel(0);
        let filling = tokio::spawn(fill(coordinator.events(), Arc::clone(&buffer), latest));
        Self { buffer, last, filling: filling.abort_handle() }
    }

    /// Listens to the events after `after`, or from now on.
    pub(crate) fn listen(&self, after: Option<EventId>) -> Listener {
        let after = after.unwrap_or_else(|| self.buffer.now());
        Listener { buffer: Arc::clone(&self.buffer), last: self.last.clone(), after }
    }
}

async fn fill(mut events: Events, buffer: Arc<Buffer>, latest: watch::Sender<u64>) {
    while let Some((at_ms, event)) = events.next().await {
        latest.send_replace(buffer.push(at_ms, &event));
    }
}

#[derive(Debug)]
struct Buffer {
    epoch: u64,
    kept_max: usize,
    kept: Mutex<Kept>,
}

/// An event as sent to listeners, with its subject.
#[derive(Debug)]
struct Frame {
    text: Bytes,
    about: About,
}

#[derive(Debug)]
enum About {
    Cluster,
    Models(Vec<ModelRef>),
    /// The event has a textual reason, which may name any model.
    Reason,
}

impl About {
    fn of(event: &Event) -> Self {
        match event {
            Event::ModelLoaded { model, .. } | Event::BreakerOpened { model, .. } => {
                Self::Models(vec![model.clone()])
            }
            Event::ModelEvicted { model, for_model, .. } => {
                Self::Models(vec![model.clone(), for_model.clone()])
            }
            Event::WorkerLost { .. }
            | Event::WorkerReplaced { .. }
            | Event::DeviceTakenOut { .. } => Self::Reason,
            _ => Self::Cluster,
        }
    }

    fn is_for(&self, sees: Sees<'_>) -> bool {
        match (self, sees) {
            (_, None) | (Self::Cluster, _) => true,
            (Self::Models(all), Some(sees)) => all.iter().all(sees),
            (Self::Reason, Some(_)) => false,
        }
    }
}

/// The models that a listener may see; `None` for all.
pub(crate) type Sees<'a> = Option<&'a (dyn Fn(&ModelRef) -> bool + Sync)>;

#[derive(Debug, Default)]
struct Kept {
    /// Events, oldest first.
    frames: VecDeque<Frame>,
    bytes: usize,
    /// The number of the latest event, which is also the count of all events.
    last: u64,
}

impl Kept {
    /// The number of the event before the oldest that is kept.
    fn before(&self) -> u64 {
        self.last.saturating_sub(u64::try_from(self.frames.len()).unwrap_or(u64::MAX))
    }
}

impl Buffer {
    fn new(epoch: u64, kept_max: usize) -> Self {
        Self { epoch, kept_max, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic leaves only whole events in the buffer.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> EventId {
        EventId { epoch: self.epoch, seq: self.kept().last }
    }

    /// Adds an event and returns its number.
    fn push(&self, at_ms: u64, event: &Event) -> u64 {
        let mut value = serde_json::to_value(event).unwrap_or_default();
        if let Value::Object(object) = &mut value {
            object.insert("at_ms".to_owned(), json!(at_ms));
        }
        let mut kept = self.kept();
        let seq = kept.last + 1;
        let frame = frame(EventId { epoch: self.epoch, seq }, &value);
        kept.last = seq;
        kept.bytes += frame.len();
        kept.frames.push_back(Frame { text: frame, about: About::of(event) });
        while kept.frames.len() > self.kept_max.max(1) || kept.bytes > BYTES_MAX {
            let Some(oldest) = kept.frames.pop_front() else { break };
            kept.bytes -= oldest.text.len();
        }
        seq
    }
}

/// An event in the form that listeners get.
fn frame(id: EventId, value: &Value) -> Bytes {
    format!("id: {id}\ndata: {value}\n\n").into()
}

/// A listener, from an event on.
#[derive(Debug)]
pub(crate) struct Listener {
    buffer: Arc<Buffer>,
    last: watch::Receiver<u64>,
    after: EventId,
}

impl Listener {
    /// The last event that the listener has received.
    pub(crate) fn after(&self) -> EventId {
        self.after
    }

    /// The next events in the form that listeners get. If events were missed, a `gap` event comes first. `None`
    /// once the coordinator is gone.
    pub(crate) async fn next(&mut self, sees: Sees<'_>) -> Option<Bytes> {
        loop {
            // Marked before the look, so that every later event wakes the listener.
            self.last.borrow_and_update();
            if let Some(frames) = self.take(sees) {
                return Some(frames);
            }
            if self.after.seq < self.buffer.kept().last {
                // The listener sees none of the checked events. Yields before the next ones are checked.
                tokio::task::yield_now().await;
                continue;
            }
            self.last.changed().await.ok()?;
        }
    }

    fn take(&mut self, sees: Sees<'_>) -> Option<Bytes> {
        let kept = self.buffer.kept();
        let (before, last) = (kept.before(), kept.last);
        let (reason, missed) = match self.after {
            EventId { epoch, seq } if epoch != self.buffer.epoch || seq > last => {
                ("other_coordinator", None)
            }
            EventId { seq, .. } if seq < before => ("too_old", Some(before - seq)),
            EventId { seq, .. } => {
                let had = usize::try_from(seq - before).unwrap_or(usize::MAX);
                let mut next: Vec<&[u8]> = Vec::new();
                for frame in kept.frames.iter().skip(had).take(AT_ONCE) {
                    self.after.seq += 1;
                    if frame.about.is_for(sees) {
                        next.push(&frame.text);
                    }
                }
                return (!next.is_empty()).then(|| next.concat().into());
            }
        };
        drop(kept);
        self.after = EventId { epoch: self.buffer.epoch, seq: before };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let gap = json!({ "event": "gap", "reason": reason, "missed": missed, "at_ms": at_ms });
        Some(frame(self.after, &gap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(events: u64) -> Arc<Buffer> {
        let buffer = Arc::new(Buffer::new(10, 3));
        for count in 1..=events {
            buffer.push(0, &Event::Missed { count });
        }
        buffer
    }

    fn heard(buffer: &Arc<Buffer>, after: &str) -> Vec<String> {
        let after = after.parse().expect("an id");
        let (_, last) = watch::channel(0);
        let mut listener = Listener { buffer: Arc::clone(buffer), last, after };
        let frames: Vec<Bytes> = std::iter::from_fn(|| listener.take(None)).collect();
        let text = String::from_utf8(frames.concat()).expect("text");
        let parts = text.split_terminator("\n\n").map(|part| {
            let (id, data) = part.split_once("\ndata: ").expect("an id and data");
            let data: Value = serde_json::from_str(data).expect("JSON");
            let detail = match data["event"].as_str() {
                Some("gap") => format!("gap {} {}", data["reason"], data["missed"]),
                _ => data["count"].to_string(),
            };
            format!("{} {detail}", id.strip_prefix("id: ").expect("an id"))
        });
        parts.collect()
    }

    #[test]
    fn a_listener_hears_what_came_since_or_that_some_is_missing() {
        let five = ["a-3 3", "a-4 4", "a-5 5"];
        assert_eq!(heard(&buffer(5), "a-5"), [""; 0]);
        assert_eq!(heard(&buffer(5), "a-4"), five[2..]);
        assert_eq!(heard(&buffer(5), "A-2"), five);
        for (after, gap) in [
            ("a-1", "a-2 gap \"too_old\" 1"),
            ("a-0", "a-2 gap \"too_old\" 2"),
            ("a-6", "a-2 gap \"other_coordinator\" null"),
            ("b-4", "a-2 gap \"other_coordinator\" null"),
            ("0-ffffffffffffffff", "a-2 gap \"other_coordinator\" null"),
        ] {
            assert_eq!(heard(&buffer(5), after), [&[gap], &five[..]].concat(), "{after}");
        }
        assert_eq!(heard(&buffer(0), "9-1"), ["a-0 gap \"other_coordinator\" null"]);
    }

    #[tokio::test]
    async fn who_may_see_one_model_hears_of_no_other() {
        let worker: lgp_distributed::WorkerId = "w1".parse().expect("a name");
        let model =
            |name: &str| ModelRef { name: name.to_owned(), version: 1, sha256: String::new() };
        let buffer = Arc::new(Buffer::new(10, 1_000));
        let evicted = |name, other| {
            let (model, for_model) = (model(name), model(other));
            Event::ModelEvicted { worker: worker.clone(), device: 0, model, for_model }
        };
        let reason = "a run of 'other' did not stop".to_owned();
        let opened = |name| Event::BreakerOpened { worker: worker.clone(), model: model(name) };
        for _ in 0..AT_ONCE {
            buffer.push(0, &opened("other"));
        }
        for event in [
            evicted("mine", "other"),
            evicted("other", "mine"),
            Event::WorkerReplaced { worker: worker.clone(), reason },
            opened("mine"),
            Event::WorkerJoined { worker: worker.clone() },
        ] {
            buffer.push(0, &event);
        }
        let (_, last) = watch::channel(0);
        let mut listener = Listener { buffer, last, after: "a-0".parse().expect("an id") };
        let sees = |model: &ModelRef| model.name == "mine";
        // The listener may not see the first events that are checked.
        let heard = listener.next(Some(&sees)).await.expect("two events");
        let text = String::from_utf8(heard.to_vec()).expect("text");
        assert!(!text.contains("other") && text.matches("data: ").count() == 2, "{text}");
        assert!(listener.take(Some(&sees)).is_none(), "it has had all");
    }

    #[test]
    fn many_and_large_events_make_room() {
        let buffer = Arc::new(Buffer::new(1, 1_000));
        let reason = "x".repeat(BYTES_MAX / 4);
        let worker: lgp_distributed::WorkerId = "w1".parse().expect("a name");
        for _ in 0..10 {
            buffer.push(0, &Event::WorkerLost { worker: worker.clone(), reason: reason.clone() });
        }
        let kept = buffer.kept();
        assert_eq!((kept.frames.len(), kept.last, kept.before()), (3, 10, 7));
        assert!(kept.bytes <= BYTES_MAX);
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = EventId { epoch: u64::MAX, seq: 0 };
        assert_eq!(id.to_string().parse(), Ok(id));
        for other in
            ["", "-", "1", "1-", "-1", "+1-1", "1-+1", "1-1-1", "g-1", "10000000000000000-1"]
        {
            assert_eq!(other.parse::<EventId>(), Err(()), "{other}");
        }
    }
}
