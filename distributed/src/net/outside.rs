//! What the network code uses of the system below: threads, sockets, the wall clock and randomness.
//! With the cargo feature `planted`, a simulation gives its own to code that runs on its threads.

#[cfg(feature = "planted")]
mod fault;
#[cfg(feature = "planted")]
mod machine;
#[cfg(feature = "planted")]
mod scene;

use quinn::{AsyncUdpSocket, Runtime, TokioRuntime};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::task::JoinHandle;
#[cfg(feature = "planted")]
pub(crate) use {machine::here, scene::is_planted};

#[cfg(feature = "planted")]
pub use {
    fault::GlueFault,
    machine::{MACHINE, on},
    scene::{Scene, set_scene},
};

/// Bytes asked of the kernel for a socket's buffers; it may grant less.
const SOCKET_BUFFER: usize = 4 << 20;

/// Whether the simulation has planted a fault in the network code; never without the cargo feature
/// `planted`.
#[cfg(feature = "planted")]
macro_rules! planted_here {
    ($fault:ident) => {
        crate::net::outside::is_planted(crate::net::outside::GlueFault::$fault)
    };
}
#[cfg(not(feature = "planted"))]
macro_rules! planted_here {
    ($fault:ident) => {
        false
    };
}
pub(crate) use planted_here;

/// A UDP socket at an address, and the runtime that drives it.
pub type Bound = (Arc<dyn AsyncUdpSocket>, Arc<dyn Runtime>);

/// Binds a UDP socket.
pub(crate) fn bind(addr: SocketAddr) -> io::Result<Bound> {
    #[cfg(feature = "planted")]
    if let Some(scene) = scene::current() {
        return scene.bind(addr);
    }
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    // Linux reports twice what it grants, its own bookkeeping included.
    let granted = socket.recv_buffer_size()? / 2;
    if granted < SOCKET_BUFFER {
        tracing::debug!(
            granted,
            wanted = SOCKET_BUFFER,
            "the kernel grants smaller UDP buffers; raise net.core.rmem_max for large tensors"
        );
    }
    socket.bind(&addr.into())?;
    let runtime = Arc::new(TokioRuntime);
    Ok((runtime.wrap_udp_socket(socket.into())?, runtime))
}

/// Runs work that may wait for the disk or a device on a thread that may block.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    #[cfg(feature = "planted")]
    if let Some(scene) = scene::current() {
        let late = scene.thread_is_late();
        return tokio::spawn(here(async move {
            if let Some(late) = late {
                tokio::time::sleep(late).await;
            }
            work()
        }));
    }
    tokio::task::spawn_blocking(work)
}

/// A task that is to be started, as part of the code that starts it.
#[cfg(not(feature = "planted"))]
pub(crate) fn here<F>(future: F) -> F {
    future
}

/// Starts a thread that runs models.
pub(crate) fn run_models(work: impl FnOnce() + Send + 'static) {
    #[cfg(feature = "planted")]
    if let Some(scene) = scene::current() {
        return scene.run_models(Box::new(work));
    }
    tokio::task::spawn_blocking(work);
}

/// Wall time in whole milliseconds.
pub(crate) fn unix_ms() -> u64 {
    #[cfg(feature = "planted")]
    if let Some(scene) = scene::current() {
        return scene.unix_ms();
    }
    crate::clock::unix_ms()
}

/// The seed of an endpoint's randomness; `None` leaves it to the system.
pub(crate) fn endpoint_seed() -> Option<[u8; 32]> {
    #[cfg(feature = "planted")]
    if let Some(scene) = scene::current() {
        return Some(rand::RngExt::random(&mut scene.rng()));
    }
    None
}

/// A new random generator.
pub(crate) fn rng() -> Xoshiro256PlusPlus {
    #[cfg(feature = "planted")]
    if let Some(scene) = scene::current() {
        return scene.rng();
    }
    Xoshiro256PlusPlus::from_rng(&mut rand::rng())
}
