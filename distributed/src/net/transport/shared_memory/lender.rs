//! How a link begins. The coordinator tells each worker a socket and a nonce over their connection.
//! A process that reaches the socket is on this machine, and the nonce names its session.

use super::SharedMemory;
use super::link::Link;
use super::message::Message;
use super::pool::Budget;
use crate::proto::message::SharedMemoryOffer;
use crate::worker_info::Hits;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recv, send, shutdown, socket_with,
};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Time for a connected process of the same user to send its nonce.
const NONCE_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// Wait after a connection that could not be accepted.
const BREATH: Duration = Duration::from_millis(100);

type Nonce = [u8; 32];

/// Where workers of this machine get their links. A thread admits them until this is dropped.
pub(crate) struct Lender(Arc<Inner>);

struct Inner {
    socket: OwnedFd,
    name: String,
    invited: Mutex<HashMap<Nonce, Weak<SharedMemory>>>,
    budget: Arc<Budget>,
}

/// An invitation for one link, which holds as long as this lives.
pub(crate) struct Invitation {
    lender: Arc<Lender>,
    pub(crate) offer: SharedMemoryOffer,
}

impl Drop for Invitation {
    fn drop(&mut self) {
        self.lender.0.invited().remove(&self.offer.nonce);
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        // Wakes the thread, which then ends.
        let _ = shutdown(&self.0.socket, Shutdown::Both);
    }
}

impl Lender {
    /// Opens a lender of at most `bytes_max` bytes of memory, if that can be done. The socket's
    /// name is abstract: it needs no folder, and goes with the process.
    pub(crate) fn open(bytes_max: usize) -> Option<Arc<Self>> {
        if bytes_max == 0 {
            return None;
        }
        Self::listen(bytes_max)
            .inspect_err(|error| {
                tracing::warn!(%error, "no memory is shared with workers of this machine");
            })
            .ok()
    }

    fn listen(bytes_max: usize) -> io::Result<Arc<Self>> {
        let name = format!("lgp-{}", hex::encode(rand::random::<[u8; 16]>()));
        let socket = unix_socket(SocketFlags::CLOEXEC)?;
        bind(&socket, &address(&name)?)?;
        listen(&socket, BACKLOG)?;
        let (invited, budget) = (Mutex::default(), Budget::new(bytes_max));
        let inner = Arc::new(Inner { socket, name, invited, budget });
        let lender = Arc::new(Self(Arc::clone(&inner)));
        std::thread::Builder::new().name("links".into()).spawn(move || inner.attend())?;
        Ok(lender)
    }

    /// Buffers that links of this lender asked for, and how many of them were reused.
    pub(crate) fn buffers(&self) -> Hits {
        self.0.budget.counts()
    }

    /// Invites a session's worker.
    pub(crate) fn invite(self: &Arc<Self>, shared_memory: &Arc<SharedMemory>) -> Invitation {
        let offer = SharedMemoryOffer { name: self.0.name.clone(), nonce: rand::random() };
        self.0.invited().insert(offer.nonce, Arc::downgrade(shared_memory));
        Invitation { lender: Arc::clone(self), offer }
    }
}

impl Inner {
    fn invited(&self) -> MutexGuard<'_, HashMap<Nonce, Weak<SharedMemory>>> {
        self.invited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attend(&self) {
        loop {
            let admitted = match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => self.admit(socket),
                // The socket was shut down.
                Err(Errno::INVAL) => return,
                Err(error) => {
                    std::thread::sleep(BREATH);
                    Err(error.into())
                }
            };
            if let Err(error) = admitted {
                tracing::debug!(%error, "shared memory was refused to a process");
            }
        }
    }

    fn admit(&self, socket: OwnedFd) -> io::Result<()> {
        check_user(&socket)?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(NONCE_TIMEOUT))?;
        let mut nonce: Nonce = [0; 32];
        let (_, given) = recv(&socket, &mut nonce[..], RecvFlags::empty())?;
        // A nonce is worth nothing once it was used.
        let shared_memory = self.invited().remove(&nonce).filter(|_| given == nonce.len());
        let shared_memory = shared_memory.and_then(|shared_memory| shared_memory.upgrade());
        let shared_memory = shared_memory.ok_or_else(|| io::Error::other("it was not invited"))?;
        let link = Arc::new(Link::new(socket, Arc::clone(&self.budget), true));
        // The worker lends only once it is told to, and by then its link is here.
        let _ = shared_memory.0.set(Arc::clone(&link));
        link.post(Message::Go, None)?;
        Ok(())
    }
}

/// The worker's side: accepts an invitation, if the lender can be reached from here. It lends at
/// most `bytes_max` bytes of memory.
pub(crate) fn accept_offer(
    offer: &SharedMemoryOffer,
    shared_memory: &Arc<SharedMemory>,
    bytes_max: usize,
) -> io::Result<()> {
    // Do not wait for a lender whose backlog is full.
    let socket = unix_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    connect(&socket, &address(&offer.name)?)?;
    check_user(&socket)?;
    let nonce = socket.try_clone()?;
    // The link is here before the coordinator can use it.
    let _ = shared_memory.0.set(Arc::new(Link::new(socket, Budget::new(bytes_max), false)));
    send(&nonce, &offer.nonce, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn unix_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    // Each message arrives whole, with its descriptor.
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn address(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Checks that the other end belongs to the user of this process, as the kernel says.
fn check_user(socket: &OwnedFd) -> io::Result<()> {
    let (given, own) = (sockopt::socket_peercred(socket)?.uid, rustix::process::geteuid());
    if given == own {
        return Ok(());
    }
    let what = format!("user {} is at the other end, expected {}", given.as_raw(), own.as_raw());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}
