//! The way to a coordinator: which one is tried next, how soon, and from which socket.

use crate::config::WorkerConfig;
use crate::error::{Error, Result};
use crate::net::identity::renew::RenewingIdentity;
use crate::net::identity::role::COORDINATOR_SAN;
use crate::net::transport::close::Close;
use crate::net::transport::endpoint;
use quinn::{Connection, ConnectionError, Endpoint};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// How long another process may seem to have this name later before that counts: more than a
/// coordinator needs to notice that a process is gone.
const NAME_TAKEN: Duration = Duration::from_secs(5);
/// How often the log says that no coordinator is reached, however often one is tried.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// The addresses of the coordinators, and which one is next.
#[derive(Debug, Default)]
pub(super) struct Route {
    addrs: Vec<SocketAddr>,
    at: usize,
    /// Attempts in a row that failed.
    failures: u32,
    /// How many of the last attempts were refused for good.
    refusals: usize,
    /// Since when another process has the name.
    taken: Option<Instant>,
    /// When the log last said that no coordinator is reached.
    said: Option<Instant>,
}

impl Route {
    /// The next coordinator to be tried. Names are looked up before the first one of each round.
    ///
    /// # Errors
    /// [`Error::UnknownHost`] where no name resolves, which counts as a failure.
    pub(super) async fn next(&mut self, config: &WorkerConfig) -> Result<SocketAddr> {
        if self.is_round() {
            let known = self.addrs.get(self.at).copied();
            match config.coordinators.addrs().await {
                Ok(addrs) => self.addrs = addrs,
                Err(error) => {
                    self.failures = self.failures.saturating_add(1);
                    return Err(error);
                }
            }
            let still = |known| self.addrs.iter().position(|addr| *addr == known);
            self.at = known.and_then(still).unwrap_or(0);
        }
        // A successful lookup has an address.
        self.addrs.get(self.at).copied().ok_or(Error::Stopped)
    }

    /// Whether all have been tried since one was reached, each as often.
    fn is_round(&self) -> bool {
        let all = u32::try_from(self.addrs.len()).unwrap_or(u32::MAX).max(1);
        self.failures.is_multiple_of(all)
    }

    /// A connection that was served has ended. The next one goes to the same coordinator, which may
    /// hold the attempts that run here, unless that coordinator said that it stops.
    pub(super) fn lost(&mut self, error: &ConnectionError) {
        (self.failures, self.refusals, self.taken, self.said) = (1, 0, None, None);
        if Close::given_by_peer(error) == Some(Close::Stopping) {
            self.turn();
        }
    }

    /// Whether to log that no coordinator is reached: at once, and then now and again.
    pub(super) fn is_worth_a_word(&mut self, now: Instant) -> bool {
        let is_due = self.said.is_none_or(|said| now.duration_since(said) >= SAID_EVERY);
        if is_due {
            self.said = Some(now);
        }
        is_due
    }

    /// An attempt failed, for now.
    pub(super) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.refusals = 0;
        self.turn();
    }

    /// Notes whether the coordinator says that a later process has the name. Returns whether every
    /// answer has said so for longer than a coordinator needs to notice that a process is gone.
    /// Until then, that process may be this worker's last one, from before the clock was set back.
    pub(super) fn is_taken(&mut self, now: Instant, said: bool) -> bool {
        if !said {
            self.taken = None;
            return false;
        }
        now.duration_since(*self.taken.get_or_insert(now)) > NAME_TAKEN
    }

    /// A coordinator will never take this worker; returns whether no other is left to try.
    pub(super) fn refused(&mut self) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.refusals += 1;
        self.turn();
        self.refusals >= self.addrs.len()
    }

    fn turn(&mut self) {
        self.at = (self.at + 1) % self.addrs.len().max(1);
    }

    /// How many rounds in a row failed, if the next attempt has to wait; a lost connection counts
    /// as one.
    pub(super) fn pause(&self) -> Option<u32> {
        let all = u32::try_from(self.addrs.len()).unwrap_or(u32::MAX).max(1);
        (self.failures == 1 || self.is_round()).then(|| self.failures.div_ceil(all))
    }
}

/// The sockets for reaching coordinators, one for each address family.
#[derive(Debug, Default)]
pub(super) struct Sockets([Option<Endpoint>; 2]);

impl Sockets {
    /// The socket for an address.
    ///
    /// # Errors
    /// [`Error::Bind`].
    pub(super) fn of(&mut self, addr: SocketAddr) -> Result<Endpoint> {
        let [v4, v6] = &mut self.0;
        let place = if addr.is_ipv4() { v4 } else { v6 };
        if let Some(endpoint) = place {
            return Ok(endpoint.clone());
        }
        let (endpoint, _) = endpoint::bind(endpoint::any_for(addr), None)?;
        Ok(place.insert(endpoint).clone())
    }
}

pub(super) async fn connect(
    endpoint: &Endpoint,
    identity: &RenewingIdentity,
    addr: SocketAddr,
) -> Result<Connection, ConnectionError> {
    match endpoint.connect_with(identity.client(), addr, COORDINATOR_SAN) {
        Ok(connecting) => connecting.await,
        // The address is unusable for now, or the endpoint is out of connection ids.
        Err(error) => {
            tracing::warn!(%addr, %error, "cannot connect");
            Err(ConnectionError::LocallyClosed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_is_said_at_once_and_then_now_and_again() {
        let (mut route, began) = (Route::default(), Instant::now());
        let at = |s: u64| began + Duration::from_secs(s);
        let said: Vec<u64> =
            (0..150).step_by(4).filter(|s| route.is_worth_a_word(at(*s))).collect();
        assert_eq!(said, [0, 60, 120]);
        route.lost(&ConnectionError::TimedOut);
        assert!(route.is_worth_a_word(at(151)), "a coordinator that was back is gone again");
    }

    #[test]
    fn a_name_is_taken_once_nothing_else_was_heard_for_a_while() {
        let (mut route, began) = (Route::default(), Instant::now());
        let at = |s: u64| began + Duration::from_secs(s);
        assert!(!route.is_taken(at(0), true) && !route.is_taken(at(4), true));
        assert!(!route.is_taken(at(5), false), "a coordinator that does not answer says nothing");
        assert!(!route.is_taken(at(11), true) && !route.is_taken(at(16), true));
        assert!(route.is_taken(at(17), true));
    }
}
