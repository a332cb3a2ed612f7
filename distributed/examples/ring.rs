//! Compares an all-reduce between processes with plain QUIC streams of as many bytes.
//!
//! The parent is the coordinator. It starts itself again for each rank and sends it a worker's
//! identity through stdin; the ranks find each other through the coordinator. Each round is timed
//! after a barrier, once as an all-reduce and once as a plain quinn stream to the next process with
//! the bytes that an all-reduce sends, `2 (n - 1) / n` of all. The slowest rank counts.
//!
//! ```text
//! cargo run --release -p lgp-distributed --example ring -- [--ranks N] [--elements N] [--rounds N] [--json]
//! ```
//!
//! By default two ranks reduce 25.6 million f32, about the gradients of a ResNet-50.

use bytes::Bytes;
use lgp_distributed::{Coordinator, CoordinatorConfig, Identity, Pki, Ring, RingConfig, RingPeers};
use lgp_memory::Reduction;
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TransportConfig};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// The size of a ring's frame.
const CHUNK_BYTES: usize = 256 << 10;
/// As in a ring: unread bytes of a stream, and the requested buffer of a socket.
const WINDOW: u32 = 8 << 20;
const SOCKET_BUFFER: usize = 4 << 20;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

#[derive(Serialize, Deserialize)]
struct Bootstrap {
    coordinator: SocketAddr,
    identity: Identity,
    rank: u32,
    options: Options,
    /// Certificate and key of the plain streams, in DER.
    plain: (Vec<u8>, Vec<u8>),
}

#[derive(Clone, Serialize, Deserialize)]
struct Options {
    ranks: u32,
    elements: usize,
    rounds: usize,
    json: bool,
}

/// Milliseconds of each round.
#[derive(Serialize, Deserialize)]
struct Times {
    all_reduce: Vec<f64>,
    plain: Vec<f64>,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if arguments.peek().is_some_and(|a| a == "--rank") {
        return runtime.block_on(rank());
    }
    let mut options = Options { ranks: 2, elements: 25_600_000, rounds: 10, json: false };
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--ranks" => options.ranks = number()?.parse()?,
            "--elements" => options.elements = number()?.parse()?,
            "--rounds" => options.rounds = number()?.parse()?,
            "--json" => options.json = true,
            other => return Err(format!("unknown argument {other:?}").into()),
        }
    }
    runtime.block_on(parent(options))
}

/// A rank's process, which is killed when the handle is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn parent(options: Options) -> Result<()> {
    let pki = Pki::generate()?;
    let config = CoordinatorConfig { quic_addr: ANY, ..CoordinatorConfig::default() };
    let coordinator = Coordinator::start(config, &pki).await?;
    let plain = rcgen::generate_simple_self_signed(vec!["plain".to_owned()])?;
    let plain = (plain.cert.der().to_vec(), plain.signing_key.serialize_der());
    let mut ranks = Vec::new();
    for rank in 0..options.ranks {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--rank").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process(command.spawn()?);
        let bootstrap = Bootstrap {
            coordinator: coordinator.quic_addr(),
            identity: pki.issue_worker(&format!("rank-{rank}"))?,
            rank,
            options: options.clone(),
            plain: plain.clone(),
        };
        let mut stdin = process.0.stdin.take().ok_or("no stdin")?;
        writeln!(stdin, "{}", serde_json::to_string(&bootstrap)?)?;
        ranks.push((process, stdin));
    }
    let mut slowest: Option<Times> = None;
    for (process, _stdin) in &mut ranks {
        let stdout = process.0.stdout.take().ok_or("no stdout")?;
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        let times: Times = serde_json::from_str(&line.await??)?;
        slowest = Some(match slowest {
            None => times,
            Some(others) => Times {
                all_reduce: later(others.all_reduce, &times.all_reduce),
                plain: later(others.plain, &times.plain),
            },
        });
    }
    coordinator.stop().await;
    show(&options, slowest.ok_or("there is no rank")?)
}

fn later(mut a: Vec<f64>, b: &[f64]) -> Vec<f64> {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = a.max(*b));
    a
}

fn show(options: &Options, times: Times) -> Result<()> {
    let Options { ranks, elements, .. } = *options;
    if options.json {
        let values = serde_json::json!({
            "ranks": ranks, "elements": elements,
            "all_reduce_ms": times.all_reduce, "plain_ms": times.plain,
        });
        println!("{values}");
        return Ok(());
    }
    let sent = 4. * elements as f64 * 2. * (f64::from(ranks) - 1.) / f64::from(ranks);
    for (what, mut ms) in [("all-reduce", times.all_reduce), ("plain stream", times.plain)] {
        ms.sort_by(f64::total_cmp);
        let (least, median) = (ms[0], ms[ms.len() / 2]);
        let rate = sent / median / 1e6;
        println!("{what:>12}: least {least:.0} ms, median {median:.0} ms, {rate:.2} GB/s a rank");
    }
    Ok(())
}

async fn rank() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let Bootstrap { coordinator, identity, rank, options, plain } = serde_json::from_str(&line)?;
    // stdin closes when the parent ends for any reason.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let Options { ranks, elements, rounds, .. } = options;
    let peers = RingPeers::Coordinator(coordinator);
    let mut ring = Ring::join(RingConfig::new(identity, "example", (rank, ranks), peers)).await?;
    let (_endpoint, from, to) = neighbours(&mut ring, plain).await?;
    let bytes = elements * 4 * 2 * (ranks as usize - 1) / ranks as usize;
    let mut data = vec![0f32; elements];
    let mut times = Times { all_reduce: Vec::new(), plain: Vec::new() };
    for _ in 0..rounds {
        data.fill(rank as f32);
        ring.barrier().await?;
        let began = Instant::now();
        ring.all_reduce(&mut data, Reduction::Sum).await?;
        times.all_reduce.push(began.elapsed().as_secs_f64() * 1e3);
        let expected = (0..ranks).sum::<u32>() as f32;
        if data.iter().any(|x| *x != expected) {
            return Err("a sum is wrong".into());
        }
        ring.barrier().await?;
        let began = Instant::now();
        tokio::try_join!(send(&to, bytes), receive(&from, bytes))?;
        times.plain.push(began.elapsed().as_secs_f64() * 1e3);
    }
    ring.leave().await?;
    println!("{}", serde_json::to_string(&times)?);
    Ok(())
}

/// Plain connections from the previous rank and to the next one.
async fn neighbours(
    ring: &mut Ring,
    (cert, key): (Vec<u8>, Vec<u8>),
) -> Result<(Endpoint, Connection, Connection)> {
    let cert = CertificateDer::from(cert);
    let key = PrivateKeyDer::try_from(key)?;
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(WINDOW.into()).send_window(4 * u64::from(WINDOW));
    let transport = Arc::new(transport);
    let mut server = ServerConfig::with_single_cert(vec![cert.clone()], key)?;
    server.transport_config(Arc::clone(&transport));
    let mut roots = RootCertStore::empty();
    roots.add(cert)?;
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots))?;
    client.transport_config(transport);
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&ANY.into())?;
    let runtime = Arc::new(quinn::TokioRuntime);
    let mut endpoint =
        Endpoint::new(EndpointConfig::default(), Some(server), socket.into(), runtime)?;
    endpoint.set_default_client_config(client);
    let ports = ring.all_gather(&[i32::from(endpoint.local_addr()?.port())]).await?;
    let next = ports[(ring.rank() as usize + 1) % ports.len()];
    let connecting =
        endpoint.connect((Ipv4Addr::LOCALHOST, u16::try_from(next)?).into(), "plain")?;
    let accepting = async { Ok(endpoint.accept().await.ok_or("closed")?.await?) };
    let connecting = async { Ok::<_, Box<dyn Error>>(connecting.await?) };
    let (from, to) = tokio::try_join!(accepting, connecting)?;
    Ok((endpoint, from, to))
}

async fn send(to: &Connection, bytes: usize) -> Result<()> {
    let mut stream = to.open_uni().await?;
    let chunk = Bytes::from(vec![1; CHUNK_BYTES]);
    let mut left = bytes;
    while left > 0 {
        let now = left.min(CHUNK_BYTES);
        stream.write_chunk(chunk.slice(..now)).await?;
        left -= now;
    }
    Ok(stream.finish()?)
}

async fn receive(from: &Connection, bytes: usize) -> Result<()> {
    let mut stream = from.accept_uni().await?;
    let (mut buffer, mut came) = (vec![0; CHUNK_BYTES], 0);
    while let Some(now) = stream.read(&mut buffer).await? {
        came += now;
    }
    if came == bytes { Ok(()) } else { Err(format!("{came} of {bytes} bytes came").into()) }
}
