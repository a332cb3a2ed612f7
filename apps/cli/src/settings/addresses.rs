//! Parses addresses to listen on.

use serde::{Deserialize, Deserializer};
use std::net::{SocketAddr, ToSocketAddrs};

/// An address and a port, or a local host name and a port: `127.0.0.1:8000`, `[::1]:0`, `localhost:0`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(addr) = text.parse() {
        return Ok(addr);
    }
    let found = text.to_socket_addrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    // A name may have both versions; users who give none expect IPv4.
    let old = found.iter().find(|addr| addr.is_ipv4()).or(found.first());
    old.copied().ok_or_else(|| {
        format!("'{text}' is not an address, expected ADDRESS:PORT such as 127.0.0.1:8000")
    })
}

/// As [`address`], from a settings file or the environment.
pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    address(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// As [`read`], for an optional address.
pub(super) fn read_some<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| address(&text).map_err(serde::de::Error::custom)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_addresses() {
        for (text, expected) in [
            ("127.0.0.1:8000", Some("127.0.0.1:8000")),
            ("[::1]:0", Some("[::1]:0")),
            ("localhost:0", Some("127.0.0.1:0")),
            ("localhost", None),
            ("nowhere", None),
            ("127.0.0.1", None),
            ("", None),
        ] {
            let found = address(text).ok().map(|addr| addr.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
