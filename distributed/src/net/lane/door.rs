//! How a lane begins. The coordinator tells each worker, over their connection, a socket and a
//! nonce; one that reaches the socket is on this machine, and the nonce says which session it is.

use super::Berth;
use super::link::{Lane, Message};
use super::pool::Budget;
use crate::net::hex;
use crate::proto::message::LaneOffer;
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

/// Time for the nonce of a process of the same user that has connected.
const NONCE_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// Wait after a connection that could not be accepted.
const BREATH: Duration = Duration::from_millis(100);

type Nonce = [u8; 32];

/// Where workers of this machine come for their lanes. A thread lets them in until this is dropped.
pub(in crate::net) struct Door(Arc<Inner>);

struct Inner {
    socket: OwnedFd,
    name: String,
    invited: Mutex<HashMap<Nonce, Weak<Berth>>>,
    budget: Arc<Budget>,
}

/// Holds as long as it lives, for one lane.
pub(in crate::net) struct Invitation {
    door: Arc<Door>,
    pub(in crate::net) offer: LaneOffer,
}

impl Drop for Invitation {
    fn drop(&mut self) {
        self.door.0.invited().remove(&self.offer.nonce);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Wakes the thread, which then ends.
        let _ = shutdown(&self.0.socket, Shutdown::Both);
    }
}

impl Door {
    /// Opens a door to at most so many bytes of memory, if that can be done. The socket's name is
    /// abstract: it needs no folder, and goes with the process.
    pub(in crate::net) fn open(bytes_max: usize) -> Option<Arc<Self>> {
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
        let name = format!("lgp-{}", hex::encode(&rand::random::<[u8; 16]>()));
        let socket = unix_socket(SocketFlags::CLOEXEC)?;
        bind(&socket, &address(&name)?)?;
        listen(&socket, BACKLOG)?;
        let (invited, budget) = (Mutex::default(), Budget::new(bytes_max));
        let inner = Arc::new(Inner { socket, name, invited, budget });
        let door = Arc::new(Self(Arc::clone(&inner)));
        std::thread::Builder::new().name("lanes".into()).spawn(move || inner.attend())?;
        Ok(door)
    }

    /// Buffers that were asked for here, and how many of those had served before.
    pub(in crate::net) fn buffers(&self) -> Hits {
        self.0.budget.counts()
    }

    /// Expects a session's worker.
    pub(in crate::net) fn invite(self: &Arc<Self>, berth: &Arc<Berth>) -> Invitation {
        let offer = LaneOffer { name: self.0.name.clone(), nonce: rand::random() };
        self.0.invited().insert(offer.nonce, Arc::downgrade(berth));
        Invitation { door: Arc::clone(self), offer }
    }
}

impl Inner {
    fn invited(&self) -> MutexGuard<'_, HashMap<Nonce, Weak<Berth>>> {
        self.invited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attend(&self) {
        loop {
            let admitted = match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => self.admit(socket),
                // Shut down.
                Err(Errno::INVAL) => return,
                Err(error) => {
                    std::thread::sleep(BREATH);
                    Err(error.into())
                }
            };
            if let Err(error) = admitted {
                tracing::debug!(%error, "somebody at the door was not let in");
            }
        }
    }

    fn admit(&self, socket: OwnedFd) -> io::Result<()> {
        check_user(&socket)?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(NONCE_TIMEOUT))?;
        let mut nonce: Nonce = [0; 32];
        let (_, given) = recv(&socket, &mut nonce[..], RecvFlags::empty())?;
        // Once used, it is worth nothing.
        let berth = self.invited().remove(&nonce).filter(|_| given == nonce.len());
        let berth = berth.and_then(|berth| berth.upgrade());
        let berth = berth.ok_or_else(|| io::Error::other("it was not invited"))?;
        let lane = Arc::new(Lane::new(socket, Arc::clone(&self.budget), true));
        // The worker lends only once it is told to, and its lane is here then.
        let _ = berth.0.set(Arc::clone(&lane));
        lane.post(Message::Go, None)?;
        Ok(())
    }
}

/// The worker's side: accepts an invitation, if the door can be reached from here. At most so many
/// bytes of memory are lent.
pub(in crate::net) fn knock(
    offer: &LaneOffer,
    berth: &Arc<Berth>,
    bytes_max: usize,
) -> io::Result<()> {
    // A door that many stand at is no reason to wait.
    let socket = unix_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    connect(&socket, &address(&offer.name)?)?;
    check_user(&socket)?;
    let nonce = socket.try_clone()?;
    // It is here before the coordinator can use it.
    let _ = berth.0.set(Arc::new(Lane::new(socket, Budget::new(bytes_max), false)));
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

/// Whether the other end belongs to the user of this process, as the kernel says.
fn check_user(socket: &OwnedFd) -> io::Result<()> {
    let (given, own) = (sockopt::socket_peercred(socket)?.uid, rustix::process::geteuid());
    if given == own {
        return Ok(());
    }
    let what = format!("user {} is at the other end, expected {}", given.as_raw(), own.as_raw());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}
