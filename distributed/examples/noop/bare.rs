//! One bare QUIC stream per request, without a cluster: the lower bound for any task.

use crate::Result;
use crate::load::Percentiles;
use crate::options::Options;
use crate::workers::{Process, told};
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

const NAME: &str = "localhost";
/// An answer is about as long as the one of a task without outputs.
const ANSWER: [u8; 32] = [0; 32];
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// The instructions for the other process.
#[derive(Serialize, Deserialize)]
struct Bootstrap {
    certificate: Vec<u8>,
    key: Vec<u8>,
    /// Whether another thread is asked before each answer, as workers do for executors that may
    /// block.
    asks_thread: bool,
}

/// A connection to a process that reads each whole request and answers it.
pub(crate) struct Floor {
    connection: Connection,
    _endpoint: Endpoint,
    _server: Process,
}

impl Floor {
    pub(crate) async fn start(asks_thread: bool) -> Result<Self> {
        let pair = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])?;
        let certificate = pair.cert.der().to_vec();
        let key = pair.signing_key.serialize_der();
        let bootstrap = Bootstrap { certificate, key, asks_thread };
        let mut server = Process::start("--echo", &serde_json::to_string(&bootstrap)?)?;
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
        let at: SocketAddr = line.trim().parse()?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(bootstrap.certificate))?;
        let mut endpoint = Endpoint::client("127.0.0.1:0".parse()?)?;
        endpoint.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
        let connection = endpoint.connect(at, NAME)?.await?;
        Ok(Self { connection, _endpoint: endpoint, _server: server })
    }

    /// Sends requests one after another; returns the milliseconds of each.
    pub(crate) async fn requests(&self, request: &[u8], count: usize) -> Result<Vec<f64>> {
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            let (mut send, mut recv) = self.connection.open_bi().await?;
            send.write_all(request).await?;
            send.finish()?;
            recv.read_to_end(ANSWER.len()).await?;
            samples.push(began.elapsed().as_secs_f64() * 1e3);
        }
        Ok(samples)
    }
}

/// The other process.
pub(crate) async fn serve() -> Result<()> {
    let Bootstrap { certificate, key, asks_thread } = told()?;
    let certificate = CertificateDer::from(certificate);
    let config =
        ServerConfig::with_single_cert(vec![certificate], PrivatePkcs8KeyDer::from(key).into())?;
    let endpoint = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    println!("{}", endpoint.local_addr()?);
    std::io::stdout().flush()?;
    let connection = endpoint.accept().await.ok_or("no connection")?.await?;
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        tokio::spawn(async move {
            // A broken request affects only its sender.
            if recv.read_to_end(REQUEST_BYTES_MAX).await.is_ok() {
                if asks_thread {
                    let _ = tokio::task::spawn_blocking(|| ()).await;
                }
                let _ = send.write_all(&ANSWER).await;
                let _ = send.finish();
            }
        });
    }
    Ok(())
}

pub(crate) async fn run(options: &Options) -> Result<String> {
    let (tasks, payload) = (options.get("tasks", 10_000)?, options.get("payload", 64)?);
    let floor = Floor::start(options.get("asks-thread", false)?).await?;
    let request = vec![0u8; payload];
    floor.requests(&request, tasks / 10).await?;
    let samples = floor.requests(&request, tasks).await?;
    let seconds = samples.iter().sum::<f64>() / 1e3;
    let latency_us = Percentiles::of_ms(samples);
    let per_s = tasks as f64 / seconds;
    Ok(json!({"requests": tasks, "per_s": per_s, "latency_us": latency_us}).to_string())
}
