//! The kernel's own firewall rules for a port, as `nft` lists them.

use super::{Verdict, names};
use crate::output;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Statements that do not restrict which packets a rule matches. Extension expressions of other programs, limits and
/// verdict maps do restrict.
const PLAIN: [&str; 8] = ["accept", "drop", "reject", "jump", "goto", "return", "counter", "log"];
/// The depth to which calls between chains are followed; the kernel's limit is the same.
const DEPTH_MAX: usize = 16;

/// `None` where no rule could block the port.
pub(super) fn verdict(root: &Path, port: u16) -> Option<Verdict> {
    // The rules belong to the running kernel, not to another root folder.
    if root != Path::new("/") {
        return None;
    }
    let output = Command::new("nft").args(["--json", "list", "ruleset"]).output().ok()?;
    if !output.status.success() {
        // Without the kernel module there are no rules that this account could fail to see.
        return Path::new("/sys/module/nf_tables").exists().then_some(Verdict::Hidden);
    }
    let rules: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    rules.map_or(Some(Verdict::Unclear), |rules| ruleset(&rules, port))
}

/// The verdict of all input chains for IPv4; any of them can block a packet.
fn ruleset(rules: &Value, port: u16) -> Option<Verdict> {
    let all = output::array(&rules["nftables"]);
    let inputs = all.iter().map(|entry| &entry["chain"]).filter(|chain| {
        chain["hook"] == "input"
            && chain["type"] == "filter"
            && (chain["family"] == "inet" || chain["family"] == "ip")
    });
    let mut verdict = None;
    for chain in inputs {
        match follow(all, chain, port, DEPTH_MAX) {
            Flow::Decided(Verdict::Closed) => return Some(Verdict::Closed),
            Flow::Decided(Verdict::Open) => verdict = verdict.or(Some(Verdict::Open)),
            Flow::Decided(_) => verdict = Some(Verdict::Unclear),
            Flow::Ended if chain["policy"] == "drop" => return Some(Verdict::Closed),
            // No rule mentions the port.
            Flow::Ended => {}
        }
    }
    verdict
}

/// The outcome of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// A rule decides, or it is unclear whether one does.
    Decided(Verdict),
    /// No rule decides; the calling chain continues.
    Ended,
}

/// Follows the rules of a chain for the port.
fn follow(all: &[Value], chain: &Value, port: u16, depth: usize) -> Flow {
    let is_of = |rule: &&Value| {
        rule["family"] == chain["family"]
            && rule["table"] == chain["table"]
            && rule["chain"] == chain["name"]
    };
    for rule in all.iter().map(|entry| &entry["rule"]).filter(is_of) {
        let parts = output::array(&rule["expr"]);
        let matched = Matched::of(parts, port);
        let has = |verdict: &str| parts.iter().any(|part| part.get(verdict).is_some());
        let target = |verdict: &str| parts.iter().find_map(|part| part.get(verdict));
        let next = |to: &Value| {
            let chains = all.iter().map(|entry| &entry["chain"]);
            let mut chains = chains
                .filter(|it| it["family"] == chain["family"] && it["table"] == chain["table"]);
            match chains.find(|it| it["name"] == to["target"]).filter(|_| depth > 0) {
                Some(next) => follow(all, next, port, depth - 1),
                None => Flow::Decided(Verdict::Unclear),
            }
        };
        let flow = match matched {
            Matched::None => Flow::Ended,
            Matched::Unclear => Flow::Decided(Verdict::Unclear),
            _ if has("accept") => Flow::Decided(Verdict::Open),
            // Packets that the rule does not match may still come in.
            Matched::PortOfSome if has("drop") || has("reject") => Flow::Ended,
            Matched::PortOfSome if ["jump", "goto", "return"].into_iter().any(has) => {
                Flow::Decided(Verdict::Unclear)
            }
            _ if has("drop") || has("reject") => Flow::Decided(Verdict::Closed),
            _ if has("return") => return Flow::Ended,
            _ => match (target("jump"), target("goto")) {
                (Some(to), _) => next(to),
                // `goto` does not return.
                (None, Some(to)) => return next(to),
                (None, None) => Flow::Ended,
            },
        };
        if flow != Flow::Ended {
            return flow;
        }
    }
    Flow::Ended
}

/// The packets to the port that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Matched {
    /// Packets to any port.
    All,
    /// Packets to this port.
    Port,
    /// Packets to this port from some interfaces or addresses only.
    PortOfSome,
    /// Other packets only.
    None,
    /// It is unclear which.
    Unclear,
}

impl Matched {
    fn of(parts: &[Value], port: u16) -> Self {
        let (mut names_port, mut is_some) = (false, false);
        // A test that excludes the port decides, even beside unclear ones.
        let mut is_unclear = false;
        for part in parts {
            let Some(test) = part.get("match") else {
                is_unclear |= !PLAIN.iter().any(|name| part.get(name).is_some());
                continue;
            };
            let (left, right) = (&test["left"], &test["right"]);
            let is_equal = ["==", "in"].iter().any(|op| test["op"] == *op);
            let is_udp = || has(right, |it| it == "udp" || it == 17);
            match (&left["payload"]["field"], &left["payload"]["protocol"]) {
                (field, protocol) if field == "dport" && is_equal => {
                    if protocol != "udp" && protocol != "th" {
                        return Self::None;
                    }
                    let is_named = right.as_str().is_some_and(|set| set.starts_with('@'));
                    if !is_named && !has(right, |it| is_port(it, port)) {
                        return Self::None;
                    }
                    is_unclear |= is_named;
                    names_port = true;
                }
                (field, protocol) if field == "protocol" && protocol == "ip" && is_equal => {
                    if !is_udp() {
                        return Self::None;
                    }
                }
                _ if left["meta"]["key"] == "l4proto" && is_equal => {
                    if !is_udp() {
                        return Self::None;
                    }
                }
                // The first packet of a worker is of no connection yet.
                _ if left["ct"]["key"] == "state" && is_equal => {
                    if !has(right, |it| it == "new") {
                        return Self::None;
                    }
                }
                // Of several fields at once.
                _ if left.get("concat").is_some() => is_unclear = true,
                _ => is_some = true,
            }
        }
        match (names_port, is_some) {
            // As `iif lo`: not for workers of other machines, or not for all of them.
            (false, true) => Self::None,
            _ if is_unclear => Self::Unclear,
            (true, false) => Self::Port,
            (true, true) => Self::PortOfSome,
            (false, false) => Self::All,
        }
    }
}

/// Whether `is` holds for a value, or for an element of its set or list.
fn has(value: &Value, is: impl Fn(&Value) -> bool) -> bool {
    match value.get("set").unwrap_or(value) {
        Value::Array(all) => all.iter().any(is),
        one => is(one),
    }
}

fn is_port(value: &Value, port: u16) -> bool {
    match (value["range"].as_array().map(Vec::as_slice), value) {
        (Some([first, last]), _) => names(&format!("{first}-{last}"), port),
        (_, one) => names(&one.to_string(), port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(policy: &str, rules: Vec<Value>) -> Value {
        let of = |chain: &str, expr: Value| json!({"rule": {"family": "inet", "table": "filter", "chain": chain, "expr": expr}});
        let mut all = vec![
            json!({"metainfo": {"version": "1.0.6"}}),
            json!({"chain": {"family": "inet", "table": "filter", "name": "input", "type": "filter",
                "hook": "input", "prio": 0, "policy": policy}}),
            json!({"chain": {"family": "ip6", "table": "filter", "name": "input", "type": "filter",
                "hook": "input", "prio": 0, "policy": "drop"}}),
            json!({"chain": {"family": "inet", "table": "filter", "name": "open"}}),
            of("open", json!([dport(json!(8443)), {"accept": null}])),
            json!({"chain": {"family": "inet", "table": "filter", "name": "empty"}}),
            // Packets reach this chain only through a rule.
            json!({"chain": {"family": "inet", "table": "filter", "name": "unused"}}),
            of("unused", json!([dport(json!(8443)), {"accept": null}])),
        ];
        all.extend(rules.into_iter().map(|rule| of("input", rule)));
        json!({ "nftables": all })
    }

    fn dport(right: Value) -> Value {
        let left = json!({"payload": {"protocol": "udp", "field": "dport"}});
        json!({"match": {"op": "==", "left": left, "right": right}})
    }

    #[test]
    fn rules_decide_in_their_order() {
        let (accept, drop) = (json!({"accept": null}), json!({"drop": null}));
        let meta = |key: &str, right: Value| json!({"match": {"op": "==", "left": {"meta": {"key": key}}, "right": right}});
        let state = |right: Value| json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": right}});
        let tcp = json!({"match": {"op": "==",
            "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 8443}});
        let from = json!({"match": {"op": "==",
            "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "10.0.0.7"}});
        let counter = json!({"counter": {"packets": 0, "bytes": 0}});
        let set = json!({"set": [53, {"range": [8000, 9000]}]});
        let [open, closed, unclear] = [Verdict::Open, Verdict::Closed, Verdict::Unclear].map(Some);
        for (policy, rules, expected) in [
            ("accept", vec![], None),
            ("drop", vec![], closed),
            ("drop", vec![json!([tcp, accept])], closed),
            ("drop", vec![json!([dport(json!(8443)), accept])], open),
            ("drop", vec![json!([dport(set), counter, accept])], open),
            ("drop", vec![json!([dport(json!(8442)), accept])], closed),
            ("drop", vec![json!([dport(json!(8443)), drop])], closed),
            ("drop", vec![json!([dport(json!("@ports")), accept])], Some(Verdict::Unclear)),
            ("drop", vec![json!([{"xt": null}, accept])], Some(Verdict::Unclear)),
            ("drop", vec![json!([meta("iifname", json!("lo")), accept])], closed),
            ("drop", vec![json!([meta("l4proto", json!("udp")), accept])], open),
            ("drop", vec![json!([meta("l4proto", json!("icmp")), accept])], closed),
            ("drop", vec![json!([state(json!(["established", "related"])), accept])], closed),
            ("drop", vec![json!([state(json!(["new"])), dport(json!(8443)), accept])], open),
            ("drop", vec![json!([from, dport(json!(8443)), accept])], open),
            ("drop", vec![json!([{"jump": {"target": "open"}}])], open),
            ("drop", vec![json!([{"goto": {"target": "unused"}}])], open),
            (
                "drop",
                vec![json!([{"goto": {"target": "empty"}}]), json!([dport(json!(8443)), accept])],
                closed,
            ),
            ("drop", vec![json!([{"return": null}]), json!([dport(json!(8443)), accept])], closed),
            ("drop", vec![json!([{"jump": {"target": "empty"}}])], closed),
            ("accept", vec![json!([{"xt": {"type": "target", "name": "REJECT"}}])], unclear),
            ("drop", vec![json!([{"xt": null}]), json!([dport(json!(8443)), accept])], unclear),
            ("drop", vec![json!([meta("iifname", json!("lo")), {"xt": null}])], closed),
            ("drop", vec![json!([dport(json!(8443)), {"vmap": {}}])], unclear),
            ("accept", vec![json!([{"limit": {"rate": 9, "inv": true}}, drop])], unclear),
            ("accept", vec![json!([from, dport(json!(8443)), drop])], None),
            // Here the last rule of all blocks other packets.
            ("accept", vec![json!([dport(json!(8443)), accept]), json!([{"reject": {}}])], open),
            ("accept", vec![json!([{"reject": {}}])], closed),
        ] {
            let rules = list(policy, rules);
            assert_eq!(ruleset(&rules, 8443), expected, "{rules}");
        }
        assert_eq!(ruleset(&json!({}), 8443), None);
    }
}
