//! The parts of a database's address. The encryption parameters are parsed here, because the client
//! crate knows no certificates. Messages never repeat a part of an address that may belong to a
//! password.

use crate::control::address::{NAMES, Said, over_network, shown};
use crate::control::tls::Tls;
use postgres::config::{Config, Host, SslMode};

/// The other parameters that an address may have.
const KNOWN: [&str; 19] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
    "require_auth",
];
const FORM: &str = "expected postgres://USER:PASSWORD@HOST/NAME, with %40 for an @ in the password";

/// Parses an address.
///
/// # Errors
/// What is wrong with the address, and what to write instead: remote hosts require an encrypted
/// connection and a check of the server's certificate and name.
pub(super) fn parse(text: &str) -> Result<(Config, Option<Tls>), String> {
    let (said, rest) = split(text)?;
    let unusable = |error: postgres::Error| {
        let why =
            std::error::Error::source(&error).map_or_else(String::new, |it| format!(": {it}"));
        format!("it is no address of a database{why}; {FORM}")
    };
    let mut config: Config = rest.parse().map_err(unusable)?;
    if config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(name) if name.contains('@'))) {
        return Err(format!("it is no address of a database: it has more than one @; {FORM}"));
    }
    let tls = encryption(said, &mut config)?;
    match remote(&config) {
        Some(host) if tls.is_none() => {
            Err(over_network(&host, "a socket or an address of this machine"))
        }
        _ => Ok((config, tls)),
    }
}

/// Splits the encryption parameters off an address.
fn split(text: &str) -> Result<(Said, String), String> {
    let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
    if !is_url {
        return Err(format!("it is no address of a database: {FORM}"));
    }
    // The client crate takes everything up to the first @ as user and password.
    let from = text.find('@').unwrap_or(0);
    let query = text.get(from..).and_then(|tail| tail.find('?')).map(|at| from + at);
    let Some((base, query)) = query.and_then(|at| text.split_at_checked(at)) else {
        return Ok((Said::default(), text.to_owned()));
    };
    let (mut said, mut others) = (Said::default(), Vec::new());
    let pairs = query.trim_start_matches('?').split('&').filter(|pair| !pair.is_empty());
    for pair in pairs {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if said.take(name, value)? {
            continue;
        }
        if !KNOWN.contains(&name) {
            return Err(format!(
                "it says {}, which is not known, expected one of {NAMES}, {}",
                shown(name),
                KNOWN.join(", ")
            ));
        }
        others.push(pair);
    }
    let rest = match others.is_empty() {
        true => base.to_owned(),
        false => format!("{base}?{}", others.join("&")),
    };
    Ok((said, rest))
}

fn encryption(said: Said, config: &mut Config) -> Result<Option<Tls>, String> {
    let is_socket = |host: &Host| matches!(host, Host::Unix(_));
    if said.is_encrypted() && config.get_hosts().iter().any(is_socket) {
        return Err("a socket of this machine is not encrypted: leave sslmode out".to_owned());
    }
    let tls = said.tls()?;
    if tls.is_some() {
        config.ssl_mode(SslMode::Require);
    }
    Ok(tls)
}

/// A host that is not this machine.
fn remote(config: &Config) -> Option<String> {
    let addresses = config.get_hostaddrs().iter().filter(|addr| !addr.is_loopback());
    let hosts = config.get_hosts().iter().filter_map(|host| match host {
        Host::Tcp(name) => {
            let is_own = name.parse().is_ok_and(|addr: std::net::IpAddr| addr.is_loopback());
            (!is_own && name != "localhost").then(|| name.clone())
        }
        Host::Unix(_) => None,
    });
    hosts.chain(addresses.map(ToString::to_string)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_safe_is_refused_with_what_to_write() {
        let at = "postgres://u:s3cret@10.0.0.5/db";
        for (tail, part) in [
            ("", "10.0.0.5 is reached over the network"),
            ("?sslmode=prefer", "add ?sslmode=verify-full"),
            ("?sslmode=disable", "10.0.0.5 is reached over the network"),
            ("?sslmode=require", "can answer in the server's place"),
            ("?sslmode=verify-ca&sslrootcert=x", "any server that the authority knows"),
            ("?sslmode=s3cret", "its sslmode is not known"),
            ("?sslrootcert=/ca.pem", "has sslrootcert and sslmode=prefer"),
            (
                "?sslmode=verify-full&sslrootcert=/nowhere/ca.pem",
                "sslrootcert names /nowhere/ca.pem",
            ),
            ("?sslmode=verify-full&sslcert=/c.pem", "no sslkey"),
            ("?sslmode=verify-full&sslkey=/k.pem", "no sslcert"),
            ("?sslmode=verify-full&sslrootcert=%2", "two hexadecimal digits"),
            ("?sslfoo=1", "it says sslfoo, which is not known"),
            ("?S3CRET", "it says what comes after its ?, which is not known"),
        ] {
            let error = parse(&format!("{at}{tail}")).expect_err(tail);
            assert!(error.contains(part) && !error.to_lowercase().contains("s3cret"), "{error}");
        }
        for address in ["user=u password=s3cret host=localhost", "postgres://u:s3@cret@localhost/x"]
        {
            let error = parse(address).expect_err("refused");
            assert!(error.contains("expected postgres://") && !error.contains("cret"), "{error}");
        }
        let socket = parse("postgres://u@%2Ftmp/db?sslmode=verify-full").expect_err("refused");
        assert!(socket.contains("leave sslmode out"), "{socket}");
    }

    #[test]
    fn what_is_said_is_taken() {
        let (config, tls) =
            parse("postgres://u:p%40ss@localhost/db?connect_timeout=3").expect("good");
        assert!(tls.is_none() && config.get_password() == Some(b"p@ss"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c a.pem");
        let key = rcgen::KeyPair::generate().expect("random numbers");
        let made = rcgen::CertificateParams::new(vec!["x".to_owned()]).expect("a name");
        let made = made.self_signed(&key).expect("signed");
        std::fs::write(&path, made.pem()).expect("ours");
        let path = path.display().to_string().replace(' ', "%20").replace('/', "%2F");
        let address =
            format!("postgresql://u@db.example/db?sslmode=verify-full&sslrootcert={path}");
        let (config, tls) = parse(&address).expect("good");
        assert!(tls.is_some() && config.get_ssl_mode() == SslMode::Require);
    }
}
