//! Load on a server that speaks the Open Inference Protocol: measures requests a second and latencies. It runs on
//! one thread, so that the server keeps the other CPU cores.
//! `cargo run --release -p lgp-server --example load -- run --url http://127.0.0.1:8000 …`.

mod bare;

use clap::{Args, Parser, ValueEnum};
use lgp_server::{Load, LoadForm, LoadProtocol};
use std::path::PathBuf;

/// The result within this program.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
enum Command {
    /// Sends requests and prints one line of JSON.
    Run(Run),
    /// Answers every request with this many bytes and does nothing else: the floor of a transfer.
    Bare {
        #[arg(long)]
        answer_bytes: usize,
    },
}

/// The protocol of the requests.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// HTTP/1.1, a connection for each request in flight.
    Http,
    /// Unary gRPC, one connection.
    Grpc,
    /// A bidirectional stream of gRPC.
    Stream,
}

/// The encoding of tensors over HTTP.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Json,
    Binary,
    /// In shared memory regions, which are registered first.
    Shared,
}

#[derive(Args)]
struct Run {
    #[arg(long, value_enum, default_value = "http")]
    protocol: Protocol,
    #[arg(long, value_enum, default_value = "binary")]
    form: Form,
    /// The server's URL, with a path if the inference path is not the protocol's default.
    #[arg(long)]
    url: String,
    #[arg(long)]
    model: String,
    /// Name and dimensions of the input, such as image:1x1x8x8, which is filled at random.
    #[arg(long)]
    input: String,
    /// Bytes of each output, if outputs go to shared memory.
    #[arg(long, default_value_t = 4096)]
    output_bytes: usize,
    /// Name of the output that goes to shared memory.
    #[arg(long, default_value = "")]
    output: String,
    #[arg(long, default_value_t = 1)]
    in_flight: usize,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Warm-up time before the measurement, in seconds.
    #[arg(long, default_value_t = 1.0)]
    warm_seconds: f64,
    /// Requests a second. They are due at this rate even if earlier ones are late, and latencies count from the due
    /// time. Without it, each answer triggers the next request.
    #[arg(long)]
    rate: Option<f64>,
    /// A file with an API key.
    #[arg(long)]
    key_file: Option<PathBuf>,
    /// A file with the trusted CA certificate.
    #[arg(long)]
    ca: Option<PathBuf>,
}

impl Run {
    fn load(self) -> Load {
        let Self { url, model, input, output_bytes, output, in_flight, .. } = self;
        let Self { seconds, warm_seconds, rate, key_file, ca, .. } = self;
        let protocol = match self.protocol {
            Protocol::Http => LoadProtocol::Http,
            Protocol::Grpc => LoadProtocol::Grpc,
            Protocol::Stream => LoadProtocol::Stream,
        };
        let form = match self.form {
            Form::Json => LoadForm::Json,
            Form::Binary => LoadForm::Binary,
            Form::Shared => LoadForm::Shared,
        };
        Load {
            protocol,
            form,
            url,
            model,
            input,
            output_bytes,
            output,
            in_flight,
            seconds,
            warm_seconds,
            rate,
            key_file,
            ca,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match Command::parse() {
        Command::Run(run) => {
            let report = run.load().run().await?;
            println!("{}", serde_json::to_string(&report)?);
            Ok(())
        }
        Command::Bare { answer_bytes } => bare::serve(answer_bytes).await,
    }
}
