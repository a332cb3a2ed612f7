//! `start`: a coordinator with local workers, in the background unless told otherwise.

use crate::cluster::HUGE_PAGES;
use crate::cluster::host;
use crate::commands::coordinator::Announcement;
use crate::device;
use crate::failure::{Failure, Result};
use crate::folder::{self, Endpoint};
use crate::logging::LogFormat;
use crate::output::{self, Output};
use crate::settings::{self, Flags, Last, Settings};
use crate::tls::Certificate;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Flags of `start`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster start --workers 2 --http 127.0.0.1:8000\n\n\
    Returns when the cluster is ready. Every flag is also a setting: of the file\n\
    radeon-cluster.toml in the data folder (workers = 2, or addr under [http]), and of the\n\
    environment (RADEON_WORKERS=2, RADEON_HTTP__ADDR=127.0.0.1:8000). Flags win over the\n\
    environment, and the environment over the file.\n\n\
    Flags are remembered in the data folder: a plain start there comes to the same again, after a\n\
    crash and after stop, and says so. A flag that is given replaces the one of then; --fresh forgets\n\
    the others. With --foreground, as service managers start it, only what is given counts.\n\n\
    Settings without a flag: for how many seconds results of durable tasks wait to be read\n\
    (results_kept_for_s, a week), on how much of their disk (results_disk_share, 0.1), and for\n\
    how many seconds an idempotency key stands after its task's end (keys_kept_for_s, 600).")]
pub(crate) struct Args {
    /// Local worker processes; they share the cores [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    workers: Option<u16>,
    /// Address of the REST interface; port 0 picks a free one [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR", value_parser = settings::address)]
    http: Option<SocketAddr>,
    /// The certificate of the REST interface, without which it listens on loopback only: off,
    /// self-signed, or CERT.pem,KEY.pem [default: off]
    #[arg(long, value_name = "CERTIFICATE")]
    tls: Option<Certificate>,
    /// Address of the gRPC interface; port 0 picks a free one [default: 127.0.0.1:8001]
    #[arg(long, value_name = "ADDR", value_parser = settings::address)]
    grpc: Option<SocketAddr>,
    /// Address for workers, UDP; 0.0.0.0:8443 lets machines join from the network, with tokens; port 0
    /// picks a free one [default: 127.0.0.1:8443]
    #[arg(long, value_name = "ADDR", value_parser = settings::address)]
    quic: Option<SocketAddr>,
    /// Where several coordinators keep what they share, postgres://USER@localhost/NAME or
    /// etcd://HOST:PORT,nats://HOST:PORT: those that name the same place are one cluster, and when the
    /// one that leads is gone another goes on. An address with a password belongs in the variable
    /// RADEON_CONTROL, for others see command lines [default: the data folder]
    #[arg(long, value_name = "URL")]
    control: Option<String>,
    /// The name under which that place keeps this cluster [default: radeon_cluster]
    #[arg(long, value_name = "NAME")]
    control_name: Option<String>,
    /// Where all coordinators keep the large tensors of durable tasks, file:///FOLDER or
    /// s3://BUCKET/PREFIX [default: the data folder]
    #[arg(long, value_name = "URL")]
    blobs: Option<String>,
    /// Where other coordinators reach this one [default: the address of --quic]
    #[arg(long, value_name = "HOST[:PORT]")]
    reached_at: Option<String>,
    /// Address for Frigate's detector zmq, on loopback, where it takes detectors' models and answers their
    /// images; port 0 picks a free one [default: none]
    #[arg(long, value_name = "ADDR", value_parser = settings::address)]
    frigate: Option<SocketAddr>,
    /// Address for Immich's machine learning, on loopback, with models of the cluster; port 0 picks a free
    /// one [default: none]
    #[arg(long, value_name = "ADDR", value_parser = settings::address)]
    immich: Option<SocketAddr>,
    /// Where models, logs and all else of the cluster live [default: $RADEON_DATA, or
    /// ~/.local/share/radeon-cluster]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The device of the workers: auto, cpu, vulkan:0, opencl:0, cuda:0 …; several, as in vulkan:0,vulkan:1, take
    /// tasks side by side [default: auto]
    #[arg(short, long)]
    device: Option<String>,
    /// The settings file [default: radeon-cluster.toml in the data folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The form of log lines: text, or json for programs that collect logs [default: text]
    #[arg(long, value_name = "FORM", hide_possible_values = true)]
    log_format: Option<LogFormat>,
    /// Stay in the foreground and log to stderr
    #[arg(long)]
    foreground: bool,
    /// Forget the flags of the last start
    #[arg(long)]
    fresh: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let given = Flags {
        config: args.config.as_deref(),
        data: args.data.as_deref(),
        device: args.device.as_deref(),
        workers: args.workers.map(usize::from),
        http: args.http,
        tls: args.tls.as_ref(),
        grpc: args.grpc,
        quic: args.quic,
        control: args.control.as_deref(),
        control_name: args.control_name.as_deref(),
        blobs: args.blobs.as_deref(),
        reached_at: args.reached_at.as_deref(),
        frigate: args.frigate,
        log_format: args.log_format,
        immich: args.immich,
        last: Last::default(),
    };
    let data = settings::data_folder(&given, settings::environment)?;
    // Service managers pass all flags on every start.
    let last = if args.fresh || args.foreground { Last::default() } else { Last::read(&data)? };
    let remembered = last.words(&given)?;
    let config = given.config.or(last.config.as_deref());
    let flags = Flags { config, data: Some(&data), last: last.clone(), ..given };
    for (name, meant) in settings::misspelt(names()) {
        out.note(format!("the environment variable {name} is no setting; did you mean {meant}?"));
    }
    if !remembered.is_empty() {
        out.note(format!("as it was last started: {remembered}; --fresh forgets that"));
    }
    let next = last.with(&flags)?;
    let settings = settings::resolve(&flags, settings::environment)?;
    // Checked before anything starts, because this process can show a wrong name best.
    device::resolve_each(&settings.device)?;
    settings.control()?;
    settings.blobs(settings::environment)?;
    if args.foreground {
        crate::logging::init("info", settings.log_format);
        let ready = |endpoint: &Endpoint| {
            next.keep(&settings.data)?;
            out.emit(endpoint, |it| text(it, settings.http.addr, settings.grpc.addr))
        };
        return host(&settings, std::future::pending(), ready);
    }
    let log = folder::log_file(&settings.data);
    let workers = output::counted(settings.workers, "worker");
    let waiting =
        out.waiting(format!("{workers} to be ready and load models; the log is {}", log.display()));
    let endpoint = start_in_background(&settings)?;
    drop(waiting);
    next.keep(&settings.data)?;
    out.emit(&endpoint, |it| text(it, settings.http.addr, settings.grpc.addr))?;
    if settings.workers == 0 && settings.workers_max == 0 {
        out.note("no worker is started here: nothing computes until one joins");
    }
    Ok(())
}

/// The names of this process's environment variables that are text.
fn names() -> impl Iterator<Item = String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())
}

/// A URL for this machine; where all addresses are listened on, the URL with that address comes first.
fn everywhere(url: &str, listens_on: IpAddr) -> String {
    let own = url.split_once("://").and_then(|(scheme, at)| Some((scheme, at.rsplit_once(':')?.1)));
    match own.filter(|_| listens_on.is_unspecified()) {
        Some((scheme, port)) => {
            let port = port.parse().unwrap_or_default();
            format!("{scheme}://{} (here {url})", SocketAddr::new(listens_on, port))
        }
        None => url.to_owned(),
    }
}

/// The text about a coordinator for people. The addresses are those that REST and gRPC listen on.
fn text(endpoint: &Endpoint, addr: SocketAddr, grpc_addr: SocketAddr) -> String {
    let Endpoint { pid, http, grpc, quic, frigate, immich, data, fingerprint, .. } = endpoint;
    let (data, grpc) = (data.display(), grpc.as_deref().unwrap_or("-"));
    let trust = fingerprint.as_ref().map_or_else(String::new, |fingerprint| {
        // Other machines cannot use the address that local programs use.
        let any = addr.ip().is_unspecified();
        let port = http.rsplit(':').next().unwrap_or_default();
        let url = if any { format!("https://HOST:{port}") } else { http.clone() };
        let note = if any { "HOST is a name or address of this machine\n" } else { "" };
        format!(
            "elsewhere: radeon-cluster status --server {url} --fingerprint {fingerprint}\n{note}"
        )
    });
    let optional = |name: &str, url: &Option<String>| {
        url.as_ref().map_or_else(String::new, |url| format!("{name}  {url}\n"))
    };
    let (frigate, immich) = (optional("frigate", frigate), optional("immich", immich));
    let (http, grpc) = (everywhere(http, addr.ip()), everywhere(grpc, grpc_addr.ip()));
    format!(
        "coordinator {pid} is ready\n\
         http  {http}\n\
         grpc  {grpc}\n\
         quic  {quic}\n\
         data  {data}\n\
         {frigate}\
         {immich}\
         {trust}\
         stop it with: radeon-cluster stop --data {data}\n"
    )
}

/// Starts a coordinator process and waits for its announcement.
fn start_in_background(settings: &Settings) -> Result<Endpoint> {
    let failed =
        |error: std::io::Error| Failure::new("start_failed", format!("cannot start: {error}"));
    let data = &settings.data;
    folder::make(data)?;
    let log_file = folder::log_file(data);
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&log_file)
        .map_err(|error| Failure::file("write", &log_file, &error))?;
    let mut child = Command::new(std::env::current_exe().map_err(failed)?)
        .arg("coordinator")
        .env(HUGE_PAGES, "0")
        .current_dir(data)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(failed)?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Failure::internal("a coordinator without stdin and stdout"));
    };
    let text = serde_json::to_string(settings).map_err(Failure::internal)?;
    writeln!(stdin, "{text}").map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
    match serde_json::from_str(&line) {
        Ok(Announcement::Ready(endpoint)) => {
            // From here on the coordinator runs by itself.
            writeln!(stdin, "stay").map_err(failed)?;
            Ok(endpoint)
        }
        Ok(Announcement::Failed(failure)) => {
            // The coordinator has announced its failure, so an error of reaping it does not matter.
            let _ = child.wait();
            Err(failure)
        }
        Err(_) => Err(Failure::new("start_failed", "the coordinator ended before it was ready")
            .hint(format!("its log is {}", log_file.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_from_other_machines_names_no_address_that_only_this_one_has() {
        let endpoint = Endpoint {
            pid: 1,
            http: "https://127.0.0.1:8000".to_owned(),
            local: None,
            fingerprint: Some("f00d".to_owned()),
            grpc: None,
            quic: "127.0.0.1:1".to_owned(),
            frigate: None,
            immich: None,
            data: PathBuf::from("data"),
        };
        for (addr, url) in [
            ("0.0.0.0:8000", "--server https://HOST:8000 --fingerprint f00d\nHOST is"),
            ("127.0.0.1:8000", "--server https://127.0.0.1:8000 --fingerprint f00d\nstop"),
        ] {
            let addr: SocketAddr = addr.parse().expect("an address");
            let text = text(&endpoint, addr, addr);
            assert!(text.contains(url), "{text}");
            let everywhere = "http  https://0.0.0.0:8000 (here https://127.0.0.1:8000)\n";
            assert_eq!(text.contains(everywhere), addr.ip().is_unspecified(), "{text}");
        }
    }
}
