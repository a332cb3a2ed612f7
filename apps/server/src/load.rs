//! Load on a server that speaks the Open Inference Protocol: how many requests a second, and how long
//! each takes. It runs on one thread, so that the server keeps what processors there are.

mod drive;
mod grpc;
mod http;
mod lane;
mod request;
mod transport;

pub use drive::{LoadLatency, LoadReport};

use crate::error::Error;
use std::path::PathBuf;

/// What parts answer with when something is wrong; the boundary makes one error of it.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How requests travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadProtocol {
    /// HTTP/1.1, a connection for each request in flight.
    Http,
    /// Unary gRPC, one connection.
    Grpc,
    /// A bidirectional stream of gRPC.
    Stream,
}

/// How tensors travel over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadForm {
    /// As numbers in JSON.
    Json,
    /// As bytes behind the JSON.
    Binary,
    /// In regions of shared memory that are registered first.
    Shared,
}

/// A load: who is asked for what, how often, and for how long.
#[derive(Debug, Clone)]
pub struct Load {
    /// How requests travel.
    pub protocol: LoadProtocol,
    /// How tensors travel over HTTP.
    pub form: LoadForm,
    /// The server, with the path that takes inferences where it is another than the protocol's.
    pub url: String,
    /// The model's name.
    pub model: String,
    /// Name and dimensions of its f32 input, such as `image:1x1x8x8`, which gets numbers at random.
    pub input: String,
    /// Bytes of each output, for those that come in shared memory.
    pub output_bytes: usize,
    /// Name of the output that comes in shared memory.
    pub output: String,
    /// Requests that are under way at once.
    pub in_flight: usize,
    /// How long requests are counted.
    pub seconds: f64,
    /// How long before that they are sent.
    pub warm_seconds: f64,
    /// Requests a second that are due, whatever becomes of earlier ones, each of which counts from when
    /// it was due; as fast as answers come where none are given.
    pub rate: Option<f64>,
    /// A file with a key.
    pub key_file: Option<PathBuf>,
    /// A file with the certificate of the authority that is trusted.
    pub ca: Option<PathBuf>,
}

impl Default for Load {
    /// One request of the bundled model at a time over HTTP, for 5 s after one to warm up, of no server yet.
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
    /// Sends the requests. Must be called within a Tokio runtime of one thread that has timers and I/O.
    ///
    /// # Errors
    /// [`Error::Load`] where no connection can be had, or the load makes no sense. What becomes of
    /// single requests is in the report.
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
