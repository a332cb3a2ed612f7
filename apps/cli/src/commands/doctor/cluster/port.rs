//! The workers' port: whether it answers from here, and whether a firewall blocks it.

use super::Facts;
use crate::commands::doctor::firewall;
use crate::commands::doctor::quic::{Reached, reach};
use lgp_hal::{Finding, Status as FindingStatus};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use ureq::http::Uri;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let quic = facts.coordinator["quic"].as_str().and_then(|addr| addr.parse().ok());
    let Some(quic): Option<SocketAddr> = quic else { return Vec::new() };
    let is_here = facts.data.is_some();
    let mut all = Vec::new();
    if is_here && !quic.ip().is_loopback() {
        all.extend(firewall::check(Path::new("/"), quic.port()));
    }
    let Some(addr) = address(quic, &facts.server, is_here) else {
        let message = format!("it listens at {quic}, where no other machine reaches it");
        all.push(Finding::new("quic", FindingStatus::Warn, message).fix(
            "start it with an address that others reach: radeon-cluster start --quic IP:8443",
        ));
        return all;
    };
    let say = |status, what: &str| Finding::new("quic", status, format!("{addr}/udp {what}"));
    let fix = "let the port through on the coordinator's machine and on the way; an address in a container or cloud may need to be published for UDP";
    all.push(match reach(addr) {
        Ok(Reached::Yes) => say(FindingStatus::Ok, "answers: workers can join from here"),
        Ok(Reached::Silent) => {
            say(FindingStatus::Warn, "does not answer: a firewall may drop it").fix(fix)
        }
        Ok(Reached::Refused) => {
            say(FindingStatus::Warn, "is refused: nobody listens there").fix(fix)
        }
        Err(error) => say(FindingStatus::Warn, &format!("cannot be asked: {error}")).fix(fix),
    });
    all
}

/// The address where local workers would look for the port; `None` where they cannot.
fn address(quic: SocketAddr, server: &str, is_here: bool) -> Option<SocketAddr> {
    if is_here {
        let ip = match quic.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        return Some(SocketAddr::new(ip, quic.port()));
    }
    let uri: Uri = server.parse().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let there = (host, quic.port()).to_socket_addrs().ok()?.next()?;
    match (quic.ip().is_loopback(), there.ip().is_loopback()) {
        (true, false) => None,
        _ if quic.ip().is_unspecified() || quic.ip().is_loopback() => Some(there),
        _ => Some(quic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_looked_for_where_workers_would() {
        for (quic, server, is_here, expected) in [
            ("0.0.0.0:8443", "http://127.0.0.1:8000", true, Some("127.0.0.1:8443")),
            ("[::]:8443", "http://127.0.0.1:8000", true, Some("[::1]:8443")),
            ("10.0.0.5:8443", "http://127.0.0.1:8000", true, Some("10.0.0.5:8443")),
            ("0.0.0.0:8443", "https://10.0.0.7:8000", false, Some("10.0.0.7:8443")),
            ("10.0.0.5:8443", "https://10.0.0.7:8000", false, Some("10.0.0.5:8443")),
            ("127.0.0.1:8443", "https://10.0.0.7:8000", false, None),
            ("127.0.0.1:8443", "http://127.0.0.1:8000", false, Some("127.0.0.1:8443")),
            ("0.0.0.0:8443", "http://[::1]:8000", false, Some("[::1]:8443")),
        ] {
            let found = address(quic.parse().expect("an address"), server, is_here);
            assert_eq!(
                found,
                expected.map(|it| it.parse().expect("an address")),
                "{quic} {server}"
            );
        }
    }
}
