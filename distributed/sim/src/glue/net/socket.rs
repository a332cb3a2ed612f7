//! A socket of the simulated network, and its runtime.

use super::{Net, Node};
use lgp_distributed::inside::outside::on;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, UdpPoller};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::time::Instant;

/// A socket.
pub(super) struct SimSocket {
    pub(super) net: Arc<Net>,
    pub(super) addr: SocketAddr,
    pub(super) inbox: Mutex<Inbox>,
}

/// Datagrams that arrived and were not read.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) datagrams: VecDeque<(SocketAddr, Vec<u8>)>,
    pub(super) waker: Option<Waker>,
    pub(super) dead: bool,
}

impl SimSocket {
    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SimSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimSocket").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl AsyncUdpSocket for SimSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if !self.inbox().dead {
            self.net.post(self.addr, transmit.destination, transmit.contents);
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut inbox = self.inbox();
        if inbox.dead || inbox.datagrams.is_empty() {
            inbox.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut count = 0;
        for (buf, meta) in bufs.iter_mut().zip(meta) {
            let Some((addr, bytes)) = inbox.datagrams.pop_front() else { break };
            let Some(into) = buf.get_mut(..bytes.len()) else { continue };
            into.copy_from_slice(&bytes);
            let len = bytes.len();
            *meta = RecvMeta { addr, len, stride: len, ecn: None, dst_ip: None };
            count += 1;
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}

/// Sockets always take another datagram.
#[derive(Debug)]
struct Writable;

impl UdpPoller for Writable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Tokio with the simulation's clock.
#[derive(Debug)]
pub(super) struct SimRuntime {
    /// The machine of the tasks that it runs.
    pub(super) node: Node,
}

impl Runtime for SimRuntime {
    fn new_timer(&self, at: std::time::Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(tokio::time::sleep_until(at.into()))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(on(self.node, future));
    }

    fn wrap_udp_socket(&self, _: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }
}
