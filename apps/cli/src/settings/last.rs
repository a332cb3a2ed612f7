//! The flags of `start`: those given now, and those of the last `start`, kept in the data folder, so that a plain
//! `start` gives the same coordinator after a crash.

use crate::failure::{Failure, Result};
use crate::files::{self, Staged};
use crate::logging::LogFormat;
use crate::tls::Certificate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The file's name in the data folder. It may contain a password, so only its owner can read it.
const FILE: &str = "started.json";
/// All flags with long values take less.
const BYTES_MAX: u64 = 1 << 20;

/// The settings on the command line.
#[derive(Debug, Default)]
pub(crate) struct Flags<'a> {
    pub(crate) config: Option<&'a Path>,
    pub(crate) data: Option<&'a Path>,
    pub(crate) device: Option<&'a str>,
    pub(crate) workers: Option<usize>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) tls: Option<&'a Certificate>,
    pub(crate) grpc: Option<SocketAddr>,
    pub(crate) quic: Option<SocketAddr>,
    pub(crate) control: Option<&'a str>,
    pub(crate) control_name: Option<&'a str>,
    pub(crate) blobs: Option<&'a str>,
    pub(crate) reached_at: Option<&'a str>,
    pub(crate) frigate: Option<SocketAddr>,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) immich: Option<SocketAddr>,
    /// The settings of the last `start` that still apply.
    pub(crate) last: Last,
}

impl Flags<'_> {
    /// The flags that were given, as flag, setting and value.
    ///
    /// # Errors
    /// When the current folder is gone and a path is relative to it.
    pub(crate) fn given(&self) -> Result<Vec<(&'static str, &'static str, String)>> {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let addr = |addr: Option<SocketAddr>| addr.map(|addr| addr.to_string());
        let tls = self.tls.cloned().map(Certificate::absolute).transpose()?;
        let all = [
            ("device", "device", text(self.device)),
            ("workers", "workers", self.workers.map(|count| count.to_string())),
            ("http", "http.addr", addr(self.http)),
            ("tls", "http.tls", tls.map(|tls| tls.to_string())),
            ("grpc", "grpc.addr", addr(self.grpc)),
            ("quic", "quic.addr", addr(self.quic)),
            ("control", "control", text(self.control)),
            ("control-name", "control_name", text(self.control_name)),
            ("blobs", "blobs", text(self.blobs)),
            ("reached-at", "quic.reached_at", text(self.reached_at)),
            ("frigate", "frigate.addr", addr(self.frigate)),
            ("log-format", "log_format", self.log_format.map(|format| format.to_string())),
            ("immich", "immich.addr", addr(self.immich)),
        ];
        let given = all.into_iter().filter_map(|(flag, key, value)| Some((flag, key, value?)));
        Ok(given.collect())
    }
}

/// Flags by name, each with its setting and value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Last {
    /// The settings file that was named.
    #[serde(default)]
    pub(crate) config: Option<PathBuf>,
    #[serde(default)]
    flags: BTreeMap<String, (String, String)>,
}

impl Last {
    /// Reads the flags in the data folder; there are none where no coordinator was started.
    ///
    /// # Errors
    /// `started_unreadable` when the file cannot be read, with a hint.
    pub(crate) fn read(data: &Path) -> Result<Self> {
        let path = data.join(FILE);
        let unreadable = |failure: Failure| {
            Failure { code: "started_unreadable".into(), ..failure }
                .hint("start as the flags say alone, and forget it: radeon-cluster start --fresh")
        };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(Self::default());
            }
            Err(error) => return Err(unreadable(Failure::file("read", &path, &error))),
        };
        let text = files::take_bounded(file, &path, BYTES_MAX).map_err(unreadable)?;
        serde_json::from_slice(&text)
            .map_err(|error| unreadable(Failure::file("read", &path, &error.into())))
    }

    /// The flags of the last start, overridden by those given now.
    ///
    /// # Errors
    /// As [`Flags::given`].
    pub(crate) fn with(&self, now: &Flags<'_>) -> Result<Self> {
        let mut all = self.clone();
        for (flag, key, value) in now.given()? {
            all.flags.insert(flag.to_owned(), (key.to_owned(), value));
        }
        if let Some(config) = now.config {
            let absolute = std::path::absolute(config);
            all.config = Some(absolute.map_err(|error| Failure::file("resolve", config, &error))?);
        }
        Ok(all)
    }

    /// Writes the flags to the data folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn keep(&self, data: &Path) -> Result<()> {
        let path = data.join(FILE);
        let text = serde_json::to_vec_pretty(self).map_err(Failure::internal)?;
        Staged::private(&path, &text)?.place()
    }

    /// The settings and their values.
    pub(super) fn settings(&self) -> impl Iterator<Item = (&str, String)> {
        self.flags.values().map(|(key, value)| (key.as_str(), value.clone()))
    }

    /// The flags as text, without those given now and without passwords.
    ///
    /// # Errors
    /// As [`Flags::given`].
    pub(crate) fn words(&self, now: &Flags<'_>) -> Result<String> {
        let given = now.given()?;
        let old = self.flags.iter().filter(|(flag, _)| given.iter().all(|(it, ..)| it != flag));
        let mut words: Vec<String> =
            old.map(|(flag, (_, value))| format!("--{flag} {}", without_password(value))).collect();
        if let Some(config) = self.config.as_ref().filter(|_| now.config.is_none()) {
            words.push(format!("--config {}", config.display()));
        }
        Ok(words.join(" "))
    }
}

/// A value without the user and password in each of its URLs.
fn without_password(value: &str) -> String {
    let url = |url: &str| match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => url.to_owned(),
    };
    value.split(',').map(url).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_was_given_holds_on_until_something_else_is_given() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(Last::read(folder.path()).expect("nothing"), Last::default());
        let control = "postgres://me:secret@db/x,nats://u:secret@n:1";
        let first = Flags { workers: Some(3), control: Some(control), ..Flags::default() };
        let last = Last::default().with(&first).expect("plain flags");
        last.keep(folder.path()).expect("ours");
        let mode = folder.path().join(FILE).metadata().expect("written").mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = Last::read(folder.path()).expect("as written");
        assert_eq!(read, last);
        let words = read.words(&Flags::default()).expect("plain flags");
        assert_eq!(words, "--control postgres://…@db/x,nats://…@n:1 --workers 3");
        let now = Flags { workers: Some(1), ..Flags::default() };
        assert!(!read.words(&now).expect("plain flags").contains("workers"));
        let both = read.with(&now).expect("plain flags");
        let workers = both.settings().find(|(key, _)| *key == "workers").expect("it is there");
        assert_eq!(workers.1, "1");
    }

    #[test]
    fn what_cannot_be_read_is_named_once() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(FILE);
        std::fs::create_dir(&path).expect("ours");
        let is_folder = Last::read(folder.path()).expect_err("it is a folder");
        std::fs::remove_dir(&path).expect("ours");
        std::fs::write(&path, "{").expect("ours");
        let is_damaged = Last::read(folder.path()).expect_err("it is damaged");
        let begin = format!("cannot read {}: ", path.display());
        for failure in [is_folder, is_damaged] {
            assert_eq!(failure.code, "started_unreadable");
            assert!(failure.message.starts_with(&begin), "{}", failure.message);
            assert_eq!(failure.message.matches("cannot read").count(), 1, "{}", failure.message);
            assert!(failure.hint.is_some_and(|hint| hint.contains("--fresh")));
        }
    }
}
