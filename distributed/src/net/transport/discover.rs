//! Finding a coordinator on the local network (mDNS, RFC 6762 and 6763).
//!
//! An announcement is only a hint, because anybody can announce anything. The handshake decides
//! whether a coordinator is the right one.

use crate::error::{Error, Result};
use crate::net::identity::pki::CaHash;
use mdns_sd::{IfKind, Receiver, ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo};
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

const SERVICE: &str = "_legacy-gpu._udp.local.";
/// The property with the beginning of the authority's hash.
const AUTHORITY: &str = "ca";
const AUTHORITY_DIGITS: usize = 16;
/// The port of mDNS.
const PORT: u16 = 5353;
/// Most coordinators and addresses that are tried: a network may be full of false ones.
const CANDIDATES_MAX: usize = 64;

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Discovery { message: error.to_string() }
}

fn beginning(authority: CaHash) -> String {
    authority.to_string().chars().take(AUTHORITY_DIGITS).collect()
}

/// On every interface; or on the loopback alone, so that nothing is sent on the network.
fn daemon(port: u16, loopback_only: bool) -> Result<ServiceDaemon> {
    let daemon = ServiceDaemon::new_with_port(port).map_err(failed)?;
    if loopback_only {
        daemon.disable_interface(IfKind::All).map_err(failed)?;
        daemon.enable_interface(IfKind::LoopbackV4).map_err(failed)?;
    }
    Ok(daemon)
}

/// A coordinator's announcement, taken back when this is dropped.
pub struct Advertisement {
    daemon: ServiceDaemon,
    name: String,
}

impl std::fmt::Debug for Advertisement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Advertisement").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Advertisement {
    /// Announces on the local network that a coordinator listens at `addr`.
    ///
    /// # Errors
    /// [`Error::Discovery`] when multicast does not work here.
    pub fn start(addr: SocketAddr, authority: CaHash) -> Result<Self> {
        Self::on_port(PORT, addr, authority)
    }

    fn on_port(port: u16, addr: SocketAddr, authority: CaHash) -> Result<Self> {
        let daemon = daemon(port, addr.ip().is_loopback())?;
        let beginning = beginning(authority);
        let name = format!("coordinator-{beginning}");
        let host = format!("{name}.local.");
        let properties = [(AUTHORITY, beginning.as_str())];
        let ips: &[IpAddr] = if addr.ip().is_unspecified() { &[] } else { &[addr.ip()] };
        let info = ServiceInfo::new(SERVICE, &name, &host, ips, addr.port(), &properties[..]);
        let mut info = info.map_err(failed)?;
        if ips.is_empty() {
            info = info.enable_addr_auto();
        }
        let name = info.get_fullname().to_owned();
        daemon.register(info).map_err(failed)?;
        Ok(Self { daemon, name })
    }
}

impl Drop for Advertisement {
    fn drop(&mut self) {
        // If the farewell is lost, listeners let the announcement expire.
        let _ = self.daemon.unregister(&self.name);
        let _ = self.daemon.shutdown();
    }
}

/// The search for the coordinator of one cluster.
pub struct Discovery {
    daemon: ServiceDaemon,
    events: Receiver<ServiceEvent>,
    found: Found,
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery")
            .field("beginning", &self.found.beginning)
            .finish_non_exhaustive()
    }
}

impl Discovery {
    /// Begins to search for the coordinator whose authority has this hash.
    ///
    /// # Errors
    /// [`Error::Discovery`] when multicast does not work here.
    pub fn start(authority: CaHash) -> Result<Self> {
        // The loopback too: a coordinator of the same machine may be meant.
        Self::on_port(PORT, authority, false)
    }

    fn on_port(port: u16, authority: CaHash, loopback_only: bool) -> Result<Self> {
        let daemon = daemon(port, loopback_only)?;
        let events = daemon.browse(SERVICE).map_err(failed)?;
        let beginning = beginning(authority);
        let found = Found { beginning, seen: BTreeSet::new(), next: VecDeque::new() };
        Ok(Self { daemon, events, found })
    }

    /// The next address at which the coordinator may be; waits until there is one. Each address
    /// comes once.
    pub async fn next(&mut self) -> Option<SocketAddr> {
        loop {
            if let Some(addr) = self.found.next.pop_front() {
                return Some(addr);
            }
            match self.events.recv_async().await {
                Ok(ServiceEvent::ServiceResolved(service)) => self.found.add(&service),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        // Otherwise the daemon ends with the process.
        let _ = self.daemon.shutdown();
    }
}

/// The results of the search.
struct Found {
    beginning: String,
    seen: BTreeSet<SocketAddr>,
    next: VecDeque<SocketAddr>,
}

impl Found {
    fn add(&mut self, service: &ResolvedService) {
        let announced = service.get_property_val_str(AUTHORITY);
        if announced != Some(self.beginning.as_str()) {
            tracing::debug!(name = service.get_fullname(), "another cluster's coordinator");
            return;
        }
        let ips = service.get_addresses().iter().map(mdns_sd::ScopedIp::to_ip_addr);
        self.add_all(ips, service.get_port());
    }

    /// IPv4 first: many announced IPv6 addresses do not work.
    fn add_all(&mut self, ips: impl Iterator<Item = IpAddr>, port: u16) {
        let usable = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast(),
            // Addresses of a link mean nothing without the link's name.
            IpAddr::V6(ip) => {
                !ip.is_unspecified() && !ip.is_multicast() && !ip.is_unicast_link_local()
            }
        };
        let sorted: BTreeSet<IpAddr> = ips.filter(usable).collect();
        for ip in sorted {
            let addr = SocketAddr::new(ip, port);
            if port != 0 && self.seen.len() < CANDIDATES_MAX && self.seen.insert(addr) {
                self.next.push_back(addr);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    #[test]
    fn addresses_that_can_be_reached_are_named_once() {
        let mut found =
            Found { beginning: String::new(), seen: BTreeSet::new(), next: VecDeque::new() };
        let ips = ["fe80::1", "fd00::1", "0.0.0.0", "10.0.0.2", "224.0.0.1"];
        let ips = ips.map(|ip| ip.parse().expect("an address"));
        found.add_all(ips.into_iter(), 0);
        found.add_all(ips.into_iter(), 8443);
        found.add_all(ips.into_iter(), 8443);
        let named: Vec<String> = found.next.iter().map(ToString::to_string).collect();
        assert_eq!(named, ["10.0.0.2:8443", "[fd00::1]:8443"]);
        found.add_all((0..100).map(|n| IpAddr::from([10, 0, 1, n])), 1);
        assert_eq!(found.seen.len(), CANDIDATES_MAX);
    }

    /// Whether a packet to a group of the loopback comes back, by plain sockets of the system.
    fn multicast_works() -> std::io::Result<()> {
        let (group, here) = (Ipv4Addr::new(224, 0, 0, 251), Ipv4Addr::LOCALHOST);
        let receiver = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        receiver.join_multicast_v4(&group, &here)?;
        receiver.set_read_timeout(Some(Duration::from_secs(2)))?;
        let sender = socket2::Socket::from(UdpSocket::bind((here, 0))?);
        sender.set_multicast_if_v4(&here)?;
        UdpSocket::from(sender).send_to(b"x", (group, receiver.local_addr()?.port()))?;
        receiver.recv(&mut [0; 1]).map(|_| ())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_coordinator_is_found_among_others() {
        if let Err(error) = multicast_works() {
            return println!("skipped: multicast: {error}");
        }
        // A port of its own: the real one may be busy with real coordinators. The probe's socket
        // closes at once, because several daemons are to share the port.
        let port = {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            socket.local_addr().expect("bound").port()
        };
        let hash = |digit: &str| digit.repeat(64).parse::<CaHash>().expect("a hash");
        let addr = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let announce = |port_of_it, digit| {
            Advertisement::on_port(port, addr(port_of_it), hash(digit)).expect("multicast works")
        };
        let _other = announce(7001, "a");
        let _meant = announce(7002, "b");
        let mut discovery = Discovery::on_port(port, hash("b"), true).expect("multicast works");
        let found = tokio::time::timeout(Duration::from_secs(20), discovery.next()).await;
        assert_eq!(found.expect("it is found"), Some(addr(7002)));
        let more = tokio::time::timeout(Duration::from_secs(2), discovery.next()).await;
        assert!(more.is_err(), "the other one is ignored: {more:?}");
    }
}
