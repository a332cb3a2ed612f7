//! A machine in a network namespace of its own, whose link to the coordinator can be cut in one direction or both. A
//! cut in one direction needs no packet filter: the sender gets a wrong hardware address for the receiver, which
//! silently drops the packets.

use crate::chaos::process;
use crate::report::Skip;
use crate::{apt, cmd};
use anyhow::{Result, ensure};
use rustix::process::Signal;
use std::net::IpAddr;
use std::path::Path;

/// A hardware address that no interface has.
const NOBODY: &str = "02:00:00:00:00:01";

/// The prefix of namespaces' names; the id of the maker's process and a digit follow.
const PREFIX: &str = "lgp";

/// The direction in which datagrams are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chaos) enum Direction {
    Both,
    ToWorker,
    ToCoordinator,
}

/// A network namespace with one link. Dropping it removes both.
pub(in crate::chaos) struct Island {
    /// The name of the namespace and of the link's outer end.
    name: String,
    /// The link's end inside.
    inner: String,
    /// The addresses of the outer and of the inner end.
    pub(in crate::chaos) host: IpAddr,
    own: IpAddr,
}

/// Makes islands; the error says why none can be made.
pub(in crate::chaos) fn some(count: u8) -> Result<Vec<Island>, Skip> {
    let made = apt::iproute().and_then(|()| sweep());
    let islands = made.and_then(|()| (1..=count).map(Island::new).collect());
    islands.map_err(|error: anyhow::Error| {
        Skip::new("netns", format!("no network namespaces with links: {error:#}"))
    })
}

/// Removes the islands that killed runs left, because new islands use the same addresses.
fn sweep() -> Result<()> {
    let listed = output(&["netns", "list"])?;
    for name in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        if owner(name).is_none_or(|pid| Path::new("/proc").join(pid).exists()) {
            continue;
        }
        for pid in output(&["netns", "pids", name])?.split_whitespace() {
            process::signal(pid.parse()?, Signal::KILL);
        }
        let _ = ip(&["link", "del", name]);
        ip(&["netns", "del", name])?;
    }
    Ok(())
}

/// The process that made a namespace, if it is an island's.
fn owner(name: &str) -> Option<&str> {
    let digits = name.strip_prefix(PREFIX)?;
    let (pid, _) = digits.split_at_checked(digits.len().checked_sub(1)?)?;
    (!pid.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(pid)
}

impl Island {
    fn new(number: u8) -> Result<Self> {
        let name = format!("{PREFIX}{}{number}", std::process::id());
        let inner = format!("{name}i");
        // Addresses reserved for benchmarks (RFC 2544), so that no real ones are hidden.
        let [host, own] = [1, 2].map(|end| IpAddr::from([198, 18, number, end]));
        ip(&["netns", "add", &name])?;
        let island = Self { name, inner, host, own };
        let (name, inner) = (island.name.as_str(), island.inner.as_str());
        ip(&["link", "add", name, "type", "veth", "peer", "name", inner])?;
        ip(&["link", "set", inner, "netns", name])?;
        ip(&["addr", "add", &format!("{host}/30"), "dev", name])?;
        ip(&["link", "set", name, "up"])?;
        ip(&["-n", name, "addr", "add", &format!("{own}/30"), "dev", inner])?;
        ip(&["-n", name, "link", "set", inner, "up"])?;
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        Ok(island)
    }

    /// The command prefix that runs a program on the island.
    pub(in crate::chaos) fn through(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(str::to_owned).to_vec()
    }

    /// Drops packets in one direction or both, until [`Island::heal`].
    pub(in crate::chaos) fn cut(&self, direction: Direction) -> Result<()> {
        let wrong = ["lladdr", NOBODY, "nud", "permanent", "dev"];
        let (host, own) = (self.host.to_string(), self.own.to_string());
        match direction {
            Direction::Both => ip(&["link", "set", &self.name, "down"]),
            Direction::ToWorker => {
                ip(&[&["neigh", "replace", &own], &wrong[..], &[&self.name]].concat())
            }
            Direction::ToCoordinator => {
                let there = ["-n", &self.name, "neigh", "replace", &host];
                ip(&[&there, &wrong[..], &[&self.inner]].concat())
            }
        }
    }

    /// Lets all packets through again.
    pub(in crate::chaos) fn heal(&self) -> Result<()> {
        // There is no wrong address to remove where both directions or none were cut.
        let _ = ip(&["neigh", "del", &self.own.to_string(), "dev", &self.name]);
        let there = ["-n", &self.name, "neigh", "del", &self.host.to_string()];
        let _ = ip(&[&there, &["dev", &self.inner][..]].concat());
        ip(&["link", "set", &self.name, "up"])
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        // Removing the namespace removes both ends, unless the inner end never got there.
        let _ = ip(&["link", "del", &self.name]);
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    output(arguments).map(drop)
}

fn output(arguments: &[&str]) -> Result<String> {
    let finished = cmd::capture(cmd::command("ip").args(arguments))?;
    ensure!(finished.ok, "{}", finished.output.trim());
    Ok(finished.output)
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn the_owner_of_an_island_is_read_from_its_name_and_of_nothing_else() {
        assert_eq!(owner("lgp1234"), Some("123"));
        for other in ["lgp", "lgp1", "lgpx1", "lgp12x", "vpn12", ""] {
            assert_eq!(owner(other), None, "{other}");
        }
    }
}
