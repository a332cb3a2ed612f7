//! One link: passes buffers with their tickets, and says when it is done with those of the other
//! side.

use super::mail::Letter;
use super::message::{MESSAGE_BYTES, Message};
use super::pool::{Budget, LENT_MAX, Pool, check};
use crate::error::Result;
use crate::net::transport::wire;
use crate::proto::message::{AttemptId, SharedBody};
use crate::proto::tensors::Planned;
use bytes::Bytes;
use lgp_memory::NamedTensor;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, recvmsg, sendmsg, shutdown,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The longest frame that goes over a link: a header, and tensors that are too short to be lent.
const FRAME_BYTES_MAX: usize = 48 << 10;
/// Time for the header that says what a buffer is for. It is sent right after the buffer; one that
/// never comes belongs to an attempt that was cancelled on the way.
const UNCLAIMED_MAX: Duration = Duration::from_secs(5);

/// Memory of the other side whose header has not come yet.
struct Arrived {
    file: File,
    id: AttemptId,
    at: Instant,
}

struct State {
    pool: Pool,
    next_ticket: u64,
    may_lend: bool,
    arrived: BTreeMap<u64, Arrived>,
    /// Tickets that are done with, which the other side has yet to be told.
    owed: Vec<u64>,
    /// Attempts that the other side was given and has not answered.
    unanswered: BTreeSet<AttemptId>,
    letters: mpsc::UnboundedSender<Letter>,
    /// Their other end, until it is asked for.
    reader: Option<mpsc::UnboundedReceiver<Letter>>,
    /// Where messages are read to.
    message: Box<[u8]>,
}

/// A message, with the memory and the frame that came with it.
type Received<'a> = (Message, Option<OwnedFd>, &'a [u8]);

/// One end of a link. Every call is short and never waits for the other side.
pub(crate) struct Link {
    socket: OwnedFd,
    state: Mutex<State>,
    dead: AtomicBool,
}

impl Link {
    /// `socket` is connected and keeps messages apart.
    pub(super) fn new(socket: OwnedFd, budget: Arc<Budget>, may_lend: bool) -> Self {
        let (letters, reader) = mpsc::unbounded_channel();
        let state = State {
            pool: Pool::new(budget),
            next_ticket: 1,
            may_lend,
            arrived: BTreeMap::new(),
            owed: Vec::new(),
            unanswered: BTreeSet::new(),
            letters,
            reader: Some(reader),
            // One more than the longest message, so that a longer one is seen to be.
            message: vec![0; MESSAGE_BYTES + FRAME_BYTES_MAX + 1].into(),
        };
        Self { socket, state: Mutex::new(state), dead: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Ends the link, so that both sides use QUIC from now on. An attempt on its way through it
    /// breaks and is tried again.
    fn fail(&self, why: &dyn std::fmt::Display) {
        if !self.dead.swap(true, Ordering::SeqCst) {
            tracing::warn!(%why, "memory is shared no longer; tensors go over QUIC");
            // Fails only where the other side is gone already.
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }

    /// The other side closed its end, as it does when the session ends.
    fn closed(&self) {
        if !self.dead.swap(true, Ordering::SeqCst) {
            tracing::debug!("the other side closed the link");
        }
    }

    /// Writes the tensors to a buffer and passes it on; `None` where they have to go over QUIC.
    pub(super) fn lend(
        &self,
        id: AttemptId,
        tensors: &[NamedTensor],
        bytes: usize,
    ) -> Option<SharedBody> {
        let buffer = {
            let mut state = self.lock();
            self.drain(&mut state);
            if self.is_dead() || !state.may_lend {
                return None;
            }
            state.pool.get(bytes)
        };
        let written = buffer.and_then(|buffer| match buffer {
            Some(buffer) => buffer.write(tensors).map(|()| Some(buffer)),
            None => Ok(None),
        });
        let buffer = match written {
            Ok(buffer) => buffer?,
            // No memory, or no descriptor. It may be had again later.
            Err(error) => {
                tracing::debug!(%error, "no shared memory for an attempt");
                return None;
            }
        };
        let mut state = self.lock();
        // Others may have lent meanwhile: the other side counts too.
        if self.is_dead() || state.pool.is_lent_out() {
            state.pool.keep(buffer);
            return None;
        }
        let ticket = state.next_ticket;
        match self.post(Message::Body { ticket, id }, Some(buffer.reader()), &[]) {
            Ok(true) => {
                state.next_ticket += 1;
                state.pool.lend(ticket, buffer);
                Some(SharedBody { ticket, bytes: u64::try_from(bytes).ok()? })
            }
            Ok(false) => {
                state.pool.keep(buffer);
                None
            }
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }

    /// Copies out what the other side lent for an attempt. A link on which that fails is not used
    /// any more.
    pub(super) fn take(
        &self,
        id: AttemptId,
        ticket: u64,
        planned: Vec<Planned>,
    ) -> Result<Vec<NamedTensor>> {
        let arrived = {
            let mut state = self.lock();
            // It was passed before its header was sent, so it is here.
            self.drain(&mut state);
            state.arrived.remove(&ticket)
        };
        let read = match arrived {
            Some(arrived) => arrived.read(id, planned),
            None => Err(wire::lost(format!("no shared memory came under ticket {ticket}"))),
        };
        match &read {
            Ok(_) => self.settle(ticket),
            Err(error) => self.fail(error),
        }
        read
    }

    /// Tells the other side that its memory is not read any more.
    fn settle(&self, ticket: u64) {
        let mut state = self.lock();
        state.owed.push(ticket);
        self.pay(&mut state);
    }

    fn pay(&self, state: &mut State) {
        while let Some(&ticket) = state.owed.last() {
            match self.post(Message::Done { ticket }, None, &[]) {
                Ok(true) => state.owed.pop(),
                // Later, then.
                Ok(false) => return,
                Err(_) => return self.closed(),
            };
        }
    }

    /// Lets go of what was not asked for or used in a while. Answers whether the link works.
    pub(super) fn tidy(&self) -> bool {
        let mut state = self.lock();
        self.drain(&mut state);
        if self.is_dead() {
            state.arrived.clear();
            state.pool.clear();
            return false;
        }
        let old: Vec<u64> = state
            .arrived
            .iter()
            .filter(|(_, arrived)| arrived.at.elapsed() >= UNCLAIMED_MAX)
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in old {
            state.arrived.remove(&ticket);
            state.owed.push(ticket);
        }
        self.pay(&mut state);
        state.pool.trim();
        state.may_lend
    }

    /// Gives the other side an attempt, whose frame is in pieces; whether it has it.
    pub(super) fn give(&self, id: AttemptId, frame: &[Bytes]) -> bool {
        let mut state = self.lock();
        if self.is_dead() {
            return false;
        }
        state.unanswered.insert(id);
        let given = self.write(Message::Task { id }, frame);
        if !given {
            state.unanswered.remove(&id);
        }
        given
    }

    /// Says what an attempt came to; whether the other side has it.
    pub(super) fn answer(&self, id: AttemptId, frame: &[Bytes]) -> bool {
        self.write(Message::Outcome { id }, frame)
    }

    /// Says that an attempt is given up; whether the other side knows.
    pub(super) fn give_up(&self, id: AttemptId) -> bool {
        self.write(Message::Broken { id }, &[])
    }

    /// Waits no longer for an attempt, and says so where the other side was given it.
    pub(super) fn cancel(&self, id: AttemptId) {
        if self.settled(id) {
            // What it is not told of it answers in vain.
            self.write(Message::Cancel { id }, &[]);
        }
    }

    /// An attempt has ended in whichever way; whether the other side had it and said nothing.
    pub(super) fn settled(&self, id: AttemptId) -> bool {
        self.lock().unanswered.remove(&id)
    }

    pub(super) fn unanswered(&self) -> Vec<AttemptId> {
        std::mem::take(&mut self.lock().unanswered).into_iter().collect()
    }

    fn write(&self, message: Message, frame: &[Bytes]) -> bool {
        let bytes: usize = frame.iter().map(Bytes::len).sum();
        if bytes > FRAME_BYTES_MAX || self.is_dead() {
            return false;
        }
        // A socket that takes nothing is noticed by those who read it.
        self.post(message, None, frame).unwrap_or(false)
    }

    /// What wakes when the other side has said something, and the letters among that.
    pub(super) fn watched(&self) -> io::Result<(OwnedFd, mpsc::UnboundedReceiver<Letter>)> {
        let reader = self.lock().reader.take();
        let reader = reader.ok_or_else(|| io::Error::other("the link is watched already"))?;
        Ok((self.socket.try_clone()?, reader))
    }

    /// Takes in whatever the other side has said.
    pub(super) fn look(&self) {
        self.drain(&mut self.lock());
    }

    /// A letter is kept for its reader, unless it is about an attempt that is nobody's.
    fn sort(state: &mut State, message: Message, frame: &[u8]) {
        let wanted = match message {
            Message::Outcome { id } | Message::Broken { id } => state.unanswered.remove(&id),
            _ => true,
        };
        if let Some(letter) = Letter::of(message, frame).filter(|_| wanted) {
            // Without a reader the session is over.
            let _ = state.letters.send(letter);
        }
    }

    fn drain(&self, state: &mut State) {
        let mut message = std::mem::take(&mut state.message);
        self.drain_to(state, &mut message);
        state.message = message;
    }

    fn drain_to(&self, state: &mut State, message: &mut [u8]) {
        while !self.is_dead() {
            match self.receive(message) {
                Ok(None) => break,
                Ok(Some((Message::Body { ticket, id }, Some(fd), _))) => {
                    let arrived = Arrived { file: fd.into(), id, at: Instant::now() };
                    state.arrived.insert(ticket, arrived);
                    if state.arrived.len() > LENT_MAX {
                        self.fail(&"the other side lends more than was agreed");
                    }
                }
                Ok(Some((Message::Body { .. }, None, _))) => {
                    self.fail(&"a descriptor was lost: too many files are open");
                }
                Ok(Some((Message::Done { ticket }, ..))) => state.pool.returned(ticket),
                Ok(Some((Message::Go, ..))) => {
                    state.may_lend = true;
                    tracing::info!("memory is shared with the coordinator");
                }
                Ok(Some((letter, _, frame))) => Self::sort(state, letter, frame),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.closed(),
                Err(error) => self.fail(&error),
            }
        }
        self.pay(state);
    }

    /// Sends a message; false where the socket takes no more for now, and nothing was sent.
    pub(super) fn post(
        &self,
        message: Message,
        fd: Option<BorrowedFd<'_>>,
        frame: &[Bytes],
    ) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("no room for a descriptor"));
        }
        let start = message.encode();
        let pieces = std::iter::once(&start[..]).chain(frame.iter().map(AsRef::as_ref));
        let slices: Vec<IoSlice<'_>> = pieces.map(IoSlice::new).collect();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.socket, &slices, &mut control, flags) {
            Ok(_) => Ok(true),
            // Full; or too many descriptors are under way; or there is no memory for it.
            Err(Errno::AGAIN | Errno::INTR | Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The next message, if one has come, with the frame that follows it.
    fn receive<'a>(&self, bytes: &'a mut [u8]) -> io::Result<Option<Received<'a>>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let slices = &mut [IoSliceMut::new(bytes)];
        let given = match recvmsg(&self.socket, slices, &mut control, flags) {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(Errno::CONNRESET) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => return Err(error.into()),
        };
        let fd = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        if given == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let malformed = || io::Error::other("a message on the link has no meaning");
        let is_whole = given < bytes.len();
        let given = bytes.get(..given).filter(|_| is_whole).ok_or_else(malformed)?;
        let message = Message::decode(given).ok_or_else(malformed)?;
        Ok(Some((message, fd, given.get(MESSAGE_BYTES..).unwrap_or_default())))
    }

    /// Buffers that the other side has, that wait here, and how many were asked for and reused.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize, (u64, u64)) {
        let mut state = self.lock();
        self.drain(&mut state);
        (state.pool.lent(), state.arrived.len(), state.pool.counts())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let state = self.lock();
        let (buffers, reused) = state.pool.counts();
        tracing::debug!(buffers, reused, lent = state.pool.lent(), "a link ends");
    }
}

impl Arrived {
    fn read(self, id: AttemptId, planned: Vec<Planned>) -> Result<Vec<NamedTensor>> {
        if self.id != id {
            let what = format!("shared memory is for {:?}, not for {id:?}", self.id);
            return Err(wire::lost(what));
        }
        let bytes: usize = planned.iter().map(|tensor| tensor.bytes).sum();
        check(&self.file, u64::try_from(bytes).map_err(wire::lost)?)?;
        let mut at = 0;
        let mut tensors = Vec::with_capacity(planned.len());
        for planned in planned {
            let mut buffer = planned.buffer()?;
            self.file.read_exact_at(&mut buffer, at).map_err(wire::lost)?;
            at += u64::try_from(planned.bytes).map_err(wire::lost)?;
            tensors.push(planned.finish(buffer)?);
        }
        Ok(tensors)
    }
}
