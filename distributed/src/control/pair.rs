//! The address of a control plane on two engines: etcd keeps the authority, NATS JetStream the log.
//! Messages never repeat a part of the address that may belong to a password.

use super::address::{NAMES, Said, decoded, over_network, shown};
use super::endpoints::{Account, Endpoints};
use std::net::{IpAddr, SocketAddr};

const ETCD: &str = "etcd://";
const NATS: &str = "nats://";
const FORM: &str = "expected etcd://USER:PASSWORD@HOST:PORT,nats://USER:PASSWORD@HOST:PORT, where users \
                    may be missing, with %40 for an @ in a password and %2C for a comma";

/// The two engines, and the cluster's name in both.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) etcd: Endpoints,
    pub(super) nats: Endpoints,
    pub(super) name: String,
}

impl Pair {
    /// Whether an address names these engines.
    pub(super) fn is_meant(address: &str) -> bool {
        ["etcd:", "nats:"].into_iter().any(|scheme| address.starts_with(scheme))
    }

    /// Parses `etcd://HOST:PORT,HOST:PORT,nats://HOST:PORT,HOST:PORT`, each engine with
    /// `USER:PASSWORD@` if it requires a login, and both with `?sslmode=verify-full` if they are on
    /// other machines. Files that the address names are read now.
    ///
    /// # Errors
    /// What is wrong with the address or the name, and what to write instead.
    pub(super) fn new(address: &str, name: &str) -> Result<Self, String> {
        let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || name.len() > 40 || !name.chars().all(is_of_name) {
            return Err(format!(
                "{name:?} is no name of a control plane: 1 to 40 of a to z, 0 to 9 and '_'"
            ));
        }
        let (servers, said) = split(address)?;
        let (mut etcd, mut nats) = (Endpoints::default(), Endpoints::default());
        let mut hosts = Vec::new();
        let mut is_nats = None;
        // Users come first: the text after them belongs to no password.
        for part in servers.split(',') {
            let rest = match (part.strip_prefix(ETCD), part.strip_prefix(NATS)) {
                (Some(rest), _) => {
                    is_nats = Some(false);
                    rest
                }
                (None, Some(rest)) => {
                    is_nats = Some(true);
                    rest
                }
                (None, None) if part.contains('@') => return Err(misplaced()),
                (None, None) => part,
            };
            let Some(is_nats) = is_nats else {
                return Err(format!("it begins with neither {ETCD} nor {NATS}: {FORM}"));
            };
            let engine = if is_nats { &mut nats } else { &mut etcd };
            hosts.push((is_nats, signed(rest, engine)?));
        }
        let tls = said.tls()?;
        for (is_nats, host) in hosts {
            let (host, is_own) = place(host, if is_nats { 4222 } else { 2379 })?;
            if !is_own && tls.is_none() {
                return Err(over_network(&host, "an address of this machine"));
            }
            let engine = if is_nats { &mut nats } else { &mut etcd };
            engine.hosts.push(host);
        }
        if nats.hosts.is_empty() {
            return Err(missing(NATS, "the log of tasks lies in NATS JetStream"));
        }
        if etcd.hosts.is_empty() {
            return Err(missing(ETCD, "who leads is asked of etcd"));
        }
        (etcd.tls, nats.tls) = (tls.clone(), tls);
        Ok(Self { etcd, nats, name: name.to_owned() })
    }
}

/// Splits the encryption parameters off an address.
fn split(address: &str) -> Result<(&str, Said), String> {
    let mut said = Said::default();
    // Everything up to the last @ may be users and passwords.
    let from = address.rfind('@').unwrap_or(0);
    let query = address.get(from..).and_then(|tail| tail.find('?')).map(|at| from + at);
    let Some((servers, query)) = query.and_then(|at| address.split_at_checked(at)) else {
        return Ok((address, said));
    };
    for pair in query.trim_start_matches('?').split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !said.take(name, value)? {
            let shown = shown(name);
            return Err(format!("it says {shown}, which is not known, expected one of {NAMES}"));
        }
    }
    Ok((servers, said))
}

/// Splits the user off a server, and stores the engine's account.
fn signed<'a>(server: &'a str, engine: &mut Endpoints) -> Result<&'a str, String> {
    let Some((user, host)) = server.split_once('@') else { return Ok(server) };
    let Some((user, password)) = user.split_once(':').filter(|_| !host.contains('@')) else {
        return Err(misplaced());
    };
    let account = Account { user: decoded(user)?, password: decoded(password)? };
    if account.user.is_empty() || account.password.is_empty() {
        return Err(format!("a user or a password in it is empty: {FORM}"));
    }
    if engine.account.as_ref().is_some_and(|other| *other != account) {
        return Err(format!("it names two users of one engine: {FORM}"));
    }
    engine.account = Some(account);
    Ok(host)
}

fn misplaced() -> String {
    format!("an @ in it does not stand between USER:PASSWORD and a host: {FORM}")
}

fn missing(scheme: &str, why: &str) -> String {
    format!("{scheme}HOST:PORT is missing in it: {why}; {FORM}")
}

/// `HOST:PORT`, and whether the host is this machine.
fn place(host: &str, port: u16) -> Result<(String, bool), String> {
    if let Ok(addr) = host.parse::<SocketAddr>() {
        return Ok((host.to_owned(), addr.ip().is_loopback()));
    }
    if let Ok(addr) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok((SocketAddr::new(addr, port).to_string(), addr.is_loopback()));
    }
    let (name, given) = match host.split_once(':') {
        Some((name, given)) => (name, given.parse().ok()),
        None => (host, Some(port)),
    };
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    match given {
        Some(port) if !name.is_empty() && name.chars().all(is_of_name) => {
            Ok((format!("{name}:{port}"), name == "localhost"))
        }
        _ => Err(format!("it is no address of an engine: {FORM}, and no path")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_are_found_in_any_order() {
        for address in [
            "etcd://127.0.0.1,localhost:2380,nats://[::1],127.0.0.2:4223",
            "nats://[::1]:4222,127.0.0.2:4223,etcd://127.0.0.1:2379,etcd://localhost:2380",
        ] {
            assert!(Pair::is_meant(address));
            let pair = Pair::new(address, "a_1").expect(address);
            assert_eq!(pair.etcd.hosts, ["127.0.0.1:2379", "localhost:2380"]);
            assert_eq!(pair.nats.hosts, ["[::1]:4222", "127.0.0.2:4223"]);
            assert!(pair.name == "a_1" && pair.etcd.account.is_none() && pair.nats.tls.is_none());
        }
        assert!(!Pair::is_meant("postgres://localhost/x"));
    }

    #[test]
    fn users_and_certificates_are_taken_and_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ca.pem");
        let key = rcgen::KeyPair::generate().expect("random numbers");
        let made = rcgen::CertificateParams::new(vec!["x".to_owned()]).expect("a name");
        std::fs::write(&path, made.self_signed(&key).expect("signed").pem()).expect("ours");
        let address = format!(
            "etcd://me:s3%40%2Ccret@10.0.0.5,box.lan:1,nats://you:s3?cr/et@[2001:db8::1]:4222\
             ?sslmode=verify-full&sslrootcert={}",
            path.display()
        );
        let pair = Pair::new(&address, "a").expect("good");
        assert_eq!(pair.etcd.hosts, ["10.0.0.5:2379", "box.lan:1"]);
        assert_eq!(pair.nats.hosts, ["[2001:db8::1]:4222"]);
        assert!(pair.etcd.tls.is_some() && pair.nats.tls.is_some());
        let accounts = [&pair.etcd.account, &pair.nats.account]
            .map(|it| it.as_ref().map(|it| (it.user.as_str(), it.password.as_str())));
        assert_eq!(accounts, [Some(("me", "s3@,cret")), Some(("you", "s3?cr/et"))]);
        let control = crate::Control::new(&address, "a").expect("good");
        let shown = format!("{pair:?} {control:?}");
        assert!(!shown.contains("s3") && !shown.contains("you"), "{shown}");
        let twice = Pair::new("etcd://a:b@[::1],etcd://a:b@localhost,nats://localhost", "a");
        assert_eq!(twice.expect("one user").etcd.hosts.len(), 2);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (address, part) in [
            ("etcd://localhost:1", "nats://HOST:PORT is missing"),
            ("nats://localhost:1", "etcd://HOST:PORT is missing"),
            ("etcd:localhost:1", "neither etcd:// nor nats://"),
            ("etcd:me:secret@localhost:1", "an @ in it"),
            ("etcd://10.0.0.5:1,nats://localhost", "10.0.0.5:1 is reached over the network"),
            ("etcd://localhost,nats://[fe80::1]:1", "add ?sslmode=verify-full"),
            ("etcd://localhost,nats://me:secret@box", "box:4222 is reached over the network"),
            ("etcd://localhost,nats://box?sslmode=prefer", "box:4222 is reached over the network"),
            ("etcd://localhost,nats://box?sslmode=require", "can answer in the server's place"),
            ("etcd://localhost,nats://box?sslcert=/x", "has sslcert and sslmode=prefer"),
            ("etcd://localhost,nats://box?sslfoo=1", "it says sslfoo, which is not known"),
            ("etcd://localhost,nats://box?SECRET", "it says what comes after its ?"),
            (
                "etcd://localhost,nats://box?sslmode=verify-full&sslrootcert=/nowhere/ca.pem",
                "sslrootcert names /nowhere/ca.pem",
            ),
            ("etcd://,nats://localhost", "no address of an engine"),
            ("etcd://localhost:x,nats://localhost", "no address of an engine"),
            ("etcd://localhost/secret,nats://localhost", "no address of an engine"),
            ("etcd://localhost,,nats://localhost", "no address of an engine"),
            ("etcd://secret@localhost,nats://localhost", "%40 for an @ in a password"),
            ("etcd://me:sec@ret@localhost,nats://localhost", "%40 for an @ in a password"),
            ("etcd://me:sec,ret@localhost,nats://localhost", "%2C for a comma"),
            ("etcd://me:1,secret@localhost,nats://localhost", "%2C for a comma"),
            ("etcd://me:@localhost,nats://localhost", "a password in it is empty"),
            ("etcd://me:%s3@localhost,nats://localhost", "two hexadecimal digits"),
            ("etcd://me:secret@[::1],etcd://me:2@[::1],nats://[::1]", "two users of one engine"),
        ] {
            let error = Pair::new(address, "a").expect_err(address);
            let lower = error.to_lowercase();
            let is_shown = ["cret", "sec", "ret,"].iter().any(|part| lower.contains(part));
            assert!(error.contains(part) && !is_shown, "{error}");
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
