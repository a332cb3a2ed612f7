//! Facts about the system that matter to drivers. Names of persons and machines are left out.

use serde::Serialize;

/// The facts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct System {
    /// The distribution with its version: `Debian GNU/Linux 12 (bookworm)`.
    pub(crate) os: String,
    /// The kernel's release.
    pub(crate) kernel: String,
    pub(crate) architecture: &'static str,
    /// Threads that the processor runs at once.
    pub(crate) threads: usize,
}

impl System {
    /// Reads the facts.
    pub(crate) fn read() -> Self {
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let kernel = rustix::system::uname();
        Self {
            os: name(&release).unwrap_or(std::env::consts::OS).to_owned(),
            kernel: kernel.release().to_string_lossy().into_owned(),
            architecture: std::env::consts::ARCH,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The name in an `os-release`.
fn name(release: &str) -> Option<&str> {
    let line = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_has_a_name() {
        assert_eq!(
            name("ID=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"),
            Some("Debian GNU/Linux 12")
        );
        assert_eq!(name("ID=x\n"), None);
        let system = System::read();
        assert!(!system.os.is_empty() && system.threads > 0, "{system:?}");
    }
}
