//! firewalld's verdict on a port, from the files of its zones. Changes that last until a reload are in no file, nor are
//! zones that NetworkManager assigns to connections.

use super::{Verdict, names};
use std::io::ErrorKind;
use std::path::Path;

/// The administrator's folder, and then the package's.
const FOLDERS: [&str; 2] = ["etc/firewalld", "usr/lib/firewalld"];
/// The default zone, unless the settings name another.
const DEFAULT: &str = "public";

/// Prefixes of interfaces that lead to no other machine.
const VIRTUAL: [&str; 7] = ["lo", "docker", "br-", "virbr", "veth", "podman", "cni"];

/// `None` where firewalld does not run.
pub(super) fn verdict(root: &Path, port: u16) -> Option<Verdict> {
    root.join("run/firewalld.pid").exists().then(|| match lets_in(root, port) {
        Ok(true) => Verdict::Open,
        Ok(false) => Verdict::Closed,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Verdict::Hidden,
        Err(_) => Verdict::Unclear,
    })
}

/// Whether a zone in use lets the port in.
fn lets_in(root: &Path, port: u16) -> std::io::Result<bool> {
    let settings = read(&root.join(FOLDERS[0]).join("firewalld.conf"))?.unwrap_or_default();
    let default = settings.lines().find_map(|line| line.trim().strip_prefix("DefaultZone="));
    let mut zones = bound(root)?;
    let default = first(root, "zones", default.map_or(DEFAULT, str::trim))?;
    zones.extend(default);
    for zone in zones {
        if zone_lets_in(root, &zone, port)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The zones that an administrator gave an interface or a source.
fn bound(root: &Path) -> std::io::Result<Vec<String>> {
    let mut bound = Vec::new();
    let zones = match std::fs::read_dir(root.join(FOLDERS[0]).join("zones")) {
        Ok(zones) => zones,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(bound),
        Err(error) => return Err(error),
    };
    for zone in zones {
        let path = zone?.path();
        // Copies that were made before changes end in `.old`.
        if path.extension().is_none_or(|ending| ending != "xml") {
            continue;
        }
        let text = read(&path)?.unwrap_or_default();
        if has_network(&text) || elements(&text, "source").next().is_some() {
            bound.push(text);
        }
    }
    Ok(bound)
}

/// Whether an interface of a zone leads to other machines.
fn has_network(zone: &str) -> bool {
    let mut names = elements(zone, "interface").filter_map(|it| attribute(it, "name"));
    names.any(|name| !VIRTUAL.iter().any(|prefix| name.starts_with(prefix)))
}

fn zone_lets_in(root: &Path, zone: &str, port: u16) -> std::io::Result<bool> {
    let accepts = |zone: &str| attribute(zone, "target") == Some("ACCEPT");
    // Rich rules are for some senders, or keep some out.
    let zone = &without(zone, "<rule", "</rule>");
    if elements(zone, "zone").any(accepts) || has_port(zone, port) {
        return Ok(true);
    }
    for service in elements(zone, "service").filter_map(|service| attribute(service, "name")) {
        let service = first(root, "services", service)?;
        if service.is_some_and(|service| has_port(&service, port)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_port(text: &str, port: u16) -> bool {
    elements(text, "port").any(|element| {
        attribute(element, "protocol") == Some("udp")
            && attribute(element, "port").is_some_and(|ports| names(ports, port))
    })
}

/// The text of a zone or service, an administrator's before the package's, without comments.
fn first(root: &Path, kind: &str, name: &str) -> std::io::Result<Option<String>> {
    let paths = FOLDERS.map(|folder| root.join(folder).join(kind).join(format!("{name}.xml")));
    for path in paths {
        if let Some(text) = read(&path)? {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// A file without its comments; `None` where it is not there.
fn read(path: &Path) -> std::io::Result<Option<String>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(without(&text, "<!--", "-->")))
}

/// A text without the parts that begin with `from` and end with `to`.
fn without(text: &str, from: &str, to: &str) -> String {
    let (mut rest, mut plain) = (text, String::new());
    while let Some((before, inner)) = rest.split_once(from) {
        plain.push_str(before);
        rest = inner.split_once(to).map_or("", |(_, after)| after);
    }
    plain + rest
}

/// The inside of the tags of this name: `<port port="1" protocol="udp"/>` gives ` port="1" protocol="udp"/`.
fn elements<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    text.split('<').filter_map(move |tag| {
        let inner = tag.strip_prefix(name)?.split('>').next()?;
        // Not `<ports…` for `port`.
        (inner.is_empty() || inner.starts_with([' ', '\t', '\n', '/'])).then_some(inner)
    })
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = element.split_once(&format!("{name}="))?;
    let quote = value.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
    value[1..].split(quote).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_in_use_are_read() {
        let running = ("run/firewalld.pid", "7");
        let own = |text| ("etc/firewalld/zones/public.xml", text);
        let other = |text| ("etc/firewalld/zones/work.xml", text);
        let port = "<zone>\n  <port port=\"8000-9000\" protocol=\"udp\"/>\n</zone>";
        let default = ("etc/firewalld/firewalld.conf", "# DefaultZone=home\nDefaultZone=work\n");
        let package = |text| ("usr/lib/firewalld/zones/public.xml", text);
        let (closed, open) = (Some(Verdict::Closed), Some(Verdict::Open));
        for (files, expected) in [
            (vec![own(port)], None),
            (vec![running], closed),
            (vec![running, own(port)], open),
            (vec![running, own("<zone><port protocol='udp' port='8443'/></zone>")], open),
            (vec![running, own("<zone><port protocol=\"tcp\" port=\"8443\"/></zone>")], closed),
            (
                vec![running, own("<zone><!-- <port protocol=\"udp\" port=\"8443\"/> --></zone>")],
                closed,
            ),
            (vec![running, own("<zone target=\"ACCEPT\">\n</zone>")], open),
            (vec![running, own("<zone target=\"DROP\">\n</zone>")], closed),
            // The zone has no interface.
            (vec![running, other(port)], closed),
            (vec![running, other(port), default], open),
            (
                vec![
                    running,
                    other(
                        "<zone><interface name=\"eth0\"/><port port=\"8443\" protocol=\"udp\"/></zone>",
                    ),
                ],
                open,
            ),
            (
                vec![
                    running,
                    other(
                        "<zone><interface name=\"docker0\"/><port port=\"8443\" protocol=\"udp\"/></zone>",
                    ),
                ],
                closed,
            ),
            (
                vec![
                    running,
                    own("<zone><rule><port port=\"8443\" protocol=\"udp\"/><drop/></rule></zone>"),
                ],
                closed,
            ),
            (vec![running, package(port)], open),
            (vec![running, package(port), own("<zone></zone>")], closed),
            (
                vec![
                    running,
                    own("<zone><service name=\"ssh\"/><service name=\"mine\"/></zone>"),
                    (
                        "etc/firewalld/services/mine.xml",
                        "<service><port port=\"8443\" protocol=\"udp\"/></service>",
                    ),
                ],
                open,
            ),
        ] {
            let root = tempfile::tempdir().expect("a temporary folder");
            for (path, text) in &files {
                let path = root.path().join(path);
                std::fs::create_dir_all(path.parent().expect("below the root")).expect("ours");
                std::fs::write(path, text).expect("ours");
            }
            assert_eq!(verdict(root.path(), 8443), expected, "{files:?}");
        }
    }
}
