//! Load on a server that speaks the Open Inference Protocol: measures requests a second and latencies. It runs on
//! one thread, so that the server keeps the other CPU cores.

mod answer;
mod drive;
mod grpc;
mod http;
mod lane;
mod request;
mod transport;

pub use drive::{LoadLatency, LoadReport};

use crate::error::Error;
use std::path::PathBuf;

/// The result within this module; the public functions convert the error.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The protocol of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadProtocol {
    /// HTTP/1.1, a connection for each request in flight.
    Http,
    /// Unary gRPC, one connection.
    Grpc,
    /// A bidirectional stream of gRPC.
    Stream,
}

/// The encoding of tensors over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadForm {
    /// As numbers in JSON.
    Json,
    /// As bytes after the JSON.
    Binary,
    /// In shared memory regions, which are registered first.
    Shared,
}

/// A load: the server, the requests, their rate and their duration.
#[derive(Debug, Clone)]
pub struct Load {
    /// The protocol of the requests.
    pub protocol: LoadProtocol,
    /// The encoding of tensors over HTTP.
    pub form: LoadForm,
    /// The server's URL, with a path if the inference path is not the protocol's default.
    pub url: String,
    /// The model's name.
    pub model: String,
    /// Name and dimensions of the f32 input, such as `image:1x1x8x8`, which is filled at random.
    pub input: String,
    /// Bytes of each output, if outputs go to shared memory.
    pub output_bytes: usize,
    /// Name of the output that goes to shared memory.
    pub output: String,
    /// Concurrent requests.
    pub in_flight: usize,
    /// Measured time, in seconds.
    pub seconds: f64,
    /// Warm-up time before that, in seconds.
    pub warm_seconds: f64,
    /// Requests a second. They are due at this rate even if earlier ones are late, and latencies count from the due
    /// time. When unset, each answer triggers the next request.
    pub rate: Option<f64>,
    /// A file with an API key.
    pub key_file: Option<PathBuf>,
    /// A file with the trusted CA certificate.
    pub ca: Option<PathBuf>,
}

impl Default for Load {
    /// One request of the bundled model at a time over HTTP, for 5 s after 1 s of warm-up. The URL is empty.
    fn default() -> Self {
        Self {
            protocol: LoadProtocol::Http,
            form: LoadForm::Binary,
            url: String::new(),
            model: "digits".to_owned(),
            input: "image:1x1x8x8".to_owned(),
            output_bytes: 4096,
            output: String::new(),
            in_flight: 1,
            seconds: 5.0,
            warm_seconds: 1.0,
            rate: None,
            key_file: None,
            ca: None,
        }
    }
}

impl Load {
    /// Sends the requests. Must be called within a single-threaded Tokio runtime with timers and I/O.
    ///
    /// # Errors
    /// [`Error::Load`] if no connection can be made or the settings are invalid. Failures of single requests are in
    /// the report.
    pub async fn run(&self) -> std::result::Result<LoadReport, Error> {
        let sound = |number: f64| number.is_finite() && (0.0..=1e9).contains(&number);
        let times = sound(self.seconds) && sound(self.warm_seconds);
        if !times || self.in_flight == 0 || self.rate.is_some_and(|rate| !sound(rate) || rate <= 0.)
        {
            let reason = "expected times in seconds, a rate above 0 and something in flight".into();
            return Err(Error::Load { source: reason });
        }
        drive::run(self).await.map_err(|source| Error::Load { source })
    }
}
