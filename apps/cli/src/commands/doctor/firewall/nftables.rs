//! What the kernel's own rules do with a port, as `nft` lists them.

use super::{Verdict, names};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Chains that call one another deeper than this are not followed; the kernel's limit is as high.
const DEPTH_MAX: usize = 16;

/// `None` where there are no rules that could keep anything out.
pub(super) fn verdict(root: &Path, port: u16) -> Option<Verdict> {
    // The rules are the kernel's, and not those of a tree.
    if root != Path::new("/") || !Path::new("/sys/module/nf_tables").exists() {
        return None;
    }
    let output = Command::new("nft").args(["--json", "list", "ruleset"]).output().ok()?;
    let rules = output.status.success().then(|| serde_json::from_slice(&output.stdout).ok());
    rules.flatten().map_or(Some(Verdict::Unknown), |rules: Value| ruleset(&rules, port))
}

/// What all chains of incoming packets together do: each can keep one out.
fn ruleset(rules: &Value, port: u16) -> Option<Verdict> {
    let all = rules["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let inputs = all.iter().map(|entry| &entry["chain"]).filter(|chain| chain["hook"] == "input");
    let mut verdict = None;
    for chain in inputs {
        let policy = || match chain["policy"] == "drop" {
            true => Some(Verdict::Closed),
            // Nothing speaks of the port.
            false => None,
        };
        let mut is_clear = true;
        let decided = follow(all, chain, port, DEPTH_MAX, &mut is_clear).or_else(policy);
        match decided {
            Some(Verdict::Closed) if !is_clear => verdict = Some(Verdict::Unknown),
            Some(Verdict::Closed) => return Some(Verdict::Closed),
            other => verdict = verdict.or(other),
        }
    }
    verdict
}

/// What the rules of a chain decide for the port, if anything; `is_clear` turns false where a rule is not
/// understood.
fn follow(
    all: &[Value],
    chain: &Value,
    port: u16,
    depth: usize,
    is_clear: &mut bool,
) -> Option<Verdict> {
    let is_of = |rule: &Value, name: &str| {
        rule["family"] == chain["family"]
            && rule["table"] == chain["table"]
            && rule["chain"] == name
    };
    let name = chain["name"].as_str()?;
    for rule in all.iter().map(|entry| &entry["rule"]).filter(|rule| is_of(rule, name)) {
        let parts = rule["expr"].as_array().map(Vec::as_slice).unwrap_or_default();
        let matched = Matched::of(parts, port);
        *is_clear &= matched != Matched::Unclear;
        let has = |verdict: &str| parts.iter().any(|part| part.get(verdict).is_some());
        // A rule for some senders lets workers in that were thought of, and keeps others out.
        let decided = match matched {
            Matched::All | Matched::Port | Matched::PortOfSome if has("accept") => {
                Some(Verdict::Open)
            }
            Matched::All | Matched::Port if has("drop") || has("reject") => Some(Verdict::Closed),
            Matched::All | Matched::Port | Matched::PortOfSome if depth > 0 => {
                let target = parts.iter().find_map(|part| part.get("jump").or(part.get("goto")));
                let target = target.map(|target| &target["target"]);
                let chains = all.iter().map(|entry| &entry["chain"]);
                let mut chains = chains
                    .filter(|it| it["family"] == chain["family"] && it["table"] == chain["table"]);
                target
                    .and_then(|target| chains.find(|it| it["name"] == *target))
                    .and_then(|next| follow(all, next, port, depth - 1, is_clear))
            }
            _ => None,
        };
        if decided.is_some() {
            return decided;
        }
    }
    None
}

/// Which packets to the port a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Matched {
    /// Those to any port.
    All,
    /// Those to this port.
    Port,
    /// Those to this port that come in some way, or from some address.
    PortOfSome,
    /// Others.
    None,
    /// It cannot be told.
    Unclear,
}

impl Matched {
    fn of(parts: &[Value], port: u16) -> Self {
        let (mut names_port, mut is_some) = (false, false);
        for part in parts {
            // What other programs than nft made of their own rules.
            if part.get("xt").is_some() {
                return Self::Unclear;
            }
            let Some(test) = part.get("match") else { continue };
            let (left, right) = (&test["left"], &test["right"]);
            let is_equal = ["==", "in"].iter().any(|op| test["op"] == *op);
            let is_udp = || has(right, |it| it == "udp" || it == 17);
            match (&left["payload"]["field"], &left["payload"]["protocol"]) {
                (field, protocol) if field == "dport" && is_equal => {
                    if protocol != "udp" && protocol != "th" {
                        return Self::None;
                    }
                    if right.as_str().is_some_and(|set| set.starts_with('@')) {
                        return Self::Unclear;
                    }
                    if !has(right, |it| is_port(it, port)) {
                        return Self::None;
                    }
                    names_port = true;
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
                _ => is_some = true,
            }
        }
        match (names_port, is_some) {
            (true, false) => Self::Port,
            (true, true) => Self::PortOfSome,
            (false, false) => Self::All,
            // As `iif lo`: not for workers of other machines, or not for all of them.
            (false, true) => Self::None,
        }
    }
}

/// Whether a value, or one in its set or list, is meant.
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
            json!({"chain": {"family": "inet", "table": "filter", "name": "open"}}),
            of("open", json!([dport(json!(8443)), {"accept": null}])),
            // No packet comes by it.
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
        let (open, closed) = (Some(Verdict::Open), Some(Verdict::Closed));
        for (policy, rules, expected) in [
            ("accept", vec![], None),
            ("drop", vec![], closed),
            ("drop", vec![json!([tcp, accept])], closed),
            ("drop", vec![json!([dport(json!(8443)), accept])], open),
            ("drop", vec![json!([dport(set), counter, accept])], open),
            ("drop", vec![json!([dport(json!(8442)), accept])], closed),
            ("drop", vec![json!([dport(json!(8443)), drop])], closed),
            ("drop", vec![json!([dport(json!("@ports")), accept])], Some(Verdict::Unknown)),
            ("drop", vec![json!([{"xt": null}, accept])], Some(Verdict::Unknown)),
            ("drop", vec![json!([meta("iifname", json!("lo")), accept])], closed),
            ("drop", vec![json!([meta("l4proto", json!("udp")), accept])], open),
            ("drop", vec![json!([meta("l4proto", json!("icmp")), accept])], closed),
            ("drop", vec![json!([state(json!(["established", "related"])), accept])], closed),
            ("drop", vec![json!([state(json!(["new"])), dport(json!(8443)), accept])], open),
            ("drop", vec![json!([from, dport(json!(8443)), accept])], open),
            ("drop", vec![json!([{"jump": {"target": "open"}}])], open),
            // The last rule of all is what keeps others out here.
            ("accept", vec![json!([dport(json!(8443)), accept]), json!([{"reject": {}}])], open),
            ("accept", vec![json!([{"reject": {}}])], closed),
        ] {
            let rules = list(policy, rules);
            assert_eq!(ruleset(&rules, 8443), expected, "{rules}");
        }
        assert_eq!(ruleset(&json!({}), 8443), None);
    }
}
