//! Room for the messages of gRPC calls: they share the budget of all request bodies and its rules of pace.

use super::weigh::Weight;
use crate::access::{Caller, NO_KEY, key_is_gone};
use crate::answers;
use crate::bodies::Room;
use crate::extract::{Pace, grow_room, too_large};
use crate::fault::Fault;
use crate::serve::UnderWay;
use crate::state::ServerState;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;
use tonic::Status;

/// Bytes before each message: a compression flag and the length.
const PREFIX_BYTES: usize = 5;
/// The least room of a message, which covers the parsed form of most small ones.
const LEAST_BYTES: usize = 4 << 10;

/// The room that the messages of one call hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(Arc<Mutex<Room>>);

impl Held {
    /// The room of the last message, to be kept until nothing of it is held any more.
    pub(super) fn take(&self) -> Room {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, room: Room) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = room;
    }
}

/// Calls with an unlimited number of messages.
const STREAM: &str = "/ModelStreamInfer";

/// Middleware that reads the messages of a call as room allows, and frees the room when the call ends.
pub(super) async fn bounded(
    State(state): State<ServerState>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let is_stream = path.ends_with(STREAM);
    let most = super::message_bytes_max(path, state.config());
    let held = Held::default();
    let (mut parts, body) = request.into_parts();
    let caller = parts.extensions.get::<Caller>().map(Caller::without_place);
    parts.extensions.insert(held.clone());
    let answered = Answered::default();
    parts.extensions.insert(answered.clone());
    let under_way = parts.extensions.get::<Weak<UnderWay>>().and_then(Weak::upgrade);
    let incoming = Incoming {
        body,
        came: Bytes::new(),
        pace: Pace::new(state.config()),
        state,
        caller,
        held,
        message: Coming::new(most),
        is_stream,
        under_way,
        _busy: None,
    };
    let frames = stream::unfold(Some(incoming), |incoming| async {
        let mut incoming = incoming?;
        match incoming.next().await? {
            Ok(frame) => Some((Ok(frame), Some(incoming))),
            Err(fault) => Some((Err(Status::from(fault)), None)),
        }
    });
    let request = Request::from_parts(parts, Body::new(StreamBody::new(Box::pin(frames))));
    let holding =
        move |body: Body| {
            Body::new(body.map_frame(move |frame| {
                frame.map_data(|bytes| answers::held(bytes, answered.take()))
            }))
        };
    next.run(request).await.map(holding)
}

/// The room that outgoing answers hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Answered(Arc<Mutex<Vec<Room>>>);

impl Answered {
    fn take(&self) -> Vec<Room> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn add(&self, room: Room) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(room);
    }
}

struct Incoming {
    body: Body,
    /// Bytes that were received and not yet passed on.
    came: Bytes,
    pace: Pace,
    state: ServerState,
    /// The caller; `None` where callers are not identified.
    caller: Option<Caller>,
    held: Held,
    message: Coming,
    is_stream: bool,
    /// The call, which keeps its connection busy.
    under_way: Option<Arc<UnderWay>>,
    /// Also keeps the connection busy while a message of a stream is incomplete.
    _busy: Option<Arc<UnderWay>>,
}

impl Incoming {
    /// The next piece of the body; pieces end where messages end.
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, Fault>> {
        while self.came.is_empty() {
            let frame = match self.frame().await? {
                Ok(frame) => frame,
                Err(fault) => return Some(Err(fault)),
            };
            match frame.into_data() {
                Ok(data) => self.came = data,
                Err(trailers) => return Some(Ok(trailers)),
            }
        }
        if self.is_stream && !self.message.has_begun() {
            if let Some(caller) = &self.caller
                && !self.state.access().is_good(caller)
            {
                return Some(Err(key_is_gone()));
            }
            self.pace = Pace::new(self.state.config());
            self._busy = self.under_way.as_deref().map(UnderWay::part);
        }
        let piece = self.came.split_to(self.message.take(&self.came));
        Some(self.make_room().await.map(|()| Frame::data(piece)))
    }

    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, Fault>> {
        let frame = if self.is_stream && !self.message.has_begun() {
            // A stream may stay silent; pings check its connection meanwhile.
            self._busy = None;
            tokio::select! {
                biased;
                frame = self.body.frame() => frame?,
                () = self.state.access().gone(self.caller.as_ref()) => {
                    return Some(Err(key_is_gone()));
                }
            }
        } else {
            match self.pace.next(self.message.came, self.body.frame()).await {
                Ok(frame) => frame?,
                Err(fault) => return Some(Err(fault)),
            }
        };
        let broken = |error: axum::Error| Fault::bad_input(format!("the call broke off: {error}"));
        Some(frame.map_err(broken))
    }

    /// Takes room for the whole message once its length is known, and for its parsed form. Holds no room before
    /// that, so that the message may wait for it.
    async fn make_room(&mut self) -> Result<(), Fault> {
        let wanted = self.message.wanted();
        let weight = self.message.weight.bytes();
        let most = self.state.config().room_of_one();
        if weight > most.max(self.message.length) {
            let mut fault = too_large(most);
            fault.message = format!(
                "the message's parts take {weight} bytes of memory, expected at most {most}: send tensors \
                 as raw_input_contents, in fewer parts"
            );
            return Err(fault);
        }
        let mut room = self.held.take();
        if room.bytes() == 0 {
            let caller = self.caller.as_ref().map_or(NO_KEY, Caller::id);
            room = self.state.bodies().room_of(caller);
        }
        let waits = Instant::now();
        let made = grow_room(&self.state, &mut room, wanted).await;
        self.pace.waited(waits.elapsed());
        self.held.put(room);
        made
    }
}

/// The message that is being received.
#[derive(Debug, Default)]
struct Coming {
    prefix: Vec<u8>,
    /// The length, once known.
    length: usize,
    /// Bytes received so far.
    came: usize,
    weight: Weight,
    /// The reader of the body refuses longer messages as soon as it sees their length.
    most: usize,
}

impl Coming {
    fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Whether the message has begun and is incomplete.
    fn has_begun(&self) -> bool {
        self.came > 0 && !self.is_whole()
    }

    fn is_whole(&self) -> bool {
        self.prefix.len() == PREFIX_BYTES && self.came == self.length.saturating_add(PREFIX_BYTES)
    }

    /// How many of these bytes belong to the message, or to the next one if it is complete.
    fn take(&mut self, data: &[u8]) -> usize {
        if self.is_whole() {
            *self = Self::new(self.most);
        }
        let (prefix, rest) = data.split_at(data.len().min(PREFIX_BYTES - self.prefix.len()));
        self.prefix.extend_from_slice(prefix);
        if let [_, length @ ..] = &self.prefix[..]
            && let Ok(length) = <[u8; 4]>::try_from(length)
            && !prefix.is_empty()
        {
            self.length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            self.weight = Weight::of(self.length);
        }
        let missing = self.length.saturating_add(PREFIX_BYTES) - self.came - prefix.len();
        let taken = match self.prefix.len() {
            PREFIX_BYTES => rest.len().min(missing),
            _ => 0,
        };
        self.weight.add(&rest[..taken]);
        self.came += prefix.len() + taken;
        prefix.len() + taken
    }

    /// The room that the message needs; 0 if it is too long to be accepted.
    fn wanted(&self) -> usize {
        match self.prefix.len() == PREFIX_BYTES && self.length <= self.most {
            true => self.length.max(self.weight.bytes()).max(LEAST_BYTES),
            false => 0,
        }
    }
}

/// Follows the messages of a call through the bytes as a whole and in pieces. Both must give the same ends and
/// weights.
#[cfg(feature = "planted")]
pub(crate) fn follow(data: &[u8]) {
    let through = |piece: &dyn Fn(usize) -> usize| {
        let (mut message, mut all, mut at) = (Coming::new(1 << 20), Vec::new(), 0);
        while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
            at += message.take(rest.get(..piece(at)).unwrap_or(rest));
            if message.is_whole() {
                all.push((at, message.weight.bytes()));
            }
        }
        all.push((at, message.weight.bytes()));
        all
    };
    let whole = through(&|_| usize::MAX);
    let apart = through(&|at| usize::from(data.get(at).copied().unwrap_or_default()) % 7 + 1);
    assert_eq!(whole, apart, "the ends and weights of messages");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_where_messages_do_and_lengths_are_known_at_once() {
        let message = |length: u8| [&[0, 0, 0, 0, length][..], &vec![0x0a; length.into()]].concat();
        let all = [message(3), message(0), message(2)].concat();
        let mut whole = Coming::new(100);
        let (mut ends, mut at) = (Vec::new(), 0);
        while at < all.len() {
            at += whole.take(&all[at..]);
            ends.push(at);
            assert!(whole.is_whole() && !whole.has_begun() && whole.wanted() == LEAST_BYTES);
        }
        assert_eq!(ends, [8, 13, 20]);

        let mut bytewise = Coming::new(100);
        for (n, byte) in all.iter().enumerate() {
            assert_eq!(bytewise.take(&[*byte]), 1);
            assert_eq!(bytewise.is_whole(), ends.contains(&(n + 1)), "{n}");
        }
        let mut long = Coming::new(1 << 20);
        for (prefix, wanted) in [([0, 0, 16, 0, 0], 1 << 20), ([0, 0, 16, 0, 1], 0)] {
            assert_eq!((long.take(&prefix[..4]), long.wanted()), (4, 0));
            assert_eq!((long.take(&prefix[4..]), long.wanted()), (1, wanted));
            long = Coming::new(1 << 20);
        }
    }
}
