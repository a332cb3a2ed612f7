//! The address of two engines that keep the control plane together: etcd has the authority, NATS
//! JetStream the log.

use std::net::{IpAddr, SocketAddr};

const ETCD: &str = "etcd://";
const NATS: &str = "nats://";

/// Where the two are, each `HOST:PORT`, and the cluster's name in both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) etcd: Vec<String>,
    pub(super) nats: Vec<String>,
    pub(super) name: String,
}

impl Pair {
    /// Whether an address is meant as one of these.
    pub(super) fn is_meant(address: &str) -> bool {
        ["etcd:", "nats:"].into_iter().any(|scheme| address.starts_with(scheme))
    }

    /// Those at `etcd://HOST:PORT,HOST:PORT,nats://HOST:PORT,HOST:PORT`.
    ///
    /// # Errors
    /// What is wrong with the address or the name.
    pub(super) fn new(address: &str, name: &str) -> Result<Self, String> {
        let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || name.len() > 40 || !name.chars().all(is_of_name) {
            return Err(format!(
                "{name:?} is no name of a control plane: 1 to 40 of a to z, 0 to 9 and '_'"
            ));
        }
        let (mut etcd, mut nats) = (Vec::new(), Vec::new());
        let mut is_nats = false;
        for part in address.split(',') {
            let host = match (part.strip_prefix(ETCD), part.strip_prefix(NATS)) {
                (Some(host), _) => {
                    is_nats = false;
                    host
                }
                (None, Some(host)) => {
                    is_nats = true;
                    host
                }
                (None, None) if etcd.is_empty() && nats.is_empty() => {
                    return Err(format!("{part:?} begins with neither {ETCD} nor {NATS}"));
                }
                (None, None) => part,
            };
            match is_nats {
                true => nats.push(local(host, 4222)?),
                false => etcd.push(local(host, 2379)?),
            }
        }
        if nats.is_empty() {
            return Err(missing(NATS, "the log of tasks lies in NATS JetStream"));
        }
        if etcd.is_empty() {
            return Err(missing(ETCD, "who leads is asked of etcd"));
        }
        Ok(Self { etcd, nats, name: name.to_owned() })
    }
}

fn missing(scheme: &str, why: &str) -> String {
    format!("{scheme}HOST:PORT is missing in it: {why}; expected {ETCD}HOST:PORT,{NATS}HOST:PORT")
}

/// `HOST:PORT` of this machine. Certificates, and with them other hosts, would be taken here.
fn local(host: &str, port: u16) -> Result<String, String> {
    if let Ok(addr) = host.parse::<SocketAddr>() {
        return reached(addr.ip(), host).map(|()| host.to_owned());
    }
    if let Ok(addr) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return reached(addr, host).map(|()| SocketAddr::new(addr, port).to_string());
    }
    let (name, given) = match host.split_once(':') {
        Some((name, given)) => (name, given.parse().ok()),
        None => (host, Some(port)),
    };
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    match given {
        Some(port) if name == "localhost" => Ok(format!("localhost:{port}")),
        Some(_) if !name.is_empty() && name.chars().all(is_of_name) => Err(remote(host)),
        _ => {
            Err("it is no address of an engine: expected HOST:PORT, without user or path"
                .to_owned())
        }
    }
}

fn reached(addr: IpAddr, host: &str) -> Result<(), String> {
    if addr.is_loopback() { Ok(()) } else { Err(remote(host)) }
}

fn remote(host: &str) -> String {
    format!(
        "{host} is reached over the network, where whoever is on it reads along: use an address of this \
         machine, such as the end of a tunnel"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_are_found_in_any_order() {
        let expected = Pair {
            etcd: vec!["127.0.0.1:2379".into(), "localhost:2380".into()],
            nats: vec!["[::1]:4222".into(), "127.0.0.2:4223".into()],
            name: "a_1".into(),
        };
        for address in [
            "etcd://127.0.0.1,localhost:2380,nats://[::1],127.0.0.2:4223",
            "nats://[::1]:4222,127.0.0.2:4223,etcd://127.0.0.1:2379,etcd://localhost:2380",
        ] {
            assert!(Pair::is_meant(address));
            assert_eq!(Pair::new(address, "a_1"), Ok(expected.clone()), "{address}");
        }
        assert!(!Pair::is_meant("postgres://localhost/x"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (address, part) in [
            ("etcd://localhost:1", "nats://HOST:PORT is missing"),
            ("nats://localhost:1", "etcd://HOST:PORT is missing"),
            ("etcd:localhost:1", "neither etcd:// nor nats://"),
            ("etcd://10.0.0.5:1,nats://localhost", "10.0.0.5:1 is reached over the network"),
            ("etcd://localhost,nats://[fe80::1]:1", "reached over the network"),
            ("etcd://localhost,nats://box", "box is reached over the network"),
            ("etcd://,nats://localhost", "no address of an engine"),
            ("etcd://localhost:x,nats://localhost", "no address of an engine"),
            ("etcd://me:secret@localhost:1,nats://localhost", "no address of an engine"),
            ("etcd://localhost,,nats://localhost", "no address of an engine"),
        ] {
            let error = Pair::new(address, "a").expect_err(address);
            assert!(error.contains(part) && !error.contains("secret"), "{error}");
            if Pair::is_meant(address) {
                let refused = crate::Control::new(address, "a").expect_err(address);
                assert!(matches!(refused, crate::Error::Control { .. }), "{refused}");
            }
        }
        for name in ["", "A", "a-b", "a.b", &"a".repeat(41)] {
            let error = Pair::new("etcd://localhost,nats://localhost", name).expect_err(name);
            assert!(error.contains("no name of a control plane"), "{error}");
        }
    }
}
