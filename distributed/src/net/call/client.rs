//! The caller's side: [`Client`], for clients and administrators.

mod exchange;

use super::{Call, Told, room};
use crate::error::{Error, Result};
use crate::net::identity::pki::{self, Identity, Revocation};
use crate::net::identity::renew::renewed;
use crate::net::identity::role::{COORDINATOR_SAN, Protocol, Role};
use crate::net::identity::tls;
use crate::net::identity::token::{JoinToken, TokenInfo};
use crate::net::transport::coordinators::Coordinators;
use crate::net::transport::endpoint;
use crate::net::transport::wire;
use crate::task::{ModelRef, TaskId, TaskRecord, TaskSpec};
use crate::worker_info::{Stats, WorkerId, WorkerInfo};
pub(crate) use exchange::{Answered, Parcel};
use exchange::{ended, odd};
use quinn::{ClientConfig, Connection};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;

/// Time to connect.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a coordinator, with the calls that a client's or an administrator's certificate
/// allows. Clones share the connection; it ends with the last clone.
///
/// Each method is one call on its own stream, so that a long call delays no other. The coordinator
/// handles 256 calls of a connection at once, and accepts 16 connections per role and name. Up to
/// 64 MiB of inputs are on the way at once; further inputs wait here. Dropping a call's future
/// abandons the call, but work that the call began goes on.
///
/// The certificate is not renewed by itself: see [`Client::renew`], and [`renew`](crate::renew) for
/// a certificate that has expired. When it expires, connections made with it are closed, too.
///
/// Every method fails with [`Error::RoleNeeded`] where the certificate's role does not allow it,
/// [`Error::JoinRefused`] when the certificate was revoked or has expired, [`Error::Connection`]
/// when the connection is lost, [`Error::Overloaded`] when other connections (of the same name, or
/// of all names) have too many inputs on the way, and [`Error::CallFailed`] with the coordinator's
/// message for other failures.
///
/// ```
/// use lgp_distributed::{Client, Coordinator, CoordinatorConfig, Pki, Role, Services, Tokens, enrol};
/// use std::time::Duration;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pki = Pki::generate()?;
/// let tokens = Tokens::open(&pki)?;
/// let services = Services { tokens: Some(tokens.clone()), ..Services::default() };
/// let config = CoordinatorConfig { quic_addr: "127.0.0.1:0".parse()?, ..Default::default() };
/// let coordinator = Coordinator::start_with(config, &pki, services).await?;
/// let addr = coordinator.quic_addr();
///
/// // Whoever runs the coordinator gives a token to an administrator, who elsewhere does this.
/// let (_, token) = tokens.create_for(Role::Admin, 1, Duration::from_secs(3600))?;
/// let identity = enrol(addr, &token, Role::Admin, &"alice".parse()?).await?;
/// let admin = Client::connect(addr, &identity).await?;
/// assert_eq!(admin.stats().await?.workers.ready, 0);
///
/// // She lets a client in, who may give the cluster tasks, and nothing else.
/// let (_, token) = admin.create_token(Role::Client, 1, Duration::from_secs(60)).await?;
/// let identity = enrol(addr, &token, Role::Client, &"bob".parse()?).await?;
/// let client = Client::connect(addr, &identity).await?;
/// assert!(client.models().await?.is_empty());
/// assert!(client.stats().await.is_err());
/// # coordinator.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    connection: Connection,
    addr: SocketAddr,
    /// When the certificate of this connection expires.
    until: SystemTime,
    /// Limits inputs on the way: inputs that the coordinator has no room for would stay unread, and
    /// block every other call of the connection.
    room: Arc<Semaphore>,
}

impl Client {
    /// Connects to the first coordinator that answers; it must be of the identity's cluster.
    ///
    /// # Errors
    /// [`Error::Refused`] where either side does not trust the other, or the identity is neither a client's nor an
    /// administrator's; [`Error::UnknownHost`]; [`Error::JoinRefused`] when the identity has expired, with
    /// [`JoinRefusal::CertificateExpired`](crate::JoinRefusal::CertificateExpired) where [`renew`](crate::renew) helps;
    /// [`Error::Connection`] when no coordinator answers; [`Error::Pki`]; [`Error::Bind`].
    pub async fn connect(
        coordinators: impl Into<Coordinators>,
        identity: &Identity,
    ) -> Result<Self> {
        coordinators.into().ask(|addr| Self::connect_to(addr, identity)).await
    }

    /// Whether the connection is still open.
    pub(crate) fn is_open(&self) -> bool {
        self.connection.close_reason().is_none()
    }

    /// The error for an answer that belongs to another call.
    pub(crate) fn odd() -> Error {
        odd()
    }

    async fn connect_to(addr: SocketAddr, identity: &Identity) -> Result<Self> {
        let until = identity.validity()?.1;
        let mut config = ClientConfig::new(Arc::new(tls::client(identity, Protocol::Call)?));
        config.transport_config(endpoint::config(0, 0));
        let (endpoint, _) = endpoint::bind(endpoint::any_for(addr), None)?;
        let connecting = async {
            let connecting = endpoint.connect_with(config, addr, COORDINATOR_SAN);
            let connection = connecting.map_err(wire::lost)?.await;
            let connection = connection.map_err(|error| ended(addr, &error, until))?;
            let client = Self { connection, addr, until, room: room::body() };
            // Only an answered call shows that the coordinator lets this member in.
            client.done(Call::Greet).await?;
            Ok(client)
        };
        let late = |_| Error::Connection(format!("no answer from {addr} within {TIMEOUT:?}"));
        tokio::time::timeout(TIMEOUT, connecting).await.map_err(late)?
    }

    /// The models of the cluster; each task names one of them.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn models(&self) -> Result<Vec<ModelRef>> {
        match self.call(Call::Models).await? {
            Told::Models(models) => Ok(models),
            _ => Err(odd()),
        }
    }

    /// Submits a task; returns its id once the coordinator has accepted it: for a durable task,
    /// once the journal has it. The inputs may have up to 64 MiB.
    ///
    /// # Errors
    /// As [`Client`] says, and as [`Coordinator::submit_all`](crate::Coordinator::submit_all).
    pub async fn submit(&self, spec: TaskSpec) -> Result<TaskId> {
        match self.give(spec, Call::Submit).await?.0 {
            Told::Task(id) => Ok(id),
            _ => Err(odd()),
        }
    }

    /// Submits a task and waits until it has ended, whatever its state then is.
    ///
    /// # Errors
    /// As [`Client::submit`]; the record says how an accepted task ended.
    pub async fn run(&self, spec: TaskSpec) -> Result<TaskRecord> {
        let (told, recv) = self.give(spec, Call::Run).await?;
        self.record(told, recv).await
    }

    /// Waits until a task has ended, whatever its state then is.
    ///
    /// # Errors
    /// As [`Client`] says; [`Error::UnknownTask`].
    pub async fn wait(&self, id: TaskId) -> Result<TaskRecord> {
        self.ask_record(Call::Wait(id)).await
    }

    /// A task's record as it is now.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub async fn task(&self, id: TaskId) -> Result<TaskRecord> {
        self.ask_record(Call::Task(id)).await
    }

    /// Cancels a task that has not ended.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub async fn cancel(&self, id: TaskId) -> Result<TaskRecord> {
        self.ask_record(Call::Cancel(id)).await
    }

    /// Renews an identity: same name and role, valid from now. This connection stays open until the
    /// new one expires; other connections made with the old one are closed when that expires.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn renew(&self, identity: &Identity) -> Result<Identity> {
        let (key, csr) = pki::request()?;
        match self.call(Call::Renew { csr }).await? {
            Told::Certified(certified) => renewed(identity, certified, &key),
            _ => Err(odd()),
        }
    }

    /// Every worker, by name. This method and all below need an administrator's certificate.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>> {
        match self.call(Call::Workers).await? {
            Told::Workers(workers) => Ok(workers),
            _ => Err(odd()),
        }
    }

    /// Totals of the coordinator.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn stats(&self) -> Result<Stats> {
        match self.call(Call::Stats).await? {
            Told::Stats(stats) => Ok(*stats),
            _ => Err(odd()),
        }
    }

    /// Asks a worker to finish its tasks and leave.
    ///
    /// # Errors
    /// As [`Client`] says; [`Error::UnknownWorker`], also for a lost one.
    pub async fn shutdown_worker(&self, id: &str) -> Result<()> {
        self.done(Call::ShutdownWorker(id.to_owned())).await
    }

    /// Makes the coordinator accept no more tasks; returns when every accepted task has ended.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn drain(&self) -> Result<()> {
        self.done(Call::Drain).await
    }

    /// Makes the coordinator's [`Supervisor`](crate::Supervisor) bring the number of local workers
    /// to `workers`; returns the number before.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn scale(&self, workers: usize) -> Result<usize> {
        match self.call(Call::Scale(u64::try_from(workers).unwrap_or(u64::MAX))).await? {
            Told::Count(before) => Ok(usize::try_from(before).unwrap_or(usize::MAX)),
            _ => Err(odd()),
        }
    }

    /// Makes a token that lets `uses` members of a role join within `ttl`. The token is taken back
    /// when the administrator who made it is revoked.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn create_token(
        &self,
        role: Role,
        uses: u32,
        ttl: Duration,
    ) -> Result<(TokenInfo, JoinToken)> {
        match self.call(Call::CreateToken { role, uses, ttl }).await? {
            Told::Token(info, token) => Ok((info, token.parse()?)),
            _ => Err(odd()),
        }
    }

    /// Revokes every certificate that a member has; returns the revocation, and how many of its
    /// connections were closed. See [`Coordinator::revoke`](crate::Coordinator::revoke).
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn revoke(&self, role: Role, name: WorkerId) -> Result<(Revocation, u64)> {
        match self.call(Call::Revoke { role, name }).await? {
            Told::Revoked(revocation, closed) => Ok((revocation, closed)),
            _ => Err(odd()),
        }
    }
}
