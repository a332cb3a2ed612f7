//! Checks that a coordinator's QUIC port is reachable: it sends a first packet of a reserved version, which every QUIC
//! server answers with the versions it speaks (RFC 9000, section 6).

use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long to wait for an answer, and how often to ask.
const PATIENCE: Duration = Duration::from_millis(500);
const TIMES: usize = 3;
/// The smallest first packet that servers accept.
const BYTES: usize = 1200;

/// The outcome of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// A QUIC server answered.
    Yes,
    /// The machine reports that no process listens there.
    Refused,
    /// No answer came.
    Silent,
}

/// Asks at an address.
///
/// # Errors
/// When no packet can be sent.
pub(super) fn reach(addr: SocketAddr) -> Result<Reached, Error> {
    let any = match addr {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(addr)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = u64::from(now.subsec_nanos()) << 32 | u64::from(std::process::id());
    let packet = packet(id.to_be_bytes());
    for _ in 0..TIMES {
        match socket.send(&packet) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return Ok(Reached::Refused);
            }
            sent => sent?,
        };
        let mut answer = [0; BYTES];
        match socket.recv(&mut answer) {
            Ok(bytes) if is_answer(&answer[..bytes]) => return Ok(Reached::Yes),
            // Not an answer to this packet.
            Ok(_) => {}
            Err(error) => match error.kind() {
                ErrorKind::ConnectionRefused => return Ok(Reached::Refused),
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                _ => return Err(error),
            },
        }
    }
    Ok(Reached::Silent)
}

/// A long header of a version that is kept free for this, with connection ids of 8 bytes.
fn packet(id: [u8; 8]) -> [u8; BYTES] {
    let mut packet = [0; BYTES];
    packet[0] = 0b1100_0000;
    packet[1..5].copy_from_slice(&[0x1a, 0x2a, 0x3a, 0x4a]);
    packet[5] = 8;
    packet[6..14].copy_from_slice(&id);
    packet[14] = 8;
    packet[15..23].copy_from_slice(&id);
    packet
}

/// Whether it is a version negotiation packet: a long header of version 0.
fn is_answer(bytes: &[u8]) -> bool {
    matches!(bytes, [first, 0, 0, 0, 0, ..] if first & 0x80 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_others_and_nobody_are_told_apart() {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = UdpSocket::bind(local).expect("a port");
        let addr = server.local_addr().expect("bound");
        let thread = std::thread::spawn(move || {
            let mut packet = [0; 2048];
            // A stray packet comes first and must not count as an answer.
            let (bytes, from) = server.recv_from(&mut packet).expect("asked");
            assert_eq!((bytes, packet[0] & 0xc0), (BYTES, 0xc0));
            server.send_to(b"hello", from).expect("sent");
            let (_, from) = server.recv_from(&mut packet).expect("asked again");
            server.send_to(&[0x80, 0, 0, 0, 0, 8], from).expect("sent");
        });
        assert_eq!(reach(addr).expect("sent"), Reached::Yes);
        thread.join().expect("it answered");
        assert_eq!(reach(addr).expect("sent"), Reached::Refused, "nobody is left");
        let silent = UdpSocket::bind(local).expect("a port");
        assert_eq!(reach(silent.local_addr().expect("bound")).expect("sent"), Reached::Silent);
    }
}
