//! Finds the account behind a local listener: a key of the data folder goes only to the folder's own coordinator,
//! whatever address the folder names.

use crate::failure::{Failure, Result};
use crate::folder;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use ureq::http::Uri;

/// The system's tables of sockets.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// A socket that listens, in these.
const LISTENS: &str = "0A";
/// The account with all rights anyway.
const ROOT: u32 = 0;

/// Refuses the address of a data folder's coordinator where another account listens there.
///
/// # Errors
/// `not_the_owners`, and `not_running` where no process listens.
pub(crate) fn check(url: &str, data: &Path) -> Result<()> {
    let Some(addr) = address(url) else { return Ok(()) };
    match find(addr, std::fs::read_to_string)? {
        Some(found) => {
            let own = rustix::process::geteuid().as_raw();
            refuse_others(&found, folder::owner(data)?, own, url, data)
        }
        // Without these tables, the lock alone tells the owner.
        None => Ok(()),
    }
}

/// The accounts of the listeners at an address, if a table can be read.
fn find(
    addr: SocketAddr,
    read: impl Fn(&'static str) -> std::io::Result<String>,
) -> Result<Option<Vec<u32>>> {
    let mut found = None;
    for table in TABLES {
        match read(table) {
            Ok(text) => found.get_or_insert_with(Vec::new).extend(listeners(&text, addr)),
            // Some sandboxes keep them from programs.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {}
            Err(error) => return Err(Failure::file("read", Path::new(table), &error)),
        }
    }
    Ok(found)
}

/// Processes of this process's `own` account pass as the owner's. Network and container file systems map accounts, so
/// the lock's `owner` may be an account that runs no process.
fn refuse_others(found: &[u32], owner: u32, own: u32, url: &str, data: &Path) -> Result<()> {
    if found.is_empty() {
        return Err(folder::not_running(data));
    }
    match found.iter().find(|account| ![owner, own, ROOT].contains(account)) {
        None => Ok(()),
        Some(other) => {
            let message = format!(
                "the server at {url} is run by account {other}, expected {owner}, whose data folder names it; it \
                 was told nothing"
            );
            let hint = "its coordinator has ended, and another program has taken its address: see whose \
                        account that is, then run radeon-cluster start again";
            Err(Failure::new("not_the_owners", message).hint(hint))
        }
    }
}

/// The address in `http://ADDRESS:PORT`.
fn address(url: &str) -> Option<SocketAddr> {
    let uri: Uri = url.parse().ok()?;
    uri.authority()?.as_str().parse().ok()
}

/// The accounts of the sockets in one table that listen at an address.
fn listeners(table: &str, addr: SocketAddr) -> Vec<u32> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, state, account) = (fields.get(1)?, fields.get(3)?, fields.get(7)?);
        let (ip, port) = local.split_once(':')?;
        let ip = ip_of(ip)?;
        let is_there = ip.is_unspecified() || ip == addr.ip();
        let listens = *state == LISTENS && u16::from_str_radix(port, 16).ok()? == addr.port();
        (is_there && listens).then(|| account.parse().ok())?
    };
    // The first line holds the column names.
    table.lines().skip(1).filter_map(line).collect()
}

/// An address in the tables' form: groups of four bytes, each a number in this machine's byte order.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = hex.get(at..at + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let bytes = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            let ip = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?);
            Some(ip.to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_listener_is_found_with_its_account() {
        let account = rustix::process::geteuid().as_raw();
        for any in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            // Some machines have no IPv6.
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let port = listener.local_addr().expect("bound").port();
            let ip: IpAddr = match any.starts_with('[') {
                true => Ipv6Addr::LOCALHOST.into(),
                false => Ipv4Addr::LOCALHOST.into(),
            };
            let found = |port: u16| {
                let texts = TABLES.map(|table| std::fs::read_to_string(table).unwrap_or_default());
                let all = texts.iter().flat_map(|text| listeners(text, (ip, port).into()));
                all.collect::<Vec<u32>>()
            };
            assert_eq!(found(port), [account], "{any}");
            // A connection's port belongs to it alone, and has no listener.
            let stream = TcpStream::connect((ip, port)).expect("somebody listens");
            let port = stream.local_addr().expect("connected").port();
            assert_eq!(found(port), [0u32; 0], "{any}");
        }
    }

    #[test]
    fn tables_that_may_not_be_read_are_as_none() {
        let addr = "127.0.0.1:8000".parse().expect("an address");
        let find = |kind: ErrorKind| find(addr, |_| Err(kind.into()));
        for kind in [ErrorKind::NotFound, ErrorKind::PermissionDenied] {
            assert_eq!(find(kind).expect("none"), None, "{kind}");
        }
        find(ErrorKind::Other).expect_err("it is broken");
    }

    #[test]
    fn a_line_is_read_or_passed_over() {
        let line = |local: &str, state: &str| {
            format!("head\n 0: {local} 0:0 {state} 0:0 00:0 0 1001 0 17 1\nodd\n")
        };
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let (local, any) = (word([127, 0, 0, 1]), word([0; 4]));
        let mapped = ["00000000", "00000000", &word([0, 0, 255, 255]), &local].concat();
        let addr = "127.0.0.1:8000".parse().expect("an address");
        for (local, state, is_found) in [
            (format!("{local}:1F40"), "0A", true),
            (format!("{any}:1F40"), "0A", true),
            (format!("{mapped}:1F40"), "0A", true),
            (format!("{}:1F40", "0".repeat(32)), "0A", true),
            (format!("{local}:1F40"), "01", false),
            (format!("{local}:1F41"), "0A", false),
            (format!("{}:1F40", word([127, 0, 0, 2])), "0A", false),
            ("x:1F40".to_owned(), "0A", false),
        ] {
            let expected: &[u32] = if is_found { &[1001] } else { &[] };
            assert_eq!(listeners(&line(&local, state), addr), expected, "{local} {state}");
        }
    }

    #[test]
    fn a_server_of_another_account_is_told_nothing() {
        let data = Path::new("/data");
        let check = |found: &[u32]| refuse_others(found, 1000, 500, "http://127.0.0.1:1", data);
        for found in [&[1000][..], &[500], &[ROOT], &[1000, 500, ROOT]] {
            check(found).expect("the owner's");
        }
        for (found, code) in [(&[][..], "not_running"), (&[1001], "not_the_owners")] {
            assert_eq!(check(found).expect_err("nobody's").code, code);
        }
        assert_eq!(check(&[1000, 1001]).expect_err("one of others").code, "not_the_owners");
    }
}
