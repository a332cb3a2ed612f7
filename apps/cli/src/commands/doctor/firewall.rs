//! Whether a firewall of this machine keeps others from a UDP port, as far as that can be read.

use lgp_sdk::{Finding, FindingStatus};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// What a firewall does with a port.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// It lets the port through, or everything.
    Open,
    /// It lets nothing in, and this port is in no rule.
    Closed,
    /// Its rules are for root to read.
    Unknown,
}

/// One way of having a firewall.
struct Line {
    name: &'static str,
    /// `None` where it is not on.
    verdict: fn(&Path, u16) -> Option<Verdict>,
    /// What lets a port in.
    fix: fn(u16) -> String,
}

const KINDS: &[Line] = &[
    Line { name: "ufw", verdict: ufw, fix: |port| format!("sudo ufw allow {port}/udp") },
    Line {
        name: "firewalld",
        verdict: firewalld,
        fix: |port| {
            format!(
                "sudo firewall-cmd --permanent --add-port={port}/udp && sudo firewall-cmd --reload"
            )
        },
    },
    Line {
        name: "nftables",
        verdict: nftables,
        fix: |port| format!("add to the chain of hook input: udp dport {port} accept"),
    },
];

/// The firewalls below a root that are on. What manages another one speaks for it.
pub(super) fn check(root: &Path, port: u16) -> Vec<Finding> {
    let found = KINDS.iter().find_map(|kind| Some((kind, (kind.verdict)(root, port)?)));
    let Some((kind, verdict)) = found else { return Vec::new() };
    let name = kind.name;
    let finding = |status, what: String| Finding::new("firewall", status, what);
    vec![match verdict {
        Verdict::Open => {
            finding(FindingStatus::Ok, format!("{name} is on and lets UDP port {port} in"))
        }
        Verdict::Closed => {
            let what =
                format!("{name} is on, and no rule lets UDP port {port} in, by which workers join");
            finding(FindingStatus::Warn, what).fix((kind.fix)(port))
        }
        Verdict::Unknown => {
            let what = format!(
                "root alone can read whether {name} lets UDP port {port} in, by which workers join; \
                 doctor --server on a worker's machine tries it"
            );
            finding(FindingStatus::Info, what).fix((kind.fix)(port))
        }
    }]
}

fn read(path: &Path) -> Result<Option<String>, Verdict> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Verdict::Unknown),
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

fn firewalld(root: &Path, port: u16) -> Option<Verdict> {
    if !root.join("run/firewalld.pid").exists() {
        return None;
    }
    let folder = root.join("etc/firewalld/zones");
    let zones = match std::fs::read_dir(&folder) {
        Ok(zones) => zones,
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(Verdict::Closed),
        Err(_) => return Some(Verdict::Unknown),
    };
    let mut texts = zones.flatten().filter_map(|zone| std::fs::read_to_string(zone.path()).ok());
    let lets = |line: &str| {
        let value = |key: &str| {
            line.split_once(&format!("{key}=\"")).and_then(|(_, rest)| rest.split('"').next())
        };
        line.contains("<port ")
            && value("protocol") == Some("udp")
            && value("port").is_some_and(|ports| names(ports, port))
    };
    let is_open = texts.any(|text| text.lines().any(lets));
    Some(if is_open { Verdict::Open } else { Verdict::Closed })
}

fn nftables(root: &Path, port: u16) -> Option<Verdict> {
    // The rules are the kernel's, and not those of a tree.
    if root != Path::new("/") {
        return None;
    }
    let output = Command::new("nft").args(["list", "ruleset"]).output().ok()?;
    match output.status.success() {
        true => ruleset(&String::from_utf8_lossy(&output.stdout), port),
        false => Some(Verdict::Unknown),
    }
}

/// What the rules of the kernel do, as `nft list ruleset` prints them.
fn ruleset(text: &str, port: u16) -> Option<Verdict> {
    let drops =
        text.lines().any(|line| line.contains("hook input") && line.contains("policy drop"));
    if !drops {
        return None;
    }
    let lets = |line: &str| {
        let ports = line.split_once("udp dport ").map(|(_, rest)| rest)?;
        let ports = match ports.strip_prefix("{") {
            Some(set) => set.split('}').next()?,
            None => ports.split(' ').next()?,
        };
        (line.contains("accept") && names(ports, port)).then_some(())
    };
    Some(match text.lines().any(|line| lets(line).is_some()) {
        true => Verdict::Open,
        false => Verdict::Closed,
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
        assert!(findings.iter().all(|it| it.fix.is_some() == (it.status != FindingStatus::Ok)));
        findings.first().map(|finding| finding.status)
    }

    #[test]
    fn firewalls_are_read_from_their_files() {
        let on = ("etc/ufw/ufw.conf", "# x\nENABLED=yes\n");
        let rule = |rule| ("etc/ufw/user.rules", rule);
        let running = ("run/firewalld.pid", "7");
        let zone = |text| ("etc/firewalld/zones/public.xml", text);
        let (warn, ok) = (Some(FindingStatus::Warn), Some(FindingStatus::Ok));
        for (files, expected) in [
            (vec![], None),
            (vec![("etc/ufw/ufw.conf", "ENABLED=no\n")], None),
            (vec![on], warn),
            (vec![on, ("etc/default/ufw", "DEFAULT_INPUT_POLICY=\"ACCEPT\"\n")], ok),
            (vec![on, rule("### tuple ### allow udp 8443 0.0.0.0/0 any 0.0.0.0/0 in\n")], ok),
            (vec![on, rule("### tuple ### allow tcp 8443 0.0.0.0/0 any 0.0.0.0/0 in\n")], warn),
            (vec![on, rule("### tuple ### deny udp 8443 0.0.0.0/0 any 0.0.0.0/0 in\n")], warn),
            (vec![on, rule("### tuple ### allow any 8000:9000 0.0.0.0/0 any 0.0.0.0/0 in\n")], ok),
            (vec![running], warn),
            (vec![zone("<port protocol=\"udp\" port=\"8443\"/>")], None),
            (vec![running, zone("<zone>\n  <port protocol=\"udp\" port=\"8443\"/>\n")], ok),
            (vec![running, zone("<zone>\n  <port port=\"8000-9000\" protocol=\"udp\"/>\n")], ok),
            (vec![running, zone("<zone>\n  <port protocol=\"tcp\" port=\"8443\"/>\n")], warn),
        ] {
            assert_eq!(say(&files), expected, "{files:?}");
        }
    }

    #[test]
    fn rules_of_the_kernel_are_read() {
        let chain = |policy: &str, rule: &str| {
            format!(
                "table inet filter {{\n\tchain input {{\n\t\ttype filter hook input priority filter; policy {policy};\n\t\t{rule}\n\t}}\n}}\n"
            )
        };
        for (policy, rule, expected) in [
            ("accept", "", None),
            ("drop", "tcp dport 8443 accept", Some(Verdict::Closed)),
            ("drop", "udp dport 8443 accept", Some(Verdict::Open)),
            ("drop", "udp dport 8443 drop", Some(Verdict::Closed)),
            (
                "drop",
                "udp dport { 53, 8000-9000 } counter packets 0 bytes 0 accept",
                Some(Verdict::Open),
            ),
            ("drop", "meta l4proto udp udp dport 8442 accept", Some(Verdict::Closed)),
        ] {
            assert_eq!(ruleset(&chain(policy, rule), 8443), expected, "{policy} {rule}");
        }
        assert_eq!(ruleset("", 8443), None);
    }
}
