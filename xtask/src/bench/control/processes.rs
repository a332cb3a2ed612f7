//! Processor time and memory of processes, by /proc.

use anyhow::{Context, Result};
use std::collections::BTreeMap;

/// Clock ticks a second in /proc, a fixed value on Linux.
const TICKS: f64 = 100.0;

/// Seconds of processor time of processes so far, optionally with their descendants.
pub(super) fn cpu_seconds(roots: &[u32], with_children: bool) -> Result<f64> {
    let all = table()?;
    let ticks = |pid: &u32| all.get(pid).map_or(0, |process| process.ticks);
    let family = if with_children { family(&all, roots) } else { roots.to_vec() };
    Ok(family.iter().map(ticks).sum::<u64>() as f64 / TICKS)
}

/// Bytes of memory of processes and their descendants; shared memory counts once.
pub(super) fn memory_bytes(roots: &[u32]) -> Result<f64> {
    let mut kilobytes = 0;
    for pid in family(&table()?, roots) {
        // It may have ended meanwhile.
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
        let pss = rollup.unwrap_or_default();
        let pss = pss.lines().find_map(|line| line.strip_prefix("Pss:"));
        let number = pss.and_then(|pss| pss.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes += number.unwrap_or_default();
    }
    Ok(kilobytes as f64 * 1024.0)
}

struct Process {
    parent: u32,
    ticks: u64,
}

fn table() -> Result<BTreeMap<u32, Process>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").context("there is no /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name in brackets may contain anything.
        if let Some(process) = stat.rsplit_once(") ").and_then(|(_, rest)| read(rest)) {
            all.insert(pid, process);
        }
    }
    Ok(all)
}

/// Parses the fields after a process's name.
fn read(rest: &str) -> Option<Process> {
    let fields: Vec<&str> = rest.split(' ').collect();
    // User and system time, also of ended children.
    let ticks =
        fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<_>>();
    Some(Process { parent: fields.get(1)?.parse().ok()?, ticks: ticks? })
}

/// The processes and all their descendants.
fn family(all: &BTreeMap<u32, Process>, roots: &[u32]) -> Vec<u32> {
    let mut found = roots.to_vec();
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(all.iter().filter(|(_, it)| it.parent == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd;

    #[test]
    fn a_process_and_its_children_are_found() {
        let own = std::process::id();
        let mut child = cmd::command("sleep").arg("60").spawn().expect("it starts");
        let all = table().expect("on Linux");
        let found = family(&all, &[own]);
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
        assert!(found.contains(&own) && found.contains(&child.id()), "{found:?}");
        assert!(memory_bytes(&[own]).expect("on Linux") > 1e5);
        assert!(cpu_seconds(&[own], true).expect("on Linux") >= 0.0);
    }

    #[test]
    fn fields_after_a_name_are_read_and_others_are_not() {
        let process = read("S 7 1 1 0 -1 4 9 9 9 9 5 6 70 80 20 0").expect("it is one");
        assert_eq!((process.parent, process.ticks), (7, 161));
        assert!(read("S 7 1 1").is_none());
    }
}
