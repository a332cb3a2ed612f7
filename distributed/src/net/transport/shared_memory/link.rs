//! One link: passes buffers with their tickets, and reports when it is done with buffers of the
//! other side.

use super::message::{MESSAGE_BYTES, Message};
use super::pool::{Budget, LENT_MAX, Pool, check};
use crate::error::Result;
use crate::net::transport::wire;
use crate::proto::message::{AttemptId, SharedBody};
use crate::proto::tensors::Planned;
use lgp_memory::NamedTensor;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, recvmsg, sendmsg, shutdown,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time for the header that uses a buffer. The header is sent right after the buffer; if it never
/// comes, its attempt was cancelled on the way.
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
    /// Tickets of buffers that were read, which the other side has yet to be told.
    owed: Vec<u64>,
}

/// One end of a link. Every call is short and never waits for the other side.
pub(crate) struct Link {
    socket: OwnedFd,
    state: Mutex<State>,
    dead: AtomicBool,
}

impl Link {
    /// `socket` is connected and keeps message boundaries.
    pub(super) fn new(socket: OwnedFd, budget: Arc<Budget>, may_lend: bool) -> Self {
        let state = State {
            pool: Pool::new(budget),
            next_ticket: 1,
            may_lend,
            arrived: BTreeMap::new(),
            owed: Vec::new(),
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
            // No memory, or no descriptor: both may be available later.
            Err(error) => {
                tracing::debug!(%error, "no shared memory for an attempt");
                return None;
            }
        };
        let mut state = self.lock();
        // Another attempt may have lent a buffer meanwhile, and the other side counts them.
        if self.is_dead() || state.pool.is_lent_out() {
            state.pool.keep(buffer);
            return None;
        }
        let ticket = state.next_ticket;
        match self.post(Message::Body { ticket, id }, Some(buffer.reader())) {
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

    /// Copies out the buffer that the other side lent for an attempt. A link on which that fails is
    /// not used any more.
    pub(super) fn take(
        &self,
        id: AttemptId,
        ticket: u64,
        planned: Vec<Planned>,
    ) -> Result<Vec<NamedTensor>> {
        let arrived = {
            let mut state = self.lock();
            // The buffer was passed before its header was sent, so it is here.
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
            match self.post(Message::Done { ticket }, None) {
                Ok(true) => state.owed.pop(),
                // The socket is full: later, then.
                Ok(false) => return,
                Err(_) => return self.closed(),
            };
        }
    }

    /// Drops buffers that were not claimed or used in a while. Returns whether the link works.
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

    /// Takes in all messages that the other side has sent.
    fn drain(&self, state: &mut State) {
        while !self.is_dead() {
            match self.receive() {
                Ok(None) => break,
                Ok(Some((Message::Body { ticket, id }, Some(fd)))) => {
                    let arrived = Arrived { file: fd.into(), id, at: Instant::now() };
                    state.arrived.insert(ticket, arrived);
                    if state.arrived.len() > LENT_MAX {
                        self.fail(&"the other side lends more than was agreed");
                    }
                }
                Ok(Some((Message::Body { .. }, None))) => {
                    self.fail(&"a descriptor was lost: too many files are open");
                }
                Ok(Some((Message::Done { ticket }, _))) => state.pool.returned(ticket),
                Ok(Some((Message::Go, _))) => {
                    state.may_lend = true;
                    tracing::info!("memory is shared with the coordinator");
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.closed(),
                Err(error) => self.fail(&error),
            }
        }
        self.pay(state);
    }

    /// Sends a message; false where the socket takes no more for now, and nothing was sent.
    pub(super) fn post(&self, message: Message, fd: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("no room for a descriptor"));
        }
        let bytes = message.encode();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, flags) {
            Ok(_) => Ok(true),
            // The socket is full, too many descriptors are under way, or there is no memory.
            Err(Errno::AGAIN | Errno::INTR | Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The next message, if one has come.
    fn receive(&self) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
        let mut bytes = [0; MESSAGE_BYTES + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let slices = &mut [IoSliceMut::new(&mut bytes)];
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
        let message = bytes.get(..given).and_then(Message::decode);
        let malformed = || io::Error::other("a message on the link has no meaning");
        Ok(Some((message.ok_or_else(malformed)?, fd)))
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
