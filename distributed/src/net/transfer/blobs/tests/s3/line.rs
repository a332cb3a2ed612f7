//! A line to a server, on which answers get lost.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

pub(super) struct Line {
    port: u16,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    /// How many of the next connections end where their answer begins.
    lost: AtomicUsize,
    /// Whether nothing arrives.
    cut: AtomicBool,
}

impl Faults {
    fn loses(&self) -> bool {
        self.cut.load(SeqCst)
            || self.lost.fetch_update(SeqCst, SeqCst, |lost| lost.checked_sub(1)).is_ok()
    }
}

impl Line {
    pub(super) fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let faults = Arc::new(Faults::default());
        let shared = Arc::clone(&faults);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else {
                    continue;
                };
                let ends = [(&client, &server), (&server, &client)];
                let [there, back] =
                    ends.map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()));
                std::thread::spawn(move || pass(there, || false));
                let faults = Arc::clone(&shared);
                std::thread::spawn(move || pass(back, || faults.loses()));
            }
        });
        Self { port, faults }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The next answers are lost, though their requests are carried out.
    pub(super) fn lose(&self, count: usize) {
        self.faults.lost.store(count, SeqCst);
    }

    pub(super) fn cut(&self, cut: bool) {
        self.faults.cut.store(cut, SeqCst);
    }
}

/// Passes bytes on, until it is told to lose some.
fn pass((mut from, mut to): (TcpStream, TcpStream), loses: impl Fn() -> bool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if loses() || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}
