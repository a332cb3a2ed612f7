//! A network of namespaces on one bridge, whose links can be cut pair by pair. Engines, and REST without TLS, accept
//! only loopback addresses, so each namespace has an address in 127.0.0.0/8 that is routed to the others. Where no link
//! is cut, these addresses suffice without namespaces.

use crate::chaos::process::signal;
use crate::chaos::world::disk::Disk;
use crate::{apt, cmd};
use anyhow::{Result, ensure};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A hardware address that no interface has.
const NOBODY: &str = "02:00:00:00:00:01";
/// The prefix of namespaces' names.
const PREFIX: &str = "lgpk";

/// Network namespaces, one for each simulated machine. Removed when dropped.
pub(crate) struct Net {
    /// Whether there are namespaces.
    apart: bool,
    /// The process id in the names.
    owner: u32,
    /// The third part of each address.
    number: u32,
    places: usize,
}

impl Net {
    /// # Errors
    /// When namespaces cannot be made.
    pub(super) fn new(places: usize) -> Result<Self> {
        apt::iproute()?;
        sweep()?;
        let net = Self { apart: true, places, ..Self::together() };
        let number = net.number;
        let bridge = net.bridge();
        let mut outside = format!(
            "link add {bridge} type bridge\naddr add 198.19.{number}.1/24 dev {bridge}\n\
             link set {bridge} up\n"
        );
        for at in 0..places {
            let name = net.name(at);
            ip(&["netns", "add", &name])?;
            // Writing to a string cannot fail.
            let _ = writeln!(
                outside,
                "link add {name} type veth peer name eth0 netns {name}\n\
                 link set {name} master {bridge}\nlink set {name} up"
            );
        }
        batch(&[], &outside)?;
        run(Command::new("sysctl").args(["-qw", &route_localnet(&bridge)]))?;
        batch(&[], &net.ways(None))?;
        for at in 0..places {
            let name = net.name(at);
            let own = net.addr(at);
            batch(
                &["-n", &name],
                &format!("addr add {own}/24 dev eth0\nlink set eth0 up\nlink set lo up\n"),
            )?;
            let mut inside = Command::new("ip");
            inside.args(["netns", "exec", &name, "sysctl", "-qw", &route_localnet("all")]);
            run(&mut inside)?;
            batch(&["-n", &name], &net.ways(Some(at)))?;
        }
        Ok(net)
    }

    /// No namespaces: all places are on this machine and its disk, each with an address.
    pub(crate) fn together() -> Self {
        let owner = std::process::id();
        Self { apart: false, owner, number: owner % 250 + 2, places: 0 }
    }

    /// Whether each place has its own namespace and its own small disk.
    pub(super) fn is_apart(&self) -> bool {
        self.apart
    }

    /// Routes to the loopback addresses of the namespaces, from one of them or from outside.
    fn ways(&self, from: Option<usize>) -> String {
        let source = from.map_or_else(|| format!("198.19.{}.1", self.number), |at| self.addr(at));
        let mut ways = String::new();
        for at in (0..self.places).filter(|at| Some(*at) != from) {
            let (there, via) = (self.local(at), self.addr(at));
            let _ = writeln!(ways, "route add {there} via {via} src {source} table local");
        }
        ways
    }

    /// The address of a place.
    pub(crate) fn addr(&self, at: usize) -> String {
        match self.apart {
            true => format!("198.19.{}.{}", self.number, 10 + at),
            false => self.local(at),
        }
    }

    /// A place's loopback address, which all others reach.
    pub(crate) fn local(&self, at: usize) -> String {
        format!("127.198.{}.{}", self.number, 10 + at)
    }

    /// A command that runs a program in a place, with the same process id.
    pub(super) fn command(&self, at: usize, through: &[&str]) -> Command {
        let mut command = cmd::command(if self.apart { "ip" } else { "env" });
        if self.apart {
            command.args(["netns", "exec", &self.name(at)]);
        }
        command.args(through);
        command
    }

    /// A folder for a place's files: a disk of its own in memory, or a folder on the real disk.
    pub(super) fn disk(&self, folder: PathBuf, size: &str) -> Result<Disk> {
        if self.apart { Disk::in_memory(folder, size) } else { Disk::shared(folder) }
    }

    /// Drops packets between two places: each gets a wrong hardware address for the other.
    pub(super) fn cut(&self, one: usize, other: usize) -> Result<()> {
        for (here, there) in [(one, other), (other, one)] {
            let (name, addr) = (self.name(here), self.addr(there));
            let wrong = ["lladdr", NOBODY, "nud", "permanent", "dev", "eth0"];
            ip(&[&["-n", &name, "neigh", "replace", &addr], &wrong[..]].concat())?;
        }
        Ok(())
    }

    /// Lets packets between two places through again.
    pub(super) fn heal(&self, one: usize, other: usize) -> Result<()> {
        for (here, there) in [(one, other), (other, one)] {
            ip(&["-n", &self.name(here), "neigh", "del", &self.addr(there), "dev", "eth0"])?;
        }
        Ok(())
    }

    fn bridge(&self) -> String {
        format!("{PREFIX}{}b", self.owner)
    }

    fn name(&self, at: usize) -> String {
        format!("{PREFIX}{}n{at}", self.owner)
    }

    /// Ignores parts that are not there.
    fn remove(&self) {
        let mut away = String::new();
        for at in 0..self.places {
            let _ = writeln!(away, "route del {} table local", self.local(at));
        }
        let _ = writeln!(away, "link del {}", self.bridge());
        let _ = batch(&["-force"], &away);
        for at in 0..self.places {
            let _ = ip(&["link", "del", &self.name(at)]);
            let _ = ip(&["netns", "del", &self.name(at)]);
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if self.apart {
            self.remove();
        }
    }
}

/// Removes the namespaces that killed runs left, with their processes.
fn sweep() -> Result<()> {
    let listed = cmd::capture(cmd::command("ip").args(["netns", "list"]))?;
    for name in listed.output.lines().filter_map(|line| line.split_whitespace().next()) {
        let Some(owner) = owner(name).filter(|pid| !Path::new("/proc").join(pid).exists()) else {
            continue;
        };
        let inside = cmd::capture(cmd::command("ip").args(["netns", "pids", name]))?;
        for pid in inside.output.split_whitespace() {
            signal(pid.parse()?, Signal::KILL);
        }
        let _ = ip(&["link", "del", name]);
        let _ = ip(&["link", "del", &format!("{PREFIX}{owner}b")]);
        ip(&["netns", "del", name])?;
    }
    Ok(())
}

/// The id of the process that made a namespace, if it is one of ours.
fn owner(name: &str) -> Option<&str> {
    let (pid, at) = name.strip_prefix(PREFIX)?.split_once('n')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    (is_number(pid) && is_number(at)).then_some(pid)
}

fn route_localnet(device: &str) -> String {
    format!("net.ipv4.conf.{device}.route_localnet=1")
}

fn ip(arguments: &[&str]) -> Result<()> {
    run(cmd::command("ip").args(arguments))
}

/// Many commands at once.
fn batch(arguments: &[&str], commands: &str) -> Result<()> {
    let mut file =
        std::fs::File::from(rustix::fs::memfd_create("ip", rustix::fs::MemfdFlags::empty())?);
    file.write_all(commands.as_bytes())?;
    file.rewind()?;
    run(cmd::command("ip").args(arguments).args(["-batch", "-"]).stdin(file))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", cmd::line(command), said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn the_owner_of_a_namespace_is_read_from_its_name_and_of_nothing_else() {
        assert_eq!(owner("lgpk123n4"), Some("123"));
        for other in ["lgpk123", "lgpk123b", "lgpkn1", "lgpk12xn1", "lgp1234", ""] {
            assert_eq!(owner(other), None, "{other}");
        }
    }
}
