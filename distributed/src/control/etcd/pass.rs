//! Login to etcd. A user and a password get a token, which each request carries. Tokens end when
//! they are unused and when users or roles change, so a refused token is renewed.

use super::proto::auth_client::AuthClient;
use super::proto::{AuthenticateRequest, AuthenticateResponse};
use crate::control::endpoints::Account;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

/// The least time allowed for a password check, which members make slow on purpose.
const CHECK: Duration = Duration::from_secs(1);
/// The longest token that is accepted.
const TOKEN_BYTES_MAX: usize = 8 << 10;

/// A connection whose requests carry the token.
pub(super) type Line = InterceptedService<Channel, Token>;

/// The token of a request, if etcd requires a login.
#[derive(Clone, Default)]
pub(super) struct Token(Option<MetadataValue<Ascii>>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("token", token.clone());
        }
        Ok(request)
    }
}

/// A user and its latest token.
#[derive(Debug, Clone)]
pub(super) struct Pass {
    account: Option<Account>,
    latest: Arc<Mutex<Option<Token>>>,
}

impl Pass {
    pub(super) fn new(account: Option<Account>) -> Self {
        Self { account, latest: Arc::default() }
    }

    /// The longest time that [`Self::ask`] takes for a limit.
    pub(super) fn longest(&self, limit: Duration) -> Duration {
        match self.account {
            Some(_) => (limit + limit.max(CHECK)) * 2,
            None => limit,
        }
    }

    /// Sends a request to an endpoint with a limit for the answer. A stale token is renewed once.
    pub(super) async fn ask<T, F>(
        &self,
        channel: &Channel,
        limit: Duration,
        ask: &(impl Fn(Line) -> F + Sync),
    ) -> Result<Response<T>, Status>
    where
        F: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let once = |token| within(limit, ask(InterceptedService::new(channel.clone(), token)));
        let Some(account) = &self.account else { return once(Token::default()).await };
        let known = self.lock().clone();
        if let Some(token) = known {
            match once(token).await {
                Err(status) if is_stale(&status) => {}
                answer => return answer,
            }
        }
        let renew = authenticate(channel.clone(), account);
        let token = within(limit.max(CHECK), renew).await?;
        *self.lock() = Some(token.clone());
        once(token).await
    }

    #[cfg(test)]
    pub(super) fn token(&self) -> Option<Vec<u8>> {
        let latest = self.lock().clone();
        latest.and_then(|token| token.0).map(|token| token.as_encoded_bytes().to_vec())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Token>> {
        // The value is only replaced as a whole.
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let late = |_| Status::deadline_exceeded(format!("no answer within {} ms", limit.as_millis()));
    tokio::time::timeout(limit, work).await.map_err(late)?
}

async fn authenticate(channel: Channel, account: &Account) -> Result<Token, Status> {
    let Account { user, password } = account.clone();
    let request = AuthenticateRequest { name: user, password };
    let answer = AuthClient::new(channel).authenticate(request).await?;
    let AuthenticateResponse { token, .. } = answer.into_inner();
    let odd = || Status::failed_precondition("the token that it gave is none");
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(odd());
    }
    let mut token = MetadataValue::try_from(token).map_err(|_| odd())?;
    token.set_sensitive(true);
    Ok(Token(Some(token)))
}

/// Whether a refused token can be replaced by a new one: it expired, the member was restarted, or
/// users and roles were changed.
fn is_stale(status: &Status) -> bool {
    let said = status.message();
    status.code() == Code::Unauthenticated
        || ["invalid auth token", "revision of auth store is old"]
            .iter()
            .any(|part| said.contains(part))
}

/// What to do about a request that is refused for its user.
pub(super) fn unsigned(status: &Status) -> Option<&'static str> {
    let said = status.message();
    [
        ("authentication failed", "expected etcd://USER:PASSWORD@HOST:PORT of an account that it has"),
        ("user name is empty", "it wants a user: write etcd://USER:PASSWORD@HOST:PORT"),
        (
            "authentication is not enabled",
            "it asks nobody who is there: have it do so (etcdctl auth enable), or leave user and \
             password out of the address",
        ),
        (
            "permission denied",
            "grant a role of its user that: etcdctl role grant-permission ROLE readwrite --prefix=true \
             radeon-cluster/",
        ),
    ]
    .into_iter()
    .find_map(|(part, remedy)| said.contains(part).then_some(remedy))
}
