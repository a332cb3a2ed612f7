//! The REST and gRPC interfaces over a running cluster.

use crate::cluster::launch::Cluster;
use crate::failure::{Failure, Result};
use crate::folder;
use crate::settings::Settings;
use lgp_sdk::cluster::Pki;
use lgp_server::{Access, LocalKey, ServerConfig, ServerState, Tls};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A free loopback port.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const MAKE_KEY: &str = "radeon-cluster keys create --role infer";

/// Where the interfaces listen.
pub(crate) struct Listeners {
    http: TcpListener,
    grpc: TcpListener,
    tls: Option<Tls>,
    /// REST on loopback for local programs, where the other listener speaks TLS.
    local: Option<TcpListener>,
    /// The listener for Frigate's detector, if it is served.
    frigate: Option<TcpListener>,
    /// The listener for Immich's machine learning, if it is served.
    immich: Option<TcpListener>,
}

impl Listeners {
    /// Binds the addresses of the settings.
    ///
    /// # Errors
    /// `address_in_use`; for an address other machines reach, `address_not_loopback` without TLS, which would let them
    /// read along, and `no_keys` without an API key; when the certificate is not usable.
    pub(crate) async fn bind(settings: &Settings, pki: &Pki, access: &Access) -> Result<Self> {
        let tls = settings.http.tls.open(pki)?;
        for (flag, addr) in [("http", settings.http.addr), ("grpc", settings.grpc.addr)] {
            if !addr.ip().is_loopback() {
                check((flag, addr), &settings.data, tls.is_some(), access.has_keys())?;
            }
        }
        let frigate = bind_local(&FRIGATE, settings.frigate.addr).await?;
        let immich = bind_local(&IMMICH, settings.immich.addr).await?;
        let http = bind("http", settings.http.addr).await?;
        let grpc = bind("grpc", settings.grpc.addr).await?;
        let local = match tls {
            Some(_) => Some(bind("http", ANY_PORT).await?),
            None => None,
        };
        Ok(Self { http, grpc, tls, local, frigate, immich })
    }

    /// The REST interface's URL. An address that stands for all is replaced by `host`.
    pub(crate) fn url(&self, host: Option<&str>) -> Option<String> {
        let addr = self.http.local_addr().ok()?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match (addr.ip().is_unspecified(), host) {
            (true, Some(host)) => Some(format!("{scheme}://{host}:{}", addr.port())),
            (true, None) => None,
            (false, _) => Some(format!("{scheme}://{addr}")),
        }
    }

    /// Binds free loopback ports.
    pub(crate) async fn local() -> Result<Self> {
        let (http, grpc) = (bind("http", ANY_PORT).await?, bind("grpc", ANY_PORT).await?);
        Ok(Self { http, grpc, tls: None, local: None, frigate: None, immich: None })
    }
}

/// Whether an address on the network may be served.
fn check(
    (flag, addr): (&str, SocketAddr),
    data: &Path,
    has_tls: bool,
    has_keys: bool,
) -> Result<()> {
    let data = data.display();
    let remedy = format!(
        "these two lines make it work, the second with what else was given:\n  {MAKE_KEY} --data {data}\n  \
         radeon-cluster start --{flag} {addr} --tls self-signed --data {data}"
    );
    let (code, reason) = match (has_tls, has_keys) {
        (false, _) => {
            ("address_not_loopback", "without TLS whoever is on the network reads keys and data")
        }
        (true, false) => ("no_keys", "nobody has an API key to use it with"),
        (true, true) => return Ok(()),
    };
    Err(Failure::new(code, format!("refusing to serve {flag} on {addr}: {reason}")).hint(remedy))
}

/// An interface whose protocol knows no credentials.
struct Guest {
    flag: &'static str,
    program: &'static str,
    what: &'static str,
}

const FRIGATE: Guest = Guest { flag: "frigate", program: "Frigate", what: "Frigate's detector" };
const IMMICH: Guest =
    Guest { flag: "immich", program: "Immich", what: "Immich's machine learning" };

/// Binds a loopback address, if the interface is wanted.
async fn bind_local(guest: &Guest, addr: Option<SocketAddr>) -> Result<Option<TcpListener>> {
    match addr {
        Some(addr) if !addr.ip().is_loopback() => Err(guest_refused(guest, addr)),
        Some(addr) => bind(guest.flag, addr).await.map(Some),
        None => Ok(None),
    }
}

/// No key and no certificate would help.
fn guest_refused(Guest { flag, program, what }: &Guest, addr: SocketAddr) -> Failure {
    let message =
        format!("refusing to serve {what} on {addr}: its protocol has neither keys nor encryption");
    Failure::new("address_not_loopback", message).hint(format!(
        "serve it with --{flag} 127.0.0.1:{port}, give {program}'s container the host's network, and from \
         another machine come through a tunnel: ssh -N -L {port}:127.0.0.1:{port} HOST",
        port = addr.port()
    ))
}

async fn bind(flag: &str, addr: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(addr).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::address_in_use(flag, addr, "tcp"),
        _ => Failure::new("address_unusable", format!("cannot listen on {addr}/tcp: {error}")),
    })
}

/// Access control: the cluster's keys, the owner's key in the data folder, and the audit log there.
pub(crate) fn access(pki: &Pki, data: &Path) -> Result<Access> {
    let local = LocalKey::ensure(&folder::local_key(data))?;
    Ok(Access::open(pki)?.with_local(local).with_audit(&folder::audit_log(data))?)
}

/// Interfaces that serve.
pub(crate) struct Service {
    url: String,
    grpc_url: String,
    local_url: Option<String>,
    frigate_url: Option<String>,
    immich_url: Option<String>,
    listeners: Vec<Listening>,
}

/// One listener's task, and the sender that ends it.
struct Listening {
    end: oneshot::Sender<()>,
    task: JoinHandle<lgp_server::Result<()>>,
}

/// Serves a cluster until [`Service::finish`].
pub(crate) fn serve(
    cluster: &Cluster,
    access: Access,
    listeners: Listeners,
    config: ServerConfig,
) -> Result<Service> {
    let driver = Arc::new(cluster.driver.clone());
    let (coordinator, repository) = (cluster.coordinator.clone(), cluster.repository.clone());
    let state = ServerState::new(config, coordinator, repository, access, Some(driver));
    let Listeners { http, grpc, tls, local, frigate, immich } = listeners;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = |scheme: &str, listener: &TcpListener| {
        let addr = listener.local_addr().map_err(Failure::internal)?;
        Ok::<_, Failure>(format!("{scheme}://{}", reachable(addr)))
    };
    let (http_url, grpc_url) = (url(scheme, &http)?, url(scheme, &grpc)?);
    let local_url = local.as_ref().map(|local| url("http", local)).transpose()?;
    let frigate_url = frigate.as_ref().map(|frigate| url("tcp", frigate)).transpose()?;
    let immich_url = immich.as_ref().map(|immich| url("http", immich)).transpose()?;
    let mut all = Vec::new();
    if let Some(frigate) = frigate {
        let (stop, ended) = end();
        let serving = lgp_server::serve_frigate(frigate, state.clone(), ended);
        all.push(Listening { end: stop, task: tokio::spawn(serving) });
    }
    if let Some(immich) = immich {
        let (stop, ended) = end();
        let serving = lgp_server::serve_immich(immich, state.clone(), ended);
        all.push(Listening { end: stop, task: tokio::spawn(serving) });
    }
    let (stop, ended) = end();
    let serving = lgp_server::serve_grpc(grpc, tls.clone(), state.clone(), ended);
    all.push(Listening { end: stop, task: tokio::spawn(serving) });
    for (listener, tls) in [(Some(http), tls), (local, None)] {
        let Some(listener) = listener else { continue };
        let (stop, ended) = end();
        let serving = lgp_server::serve(listener, tls, state.clone(), ended);
        all.push(Listening { end: stop, task: tokio::spawn(serving) });
    }
    Ok(Service { url: http_url, grpc_url, local_url, frigate_url, immich_url, listeners: all })
}

/// A sender that ends a listener, and the future that the listener waits for.
fn end() -> (oneshot::Sender<()>, impl Future<Output = ()> + Send + 'static) {
    let (end, ended) = oneshot::channel::<()>();
    // A dropped sender ends the service just as well.
    (end, async { drop(ended.await) })
}

/// An address that a program of this machine can connect to.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

impl Service {
    /// Base URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Base URL of gRPC.
    pub(crate) fn grpc_url(&self) -> &str {
        &self.grpc_url
    }

    /// Base URL of REST for local programs, where it differs.
    pub(crate) fn local_url(&self) -> Option<&str> {
        self.local_url.as_deref()
    }

    /// The address of Frigate's detector, if it is served, in Frigate's notation.
    pub(crate) fn frigate_url(&self) -> Option<&str> {
        self.frigate_url.as_deref()
    }

    /// The address of Immich's machine learning, if it is served, in the notation of Immich's settings.
    pub(crate) fn immich_url(&self) -> Option<&str> {
        self.immich_url.as_deref()
    }

    /// Lets open requests finish and ends.
    pub(crate) async fn finish(self) {
        let tasks = self.listeners.into_iter().map(|Listening { end, task }| {
            // A listener that has already ended needs no signal.
            let _ = end.send(());
            task
        });
        for task in tasks.collect::<Vec<_>>() {
            match task.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "an interface failed"),
                Err(error) => tracing::error!(%error, "an interface failed"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_on_the_network_takes_a_certificate_and_a_key() {
        let (addr, data) = ("0.0.0.0:8000".parse().expect("an address"), Path::new("/somewhere"));
        for (tls, keys, code) in [
            (false, false, "address_not_loopback"),
            (false, true, "address_not_loopback"),
            (true, false, "no_keys"),
        ] {
            let failure = check(("http", addr), data, tls, keys).expect_err(code);
            assert_eq!(failure.code, code);
            let hint = failure.hint.expect("what to do");
            assert!(hint.contains("keys create") && hint.contains("--tls self-signed"), "{hint}");
            assert_eq!(hint.matches("--data /somewhere").count(), 2, "{hint}");
        }
        check(("http", addr), data, true, true).expect("it has both");
        for guest in [&FRIGATE, &IMMICH] {
            let failure = guest_refused(guest, "0.0.0.0:5555".parse().expect("an address"));
            assert_eq!(failure.code, "address_not_loopback");
            let flag = format!("--{} 127.0.0.1:5555", guest.flag);
            assert!(failure.hint.expect("what to do").contains(&flag));
        }
        assert_eq!(reachable(addr).to_string(), "127.0.0.1:8000");
    }
}
