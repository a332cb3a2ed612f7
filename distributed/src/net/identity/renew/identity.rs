//! A worker's identity, which is renewed before it expires, over the connection that it still
//! opens, or after an absence.

use crate::config::WorkerConfig;
use crate::error::{Error, Result};
use crate::net::identity::certificate::SKEW;
use crate::net::identity::enrol::JoinRefusal;
use crate::net::identity::pki::{self, Identity};
use crate::net::identity::renew::request::{once, renewed};
use crate::net::identity::role::Protocol;
use crate::net::identity::tls;
use crate::net::transport::endpoint;
use crate::net::transport::rpc::{self, Ask, Certification};
use crate::net::transport::wire;
use quinn::{ClientConfig, Connection, Endpoint};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Time for the coordinator's answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Waits between attempts.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The identity that a worker shows, for as long as it runs.
pub(crate) struct RenewingIdentity {
    shown: Mutex<(Identity, ClientConfig)>,
    keep_in: Option<PathBuf>,
    slots: u32,
}

impl RenewingIdentity {
    /// The identity that a worker with so many devices was given.
    pub(crate) fn new(config: &WorkerConfig, devices: usize) -> Result<Arc<Self>> {
        let identity = config.identity.clone();
        let slots = config.places_of(devices);
        let client = client(&identity, slots)?;
        let (shown, keep_in) = (Mutex::new((identity, client)), config.keep_in.clone());
        Ok(Arc::new(Self { shown, keep_in, slots }))
    }

    fn shown(&self) -> MutexGuard<'_, (Identity, ClientConfig)> {
        // The identity is only replaced as a whole.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn identity(&self) -> Identity {
        self.shown().0.clone()
    }

    /// When the certificate expires.
    pub(crate) fn until(&self) -> Result<SystemTime> {
        Ok(self.shown().0.validity()?.1)
    }

    /// The configuration of the next connection.
    pub(crate) fn client(&self) -> ClientConfig {
        self.shown().1.clone()
    }

    /// Renews the identity whenever two thirds of its life have passed, until the connection ends or
    /// the coordinator refuses.
    pub(crate) async fn keep_fresh(self: Arc<Self>, connection: Connection) {
        loop {
            let Ok(life) = self.until_due().await else { return };
            match self.renew(&connection).await {
                Ok(()) => {
                    tracing::info!("certificate renewed");
                    // A clock that is ahead makes every certificate look old.
                    tokio::time::sleep(life / 10).await;
                }
                Err(Error::JoinRefused { refusal, .. }) if !is_passing(&refusal) => {
                    return tracing::error!(%refusal, "the certificate is not renewed");
                }
                Err(error) => {
                    tracing::warn!(%error, "the certificate is not renewed yet");
                    tokio::time::sleep((life / 20).clamp(WAIT.0, WAIT.1)).await;
                }
            }
        }
    }

    /// Resolves when the identity is to be renewed, with the identity's life.
    async fn until_due(&self) -> Result<Duration> {
        let identity = self.identity();
        let (at_most, life) = due(&identity, SystemTime::now())?;
        let began = Instant::now();
        loop {
            // The timer stands still while the machine sleeps; the certificate's time does not.
            let (wait, _) = due(&identity, SystemTime::now())?;
            let wait = wait.min(at_most.saturating_sub(began.elapsed()));
            if wait.is_zero() {
                return Ok(life);
            }
            tokio::time::sleep(wait.min(WAIT.1)).await;
        }
    }

    async fn renew(&self, connection: &Connection) -> Result<()> {
        let old = self.identity();
        let (key, csr) = pki::request()?;
        let request = Ask::Renew { name: old.name.clone(), csr };
        let exchange = rpc::ask::<Certification>(connection, &request);
        let answer = tokio::time::timeout(TIMEOUT, exchange).await;
        let addr = connection.remote_address();
        let refused = |refusal: JoinRefusal| Error::JoinRefused { addr, refusal };
        let answer = answer.map_err(|_| wire::lost("no answer came"))??;
        self.replace(renewed(&old, answer.map_err(refused)?, &key)?).await
    }

    /// Renews an identity that the coordinator has found to be expired.
    ///
    /// # Errors
    /// An error for which [`is_final`] is false may pass: try again.
    pub(crate) async fn recover(&self, endpoint: &Endpoint, addr: SocketAddr) -> Result<()> {
        let old = self.identity();
        let answer = tokio::time::timeout(TIMEOUT, once(endpoint, addr, &old)).await;
        self.replace(answer.map_err(|_| wire::lost("no answer came"))??).await
    }

    /// Shows another identity from the next connection on.
    async fn replace(&self, new: Identity) -> Result<()> {
        let client = client(&new, self.slots)?;
        if let Err(error) = self.keep(&new).await {
            // The kept identity can be renewed as long as this one works, and long after.
            tracing::error!(%error, "the renewed certificate is not kept");
        }
        *self.shown() = (new, client);
        Ok(())
    }

    async fn keep(&self, identity: &Identity) -> Result<()> {
        let Some(folder) = self.keep_in.clone() else { return Ok(()) };
        let identity = identity.clone();
        tokio::task::spawn_blocking(move || identity.save(&folder)).await.map_err(wire::lost)?
    }
}

fn is_passing(refusal: &JoinRefusal) -> bool {
    matches!(refusal, JoinRefusal::Busy | JoinRefusal::Unavailable)
}

/// Whether a failed renewal must not be tried again.
pub(crate) fn is_final(error: &Error) -> bool {
    match error {
        Error::JoinRefused { refusal, .. } => !is_passing(refusal),
        Error::Unreachable { .. } | Error::Connection(_) | Error::Frame(_) => false,
        _ => true,
    }
}

/// The configuration of a connection that shows this identity.
fn client(identity: &Identity, slots: u32) -> Result<ClientConfig> {
    let mut client = ClientConfig::new(Arc::new(tls::client(identity, Protocol::Work)?));
    client.transport_config(endpoint::config(endpoint::streams_for(slots), 1));
    Ok(client)
}

/// How long until two thirds of an identity's life have passed, and how long that life is. The wait
/// is bounded by the life, whatever the clocks say.
fn due(identity: &Identity, now: SystemTime) -> Result<(Duration, Duration)> {
    let (from, until) = identity.validity()?;
    let life = until.duration_since(from).unwrap_or_default().saturating_sub(SKEW);
    let spent = life * 2 / 3;
    let at = until.checked_sub(life - spent).unwrap_or(until);
    Ok((at.duration_since(now).unwrap_or_default().min(spent), life))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pki;

    #[test]
    fn two_thirds_of_the_life_pass_before_a_renewal() {
        let hours = |n: u64| Duration::from_secs(n * 3600);
        let pki = Pki::generate().expect("random numbers").with_certificate_life(hours(24));
        let identity = pki.issue_worker("w").expect("a name");
        let made = identity.validity().expect("sound").0 + SKEW;
        for (now, expected) in [
            (made, hours(16)),
            (made + hours(10), hours(6)),
            (made + hours(17), hours(0)),
            (made + hours(1000), hours(0)),
            // A clock that is a year behind.
            (made - hours(365 * 24), hours(16)),
        ] {
            let (wait, life) = due(&identity, now).expect("sound");
            assert_eq!((wait, life), (expected, hours(24)), "{now:?}");
        }
    }
}
