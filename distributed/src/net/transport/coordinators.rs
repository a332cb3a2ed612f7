//! Where the coordinators of a cluster listen.

use crate::error::{Error, Result};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// The port that coordinators listen on unless told otherwise.
const PORT: u16 = 8443;
/// Most coordinators that are tried.
const COORDINATORS_MAX: usize = 16;
/// Time for a name to be looked up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// RFC 1035, section 2.3.4.
const NAME_BYTES_MAX: usize = 253;

/// Where the coordinators of a cluster listen: addresses, and names of hosts, which are looked up
/// again after each round of failures. A worker serves every coordinator that it reaches; a caller
/// asks the first one that answers, in this order.
///
/// As text: `HOST[:PORT]`, several with commas between them; without a port, 8443.
///
/// ```
/// use lgp_distributed::Coordinators;
///
/// let coordinators: Coordinators = "10.0.0.1,render.lan:9000,[::1]:9001".parse()?;
/// assert_eq!(coordinators.to_string(), "10.0.0.1:8443,render.lan:9000,[::1]:9001");
/// # Ok::<(), lgp_distributed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinators(Vec<Place>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Addr(SocketAddr),
    Name(String, u16),
}

impl From<SocketAddr> for Coordinators {
    fn from(addr: SocketAddr) -> Self {
        Self(vec![Place::Addr(addr)])
    }
}

impl FromStr for Coordinators {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let places: Result<Vec<Place>> = text.split(',').map(str::parse).collect();
        let places = places?;
        if places.len() > COORDINATORS_MAX {
            return Err(no_place(text, "at most 16, with commas between them"));
        }
        Ok(Self(places))
    }
}

impl fmt::Display for Coordinators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, place) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match place {
                Place::Addr(addr) => write!(f, "{comma}{addr}")?,
                Place::Name(name, port) => write!(f, "{comma}{name}:{port}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let expected = "HOST or HOST:PORT";
        if let Ok(addr) = text.parse() {
            return Ok(Self::Addr(addr));
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::Addr(SocketAddr::new(ip, PORT)));
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| no_place(text, expected))?),
            None => (text, PORT),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
            return Err(no_place(text, expected));
        }
        Ok(Self::Name(name.to_owned(), port))
    }
}

fn no_place(text: &str, expected: &'static str) -> Error {
    let given = text.chars().take(64).collect();
    Error::Parse { what: "coordinator's address", given, expected }
}

impl Coordinators {
    /// Each coordinator by itself, without duplicates.
    pub(crate) fn each(&self) -> Vec<Self> {
        let mut each: Vec<Self> = Vec::new();
        for place in &self.0 {
            let one = Self(vec![place.clone()]);
            if !each.contains(&one) {
                each.push(one);
            }
        }
        each
    }

    /// Looks the names up.
    ///
    /// # Errors
    /// [`Error::UnknownHost`] where there is no address at all.
    pub(crate) async fn addrs(&self) -> Result<Vec<SocketAddr>> {
        let mut addrs = Vec::new();
        let mut unknown = None;
        for place in &self.0 {
            let (name, port) = match place {
                Place::Addr(addr) => {
                    addrs.push(*addr);
                    continue;
                }
                Place::Name(name, port) => (name, *port),
            };
            let looking = tokio::net::lookup_host((name.as_str(), port));
            let reason = match tokio::time::timeout(LOOKUP_TIMEOUT, looking).await {
                Ok(Ok(found)) => {
                    let before = addrs.len();
                    addrs.extend(found.take(COORDINATORS_MAX));
                    if addrs.len() > before {
                        continue;
                    }
                    "it has none".to_owned()
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer came within {LOOKUP_TIMEOUT:?}"),
            };
            tracing::debug!(%name, %reason, "a coordinator's name leads to no address");
            unknown.get_or_insert(Error::UnknownHost { name: name.clone(), reason });
        }
        let mut seen = std::collections::HashSet::new();
        addrs.retain(|addr| seen.insert(*addr));
        match unknown {
            Some(unknown) if addrs.is_empty() => Err(unknown),
            _ => Ok(addrs),
        }
    }

    /// The answer of the first coordinator that can be asked; if none can, the error. A refusal
    /// tells more than a coordinator that is not there.
    pub(crate) async fn ask<R, F: Future<Output = Result<R>>>(
        &self,
        ask: impl Fn(SocketAddr) -> F,
    ) -> Result<R> {
        let mut refused = None;
        let mut away = None;
        for addr in self.addrs().await? {
            match ask(addr).await {
                Ok(answer) => return Ok(answer),
                Err(error @ (Error::Unreachable { .. } | Error::Connection(_))) => {
                    away.get_or_insert(error);
                }
                Err(error) => {
                    refused.get_or_insert(error);
                }
            }
        }
        // There is an address, so there is a reason.
        Err(refused.or(away).unwrap_or(Error::Stopped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_as_people_write_them() {
        for (text, expected) in [
            ("10.0.0.1", "10.0.0.1:8443"),
            ("10.0.0.1:9", "10.0.0.1:9"),
            ("::1", "[::1]:8443"),
            ("[::1]:9,10.0.0.1:9,[::1]:9", "[::1]:9 10.0.0.1:9"),
        ] {
            let coordinators: Coordinators = text.parse().expect("addresses");
            let addrs = coordinators.addrs().await.expect("no names");
            let addrs: Vec<String> = addrs.iter().map(ToString::to_string).collect();
            assert_eq!(addrs.join(" "), expected);
            assert_eq!(
                coordinators.to_string().parse::<Coordinators>().expect("its own"),
                coordinators
            );
        }
        let many = vec!["10.0.0.1"; COORDINATORS_MAX + 1].join(",");
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for text in ["", "host:port", "a,,b", ":1", "no such host", "a/b", &many, &long] {
            let error = text.parse::<Coordinators>().expect_err(text);
            assert!(matches!(error, Error::Parse { .. }), "{error}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_nowhere_keeps_nobody_from_the_others() {
        let both: Coordinators = "nowhere.invalid,127.0.0.1:7".parse().expect("places");
        assert_eq!(both.addrs().await.expect("one"), ["127.0.0.1:7".parse().expect("an address")]);
        let nowhere: Coordinators = "nowhere.invalid".parse().expect("a place");
        let error = nowhere.addrs().await.expect_err("no address");
        assert!(matches!(error, Error::UnknownHost { .. }), "{error}");
    }

    #[tokio::test]
    async fn the_first_that_answers_is_asked_and_the_best_reason_is_told() {
        let three: Coordinators = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3".parse().expect("places");
        let away = || Error::Connection("away".into());
        let answer = three.ask(async |addr| match addr.port() {
            1 => Err(away()),
            port => Ok(port),
        });
        assert_eq!(answer.await.expect("the second"), 2);
        let refused = three.ask(async |addr| match addr.port() {
            2 => Err::<(), _>(Error::Draining),
            _ => Err(away()),
        });
        assert!(matches!(refused.await, Err(Error::Draining)));
        let gone = three.ask(async |_| Err::<(), _>(away()));
        assert!(matches!(gone.await, Err(Error::Connection(_))));
    }
}
