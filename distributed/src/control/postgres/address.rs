//! What the address of a database says. How the connection is encrypted is read here: the crate that
//! connects knows no certificates. Nothing of an address is repeated that may be part of a password.

use super::tls::Tls;
use postgres::config::{Config, Host, SslMode};
use std::path::PathBuf;

/// What else an address may say.
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

/// What is said of encryption.
#[derive(Debug, Default)]
struct Said {
    mode: Option<String>,
    authorities: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// Reads an address.
///
/// # Errors
/// What is wrong with it, and what to write instead: hosts other than this machine are reached only where
/// the connection is encrypted and the server's certificate is checked, with its name.
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
        Some(host) if tls.is_none() => Err(format!(
            "{host} is reached over the network, where whoever is on it reads along, and may answer in \
             its place: add ?sslmode=verify-full, and &sslrootcert=FILE with the authority of its \
             certificate unless this system knows that; or use a socket or an address of this machine, \
             such as the end of a tunnel"
        )),
        _ => Ok((config, tls)),
    }
}

/// Takes what is said of encryption out of an address.
fn split(text: &str) -> Result<(Said, String), String> {
    let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
    if !is_url {
        return Err(format!("it is no address of a database: {FORM}"));
    }
    // As the crate that connects sees it: up to the first @ all is user and password.
    let from = text.find('@').unwrap_or(0);
    let query = text.get(from..).and_then(|tail| tail.find('?')).map(|at| from + at);
    let Some((base, query)) = query.and_then(|at| text.split_at_checked(at)) else {
        return Ok((Said::default(), text.to_owned()));
    };
    let (mut said, mut others) = (Said::default(), Vec::new());
    let pairs = query.trim_start_matches('?').split('&').filter(|pair| !pair.is_empty());
    for pair in pairs {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let path = || decoded(value).map(|path| Some(PathBuf::from(path)));
        match name {
            "sslmode" => said.mode = Some(decoded(value)?),
            "sslrootcert" => said.authorities = path()?,
            "sslcert" => said.certificate = path()?,
            "sslkey" => said.key = path()?,
            name if KNOWN.contains(&name) => others.push(pair),
            name => {
                let is_name =
                    name.len() <= 32 && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'_'));
                let shown = if is_name { name } else { "what comes after its ?" };
                return Err(format!(
                    "it says {shown}, which is not known, expected one of sslmode, sslrootcert, \
                     sslcert, sslkey, {}",
                    KNOWN.join(", ")
                ));
            }
        }
    }
    let rest = match others.is_empty() {
        true => base.to_owned(),
        false => format!("{base}?{}", others.join("&")),
    };
    Ok((said, rest))
}

fn encryption(said: Said, config: &mut Config) -> Result<Option<Tls>, String> {
    let write = "write sslmode=verify-full, and sslrootcert=FILE with the authority of the server's \
                 certificate unless this system knows that";
    let mode = said.mode.as_deref().unwrap_or("prefer");
    match mode {
        "verify-full" => {}
        "disable" | "allow" | "prefer" => {
            let given = [
                ("sslrootcert", &said.authorities),
                ("sslcert", &said.certificate),
                ("sslkey", &said.key),
            ];
            return match given.iter().find(|(_, path)| path.is_some()) {
                Some((name, _)) => Err(format!(
                    "it has {name} and sslmode={mode}, with which nothing is checked: {write}"
                )),
                None => Ok(None),
            };
        }
        "require" => {
            return Err(format!(
                "sslmode=require encrypts, but whoever is on the way can answer in the server's \
                 place and read all the same: {write}"
            ));
        }
        "verify-ca" => {
            return Err(format!(
                "sslmode=verify-ca takes any server that the authority knows for this one: {write}"
            ));
        }
        _ => return Err(format!("its sslmode is not known, expected verify-full: {write}")),
    }
    let is_socket = |host: &Host| matches!(host, Host::Unix(_));
    if config.get_hosts().iter().any(is_socket) {
        return Err("a socket of this machine is not encrypted: leave sslmode out".to_owned());
    }
    let client = match (said.certificate, said.key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => return Err("it has sslcert, and no sslkey with its key".to_owned()),
        (None, Some(_)) => {
            return Err("it has sslkey, and no sslcert with its certificate".to_owned());
        }
    };
    config.ssl_mode(SslMode::Require);
    Tls::new(said.authorities.as_deref(), client).map(Some)
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

/// A value without its percent signs.
fn decoded(value: &str) -> Result<String, String> {
    let wrong = || "a % in it is not followed by two hexadecimal digits".to_owned();
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next().ok_or_else(wrong)?, rest.next().ok_or_else(wrong)?];
        bytes.extend(hex::decode(digits).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| "a value in it is not text".to_owned())
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
        assert_eq!(decoded("a%2Fb%20").as_deref(), Ok("a/b "));
    }
}
