//! A command's failure: a stable code, a message, a hint and the exit status, as text or as one line of JSON on stderr.

mod cluster;

pub(crate) use cluster::NEW_TOKEN;

use crate::output;
use lgp_common::chain;
use lgp_sdk::device::Error as ChoiceError;
use lgp_sdk::model::Error as ModelError;
use lgp_sdk::tensor::Error as TensorError;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The result of every command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// A failed command. Codes are part of the command-line contract: add, don't rename.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// A stable identifier in snake case: `device_unknown`.
    pub(crate) code: Cow<'static, str>,
    /// The problem, with the wrong value and the expected one.
    pub(crate) message: String,
    /// What the user can do about it.
    pub(crate) hint: Option<String>,
    /// The exit status: 1 failed, 2 usage.
    pub(crate) exit: u8,
}

/// The code for a closed stdout; there is no reader to tell.
const BROKEN_PIPE: &str = "broken_pipe";
/// The code of a failure that was reported already.
const TOLD: &str = "told";

impl Failure {
    /// A failure with exit status 1.
    pub(crate) fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), hint: None, exit: 1 }
    }

    /// A command line that makes no sense: exit status 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: 2, ..Self::new("usage", message) }
    }

    /// A failure with an error's whole chain of causes as the message.
    pub(crate) fn from_error(code: &'static str, error: &dyn std::error::Error) -> Self {
        Self::new(code, chain(error))
    }

    /// An operation on a file that failed.
    pub(crate) fn file(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => "file_not_found",
            std::io::ErrorKind::PermissionDenied => "permission_denied",
            _ => "io",
        };
        Self::new(code, format!("cannot {what} {}: {error}", path.display()))
    }

    /// A failure that the user cannot have caused.
    pub(crate) fn internal(message: impl Display) -> Self {
        Self::new("internal", format!("internal error: {message}"))
    }

    /// A port that another process listens on; `flag` is the setting that changes ours. A process that has one of a
    /// coordinator's three ports probably has all three.
    pub(crate) fn address_in_use(flag: &str, addr: SocketAddr, protocol: &str) -> Self {
        const OF_A_COORDINATOR: [&str; 3] = ["http", "grpc", "quic"];
        let free = |name: &str| {
            let ip = if name == flag { addr.ip() } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
            format!("--{name} {}", SocketAddr::new(ip, 0))
        };
        let hint = match OF_A_COORDINATOR.contains(&flag) {
            true => {
                let flags = OF_A_COORDINATOR.map(free).join(" ");
                format!("choose others with {flags}, which pick free ports")
            }
            false => format!("choose another one with {}, which picks a free port", free(flag)),
        };
        Self::new("address_in_use", format!("{addr}/{protocol} is in use by another process"))
            .hint(hint)
    }

    /// Ctrl-C or SIGTERM before the command was done.
    pub(crate) fn interrupted() -> Self {
        Self::new("interrupted", "interrupted")
    }

    /// The reader of stdout is gone.
    pub(crate) fn broken_pipe() -> Self {
        Self { exit: 0, ..Self::new(BROKEN_PIPE, "") }
    }

    /// Whether the reader of stdout is gone.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.code == BROKEN_PIPE
    }

    /// Reports the failure now, because the next step would lose it; the answer reports nothing again.
    ///
    /// # Errors
    /// When stderr cannot be written.
    pub(crate) fn tell(self, json: bool) -> std::io::Result<Self> {
        self.write(json)?;
        Ok(Self { code: TOLD.into(), ..self })
    }

    /// Adds advice for the user.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Writes the failure to stderr and answers the exit status.
    pub(crate) fn report(&self, json: bool) -> u8 {
        if ![BROKEN_PIPE, TOLD].contains(&&*self.code) {
            // A closed stderr cannot be helped.
            let _ = self.write(json);
        }
        self.exit
    }

    fn write(&self, json: bool) -> std::io::Result<()> {
        let text = if json { self.to_json() } else { self.to_text() };
        writeln!(std::io::stderr(), "{text}")
    }

    fn to_json(&self) -> String {
        serde_json::json!({
            "error": { "code": self.code, "message": self.message, "hint": self.hint }
        })
        .to_string()
    }

    fn to_text(&self) -> String {
        // Coordinators and models contribute to the message, and hints may have several lines.
        let lines = |text: &str| text.split('\n').map(output::plain).collect::<Vec<_>>().join("\n");
        match &self.hint {
            Some(hint) => format!("error: {}\nhint: {}", lines(&self.message), lines(hint)),
            None => format!("error: {}", lines(&self.message)),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<lgp_server::Error> for Failure {
    fn from(error: lgp_server::Error) -> Self {
        match error {
            lgp_server::Error::Cluster(error) => error.into(),
            lgp_server::Error::File { what, path, source } => Self::file(what, &path, &source),
            other => Self::from_error("server_failed", &other),
        }
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        let failure = Self::from_error(lgp_common::model_error_code(&error), &error);
        match &error {
            ModelError::DeviceTooSmall { smallest_bytes, .. } => {
                // Rounded up, for people type whole units.
                let kib = smallest_bytes.div_ceil(1024);
                failure.hint(format!(
                    "--vram {kib}KiB is enough; radeon-cluster plan says what then moves in each run"
                ))
            }
            ModelError::NoCut { .. } => failure
                .hint("name one device: weights that find no room there come from the host's memory"),
            ModelError::MissingInput { name, .. } => {
                failure.hint(format!("name a file for it: --input {name}=FILE"))
            }
            ModelError::Malformed { .. } => failure.hint(
                "it takes a whole ONNX file: fetch it again if it was cut off, or export it as ONNX \
                 from the program that made it",
            ),
            ModelError::IrVersion { .. } | ModelError::Opset { .. } => {
                failure.hint("export the model again, for a version in that range")
            }
            ModelError::Memory(TensorError::OutOfMemory { .. }) => {
                failure.hint("take a smaller batch, or end other programs that hold memory")
            }
            _ => failure,
        }
    }
}

/// Devices that contradict each other or are unknown are usage errors.
impl From<lgp_research::Error> for Failure {
    fn from(error: lgp_research::Error) -> Self {
        use lgp_research::Error;
        match error {
            Error::Inference(error) => error.into(),
            Error::Stopped => Self::interrupted(),
            Error::Io { action, path, source } => Self::file(action, path.as_ref(), &source),
            Error::Setting { .. } => Self { exit: 2, ..Self::from_error("usage", &error) },
            Error::Samples { .. } => Self::from_error("samples_unusable", &error),
            Error::Diverged { .. } => Self::from_error("diverged", &error),
            other => Self::from_error("compression_failed", &other),
        }
    }
}

impl From<ChoiceError> for Failure {
    fn from(error: ChoiceError) -> Self {
        let is_usage = ["usage", "device_unknown"].contains(&error.code());
        let failure = Self::from_error(error.code(), &error).hint(error.hint("--device "));
        Self { exit: if is_usage { 2 } else { 1 }, ..failure }
    }
}

/// Replaces Rust's panic message by one that a user can act upon.
pub(crate) fn install_panic_hook(json: bool) {
    std::panic::set_hook(Box::new(move |info| {
        let what = info.payload_as_str().unwrap_or("unknown cause");
        let place = info.location().map_or_else(String::new, |at| format!(" ({at})"));
        Failure::internal(format!("{what}{place}"))
            .hint("this is a defect of radeon-cluster; please report it with this line")
            .report(json);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_promised_keys() {
        let failure = Failure::new("device_unknown", "no device").hint("try cpu");
        let value: serde_json::Value =
            serde_json::from_str(&failure.to_json()).expect("the report is JSON");
        assert_eq!(
            value,
            serde_json::json!({"error":
                {"code": "device_unknown", "message": "no device", "hint": "try cpu"}})
        );
        let without = Failure::usage("x");
        assert!(without.to_json().contains("\"hint\":null"), "the key is always there");
        assert_eq!(without.exit, 2);
    }

    #[test]
    fn all_addresses_that_another_cluster_has_are_told_at_once() {
        for (flag, addr, part) in [
            ("quic", "0.0.0.0:1", "--http 127.0.0.1:0 --grpc 127.0.0.1:0 --quic 0.0.0.0:0, which"),
            ("frigate", "127.0.0.1:5555", "another one with --frigate 127.0.0.1:0, which picks"),
        ] {
            let addr = addr.parse().expect("an address");
            let hint = Failure::address_in_use(flag, addr, "tcp").hint.unwrap_or_default();
            assert!(hint.contains(part), "{hint}");
        }
    }

    #[test]
    fn errors_of_models_say_what_to_do() {
        let ty = lgp_sdk::tensor::TensorType { dtype: lgp_sdk::tensor::DType::F32, shape: None };
        for (error, part) in [
            (ModelError::MissingInput { name: "x".to_owned(), ty }, "--input x=FILE"),
            (ModelError::Malformed { message: "it is empty".to_owned() }, "ONNX"),
            (TensorError::OutOfMemory { bytes: 8 }.into(), "smaller batch"),
        ] {
            let failure = Failure::from(error);
            assert!(failure.hint.as_ref().is_some_and(|hint| hint.contains(part)), "{failure:?}");
        }
    }

    #[test]
    fn what_a_model_is_called_cannot_steer_a_terminal() {
        let failure = Failure::new("x", "model \u{1b}[2J is\nodd").hint("rm \u{9b}");
        assert_eq!(failure.to_text(), "error: model \\u{1b}[2J is\nodd\nhint: rm \\u{9b}");
    }

    /// An error whose message may quote its cause.
    #[derive(Debug)]
    struct Outer {
        quotes: bool,
        cause: std::io::Error,
    }

    impl Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            match self.quotes {
                true => write!(f, "cannot load: {}", self.cause),
                false => f.write_str("cannot load"),
            }
        }
    }

    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.cause)
        }
    }

    #[test]
    fn a_cause_is_quoted_once() {
        for quotes in [true, false] {
            let error = Outer { quotes, cause: std::io::Error::other("disk is full") };
            assert_eq!(chain(&error), "cannot load: disk is full");
        }
    }
}
