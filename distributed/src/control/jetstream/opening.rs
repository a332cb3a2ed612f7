//! Opens a log: reads the stream, claims it, which fences the previous leader, hands on the
//! records, and opens it. If the contents are refused, nothing of them has changed.

use super::client::{Client, Info, READ_AT_ONCE};
use super::frame::Body;
use super::pen::{Pen, is_settling};
use super::state::State;
use super::{Stream, Trouble, reader};
use crate::control::log::{Each, Opener};
use crate::control::record::Key;
use crate::control::remembered::Remembered;
use crate::control::view::ControlView;
use crate::error::{JournalError, Result};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for servers that start or elect a leader.
const STARTING: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(200);
/// Bytes of fetched commits that are cached, because their other records are needed soon.
const FETCHED_BYTES: usize = 16 << 20;
/// How often reading continues while another coordinator still writes.
const TRIES: usize = 100;

/// An opened log.
pub(super) struct Found {
    pub(super) state: State,
    pub(super) pen: Pen,
    /// The sequence of the first message.
    pub(super) first: u64,
    pub(super) bytes: u64,
}

/// Opens the log; `read` is what was read of it before.
pub(super) fn open(
    stream: &Stream,
    (opener, file, read): (Opener, &Remembered, Option<State>),
    each: &mut Each<'_>,
) -> Result<Found, JournalError> {
    let on_log = |trouble: Trouble| trouble.on_log(stream);
    let client = Arc::new(Client::connect(stream).map_err(on_log)?);
    let info = reach(&client).map_err(on_log)?;
    if let Some(flaw) = info.config.flaw() {
        return Err(on_log(Trouble::Refused(flaw)));
    }
    tracing::info!(engine = client.engine(&info.config), "the log of tasks");
    let state = match read {
        Some(state) if is_of(&client, &state).map_err(on_log)? => state,
        _ => State::new(file.read()?, stream.kept_bytes),
    };
    let mut pen = Pen::new(&client, STARTING);
    let (mut state, first) = claim(&mut pen, opener, state).map_err(|trouble| {
        on_log(match trouble {
            Trouble::Older(what) => Trouble::Damaged(format!(
                "{what}: it is another cluster's, or was restored from a backup. To go on with what it \
                 has now, delete {}",
                file.0.display()
            )),
            trouble => trouble,
        })
    })?;
    hand_on(&client, &mut state, each).map_err(on_log)?;
    let opened = state.last.opened(opener);
    pen.write(&opened, Body::Opened(opener)).map_err(on_log)?;
    state.last = opened;
    state.carried.lead = opener.lead;
    state.carried.epochs.extend([opener.lead, opener.epoch]);
    let bytes = client.info().map_err(on_log)?.state.bytes;
    Ok(Found { state, pen, first, bytes })
}

/// Whether the servers accept this client, as far as they answer. Nothing is written.
///
/// # Errors
/// The reason why the servers cannot be used.
pub(crate) fn check(stream: &Stream) -> Result<()> {
    match Client::connect(stream) {
        Err(trouble @ Trouble::Refused(_)) => Err(trouble.on_log(stream).into()),
        _ => Ok(()),
    }
}

/// Adds the contents of the stream to a view. The whole stream is read, and nothing is written.
pub(crate) fn look(stream: &Stream, view: ControlView) -> Result<ControlView> {
    let on_log = |trouble: Trouble| trouble.on_log(stream);
    let client = Client::connect(stream).map_err(on_log)?;
    let info = match client.info() {
        Err(Trouble::Absent) => return Ok(view),
        info => info.map_err(on_log)?,
    };
    let mut state = State::new(None, 0);
    state.begin(info.state.first_seq);
    read_on(&client, &mut state, info.state.last_seq).map_err(on_log)?;
    let number = state.last.number.unsigned_abs();
    Ok(ControlView {
        place: format!("{}, {}", view.place, stream.label().display()),
        engine: format!("{}; {}", view.engine, client.engine(&info.config)),
        records: u64::try_from(state.index.keys().count()).unwrap_or(u64::MAX),
        last_commit: (number > 0).then(|| (number, hex::encode(&state.last.digest))),
        ..view
    })
}

/// Waits for the servers, and creates the stream if it does not exist.
fn reach(client: &Client) -> Result<Info, Trouble> {
    let end = Instant::now() + STARTING;
    loop {
        let trouble = match client.info() {
            Ok(info) => return Ok(info),
            Err(Trouble::Absent) => match client.create() {
                Ok(()) => continue,
                Err(trouble) => trouble,
            },
            Err(trouble) => trouble,
        };
        if !matches!(trouble, Trouble::Away(_)) || Instant::now() >= end {
            return Err(trouble);
        }
        thread::sleep(AGAIN);
    }
}

/// Reads everything up to its own claim, after which nobody else writes. Returns the state before
/// the claim, and the first message.
fn claim(pen: &mut Pen, opener: Opener, mut state: State) -> Result<(State, u64), Trouble> {
    let client = Arc::clone(&pen.client);
    let (mut gone_since, mut older_since) = (None, None);
    for _ in 0..TRIES {
        let found = client.info()?.state;
        state.begin(found.first_seq);
        match read_on(&client, &mut state, found.last_seq) {
            Ok(()) => {}
            // The present leader purges messages that it has republished.
            Err(Trouble::Absent) if client.info()?.state.first_seq > state.tail + 1 => continue,
            Err(Trouble::Absent) if is_settling(&mut gone_since) => {
                thread::sleep(AGAIN);
                continue;
            }
            Err(Trouble::Absent) => {
                let what = format!("from message {} on one is not there", state.tail + 1);
                return Err(Trouble::Damaged(what));
            }
            Err(trouble) => return Err(trouble),
        }
        if let Some(what) = state.older() {
            if is_settling(&mut older_since) {
                thread::sleep(AGAIN);
                continue;
            }
            return Err(Trouble::Older(what));
        }
        if opener.lead <= state.carried.lead || opener.lead < state.carried.claimed {
            return Err(Trouble::Taken);
        }
        let claimed = state.last.claimed(opener.lead);
        pen.tail = state.tail;
        match pen.write(&claimed, Body::Claimed(opener.lead)) {
            Ok(_) => {
                state.last = claimed;
                state.carried.claimed = opener.lead;
                return Ok((state, found.first_seq.max(1)));
            }
            // Another message was published first; it is read before the next try.
            Err(Trouble::Taken) => {}
            Err(trouble) => return Err(trouble),
        }
    }
    Err(Trouble::Taken)
}

/// Whether the last message that was read is still there: the stream may have been restored since.
fn is_of(client: &Client, state: &State) -> Result<bool, Trouble> {
    match client.get(state.tail, state.tail) {
        Ok(found) => Ok(found.iter().all(|payload| state.has_as_last(payload))),
        Err(Trouble::Absent) => Ok(false),
        Err(trouble) => Err(trouble),
    }
}

/// Reads the messages after the last one that was read.
fn read_on(client: &Client, state: &mut State, last: u64) -> Result<(), Trouble> {
    while state.tail < last {
        let from = state.tail + 1;
        for (seq, payload) in (from..).zip(client.get(from, last.min(state.tail + READ_AT_ONCE))?) {
            state.take(seq, &payload)?;
        }
    }
    Ok(())
}

/// Hands on every record, in the order of the keys.
fn hand_on(client: &Client, state: &mut State, each: &mut Each<'_>) -> Result<(), Trouble> {
    let keys: Vec<Key> = state.index.keys().collect();
    let mut fetched = Fetched::default();
    for key in keys {
        let value = match (state.value(key), state.index.place(key)) {
            (Some(value), _) => value,
            (None, Some(seq)) => fetched.take(client, seq, key)?,
            (None, None) => continue,
        };
        each(key, &value).map_err(Trouble::Damaged)?;
    }
    Ok(())
}

/// The last commits that were fetched: neighbouring records often belong to the same commit.
#[derive(Default)]
struct Fetched(VecDeque<(u64, BTreeMap<Key, Vec<u8>>)>);

impl Fetched {
    fn take(&mut self, client: &Client, seq: u64, key: Key) -> Result<Vec<u8>, Trouble> {
        if self.0.iter().all(|(at, _)| *at != seq) {
            let values = reader::values(client, seq)?;
            let bytes = |(_, values): &(u64, BTreeMap<Key, Vec<u8>>)| -> usize {
                values.values().map(Vec::len).sum()
            };
            while self.0.iter().map(bytes).sum::<usize>() > FETCHED_BYTES {
                self.0.pop_front();
            }
            self.0.push_back((seq, values));
        }
        let mut commits = self.0.iter_mut();
        let found = commits.find_map(|(at, values)| (*at == seq).then(|| values.remove(&key)));
        found.flatten().ok_or_else(|| reader::missing(key, seq))
    }
}
