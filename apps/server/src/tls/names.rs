//! The names and addresses of this machine.

use std::net::IpAddr;

/// Longest name of a host, see RFC 1035.
const NAME_BYTES_MAX: usize = 253;

/// `localhost`, the machine's name with and without `.local`, and every address that it has now.
pub(super) fn of_this_machine() -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let system = rustix::system::uname();
    if let Some(name) = system.nodename().to_str().ok().filter(|name| is_name(name)) {
        names.push(name.to_ascii_lowercase());
        if !name.contains('.') {
            names.push(format!("{}.local", name.to_ascii_lowercase()));
        }
    }
    // If the addresses cannot be listed, the names above remain.
    let addresses = if_addrs::get_if_addrs().unwrap_or_default();
    names.extend(addresses.iter().map(|interface| interface.ip()).map(|ip| ip.to_string()));
    names.sort();
    names.dedup();
    names
}

fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label) && text.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_stand_in_a_certificate_is_a_name() {
        for name in ["gpu-box", "a.b.example", "x1"] {
            assert!(is_name(name), "{name}");
        }
        for other in ["", "-a", "a-", "a..b", "a b", "ä", "10.0.0.1", &"a".repeat(64)] {
            assert!(!is_name(other), "{other}");
        }
        assert!(of_this_machine().contains(&"localhost".to_owned()));
    }
}
