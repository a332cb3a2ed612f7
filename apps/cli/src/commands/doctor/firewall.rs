//! Checks whether this machine's firewall blocks a UDP port, as far as its rules can be read.

mod firewalld;
mod nftables;

use lgp_hal::{Finding, Status as FindingStatus};
use std::io::ErrorKind;
use std::path::Path;

/// A firewall's verdict on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The firewall lets the port or everything in.
    Open,
    /// The firewall blocks by default, and no rule lets the port in.
    Closed,
    /// Only root can read the rules.
    Hidden,
    /// Its rules are of a kind that is not understood here.
    Unclear,
}

/// A kind of firewall.
struct Line {
    name: &'static str,
    /// `None` where it is off.
    verdict: fn(&Path, u16) -> Option<Verdict>,
    /// The command that lets a port in.
    fix: fn(u16) -> String,
}

const KINDS: &[Line] = &[
    Line { name: "ufw", verdict: ufw, fix: |port| format!("sudo ufw allow {port}/udp") },
    Line {
        name: "firewalld",
        verdict: firewalld::verdict,
        fix: |port| {
            format!(
                "sudo firewall-cmd --permanent --add-port={port}/udp && sudo firewall-cmd --reload"
            )
        },
    },
    Line {
        name: "nftables",
        verdict: nftables::verdict,
        fix: |port| format!("add to the chain of hook input: udp dport {port} accept"),
    },
];

/// The active firewall below a root. A manager of another firewall comes first and speaks for it.
pub(super) fn check(root: &Path, port: u16) -> Vec<Finding> {
    let found = KINDS.iter().find_map(|kind| Some((kind, (kind.verdict)(root, port)?)));
    let Some((kind, verdict)) = found else { return Vec::new() };
    let name = kind.name;
    let finding = |status, what: String| Finding::new("firewall", status, what);
    let elsewhere = |what: String| {
        let where_to = "by which workers join; doctor --server on a worker's machine tries it";
        finding(FindingStatus::Info, format!("{what}, {where_to}"))
    };
    vec![match verdict {
        Verdict::Open => {
            finding(FindingStatus::Ok, format!("{name} is on and lets UDP port {port} in"))
        }
        Verdict::Closed => {
            let what =
                format!("{name} is on, and no rule lets UDP port {port} in, by which workers join");
            finding(FindingStatus::Warn, what).fix((kind.fix)(port))
        }
        Verdict::Hidden => {
            elsewhere(format!("root alone can read whether {name} lets UDP port {port} in"))
        }
        Verdict::Unclear => elsewhere(format!(
            "{name} has rules of which it is not known whether they let UDP port {port} in"
        )),
    }]
}

fn read(path: &Path) -> Result<Option<String>, Verdict> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Verdict::Hidden),
        Err(_) => Ok(None),
    }
}

fn ufw(root: &Path, port: u16) -> Option<Verdict> {
    let is_on = |text: &str| text.lines().any(|line| line.trim() == "ENABLED=yes");
    read(&root.join("etc/ufw/ufw.conf")).ok().flatten().filter(|text| is_on(text))?;
    let defaults = read(&root.join("etc/default/ufw")).ok().flatten().unwrap_or_default();
    if defaults.contains("DEFAULT_INPUT_POLICY=\"ACCEPT\"") {
        return Some(Verdict::Open);
    }
    let rules = match read(&root.join("etc/ufw/user.rules")) {
        Ok(rules) => rules.unwrap_or_default(),
        Err(verdict) => return Some(verdict),
    };
    // `### tuple ### allow udp 8443 0.0.0.0/0 any 0.0.0.0/0 in`
    let lets = |line: &str| {
        let mut words = line.strip_prefix("### tuple ### allow ")?.split(' ');
        let (protocol, ports) = (words.next()?, words.next()?);
        let matches = ["udp", "any"].contains(&protocol) && (ports == "any" || names(ports, port));
        matches.then_some(())
    };
    Some(if rules.lines().any(|line| lets(line).is_some()) {
        Verdict::Open
    } else {
        Verdict::Closed
    })
}

/// Whether a list of ports and ranges has a port: `80,8000:8999` or `80, 8000-8999`.
fn names(list: &str, port: u16) -> bool {
    list.split(',').map(str::trim).any(|item| {
        let (first, last) = item.split_once([':', '-']).unwrap_or((item, item));
        match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&port),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(files: &[(&str, &str)]) -> Option<FindingStatus> {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("below the root")).expect("ours");
            std::fs::write(path, text).expect("ours");
        }
        let findings = check(root.path(), 8443);
        assert!(findings.iter().all(|it| it.fix.is_some() == (it.status == FindingStatus::Warn)));
        findings.first().map(|finding| finding.status)
    }

    #[test]
    fn ufw_is_read_from_its_files() {
        let on = ("etc/ufw/ufw.conf", "# x\nENABLED=yes\n");
        let rule = |rule| ("etc/ufw/user.rules", rule);
        let [warn, ok, info] =
            [FindingStatus::Warn, FindingStatus::Ok, FindingStatus::Info].map(Some);
        for (files, expected) in [
            (vec![], None),
            (vec![("etc/ufw/ufw.conf", "ENABLED=no\n")], None),
            (vec![on], warn),
            (vec![on, ("etc/default/ufw", "DEFAULT_INPUT_POLICY=\"ACCEPT\"\n")], ok),
            (vec![on, rule("### tuple ### allow udp 8443 0.0.0.0/0 any 0.0.0.0/0 in\n")], ok),
            (vec![on, rule("### tuple ### allow tcp 8443 0.0.0.0/0 any 0.0.0.0/0 in\n")], warn),
            (vec![on, rule("### tuple ### deny udp 8443 0.0.0.0/0 any 0.0.0.0/0 in\n")], warn),
            // A folder in the place of its settings.
            (vec![("run/firewalld.pid", "7"), ("etc/firewalld/firewalld.conf/x", "")], info),
            (vec![on, rule("### tuple ### allow any 8000:9000 0.0.0.0/0 any 0.0.0.0/0 in\n")], ok),
        ] {
            assert_eq!(say(&files), expected, "{files:?}");
        }
    }
}
