//! The caller of a request, identified by its key.

use super::keys::{KeyInfo, KeyRole};
use super::limits::{Limits, Place};
use super::local::LocalKey;
use crate::fault::Fault;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use std::sync::Arc;

/// The id that all callers without a key share.
pub(crate) const NO_KEY: &str = "-";

/// The caller of a request, with its place in its key's limits, which the last clone frees.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    who: Who,
    _place: Option<Arc<Place>>,
}

#[derive(Debug, Clone)]
enum Who {
    /// A program on this machine without a key.
    Anonymous,
    /// The reader of `local.key`.
    Owner,
    /// The owner of a key.
    Key(Arc<KeyInfo>),
}

impl Caller {
    pub(super) fn anonymous() -> Self {
        Self { who: Who::Anonymous, _place: None }
    }

    pub(super) fn owner() -> Self {
        Self { who: Who::Owner, _place: None }
    }

    pub(super) fn of(key: KeyInfo) -> Self {
        Self { who: Who::Key(Arc::new(key)), _place: None }
    }

    /// Takes a place for one more request, if the key's limits allow.
    pub(crate) fn placed(self, limits: &Limits) -> Result<Self, Fault> {
        let place = match &self.who {
            Who::Key(key) => limits.take(key)?.map(Arc::new),
            Who::Anonymous | Who::Owner => None,
        };
        Ok(Self { who: self.who, _place: place })
    }

    /// The caller without its place, for long-lived state that is not a request.
    pub(crate) fn without_place(&self) -> Self {
        Self { who: self.who.clone(), _place: None }
    }

    /// Counts `more` requests against the key's rate, besides the admitted one.
    pub(crate) fn count(&self, limits: &Limits, more: usize) -> Result<(), Fault> {
        match &self.who {
            Who::Key(key) => limits.count(key, more),
            Who::Anonymous | Who::Owner => Ok(()),
        }
    }

    /// The most concurrent requests of the caller, if limited.
    pub(crate) fn concurrent_max(&self) -> Option<usize> {
        match &self.who {
            Who::Key(key) => key.concurrent_max.and_then(|most| usize::try_from(most).ok()),
            Who::Anonymous | Who::Owner => None,
        }
    }

    pub(super) fn is_anonymous(&self) -> bool {
        matches!(self.who, Who::Anonymous)
    }

    /// The models that the caller may use; `None` for all.
    pub(crate) fn models(&self) -> Option<&[String]> {
        match &self.who {
            Who::Key(key) => key.models.as_deref(),
            Who::Anonymous | Who::Owner => None,
        }
    }

    pub(crate) fn role(&self) -> KeyRole {
        match &self.who {
            Who::Anonymous => KeyRole::Infer,
            Who::Owner => KeyRole::Admin,
            Who::Key(key) => key.role,
        }
    }

    /// Whether the caller may do everything.
    pub(crate) fn is_admin(&self) -> bool {
        self.role() == KeyRole::Admin
    }

    /// The caller's id in logs.
    pub(crate) fn id(&self) -> &str {
        match &self.who {
            Who::Anonymous => NO_KEY,
            Who::Owner => LocalKey::ID,
            Who::Key(key) => &key.id,
        }
    }

    /// Whether the caller may use a model of this name.
    pub(crate) fn may_use(&self, model: &str) -> bool {
        match &self.who {
            Who::Key(key) => key.models.as_ref().is_none_or(|all| all.iter().any(|m| m == model)),
            Who::Anonymous | Who::Owner => true,
        }
    }

    /// Whether there are models that the caller may not use.
    pub(crate) fn is_limited(&self) -> bool {
        matches!(&self.who, Who::Key(key) if key.models.is_some())
    }

    /// Refuses a model that the caller's key does not cover.
    pub(crate) fn check_model(&self, model: &str) -> Result<(), Fault> {
        if self.may_use(model) {
            return Ok(());
        }
        let name: String = model.chars().take(64).collect();
        let message = format!("key {} is not for model '{name}'", self.id());
        Err(Fault::new(StatusCode::FORBIDDEN, "forbidden_model", message)
            .hint("make one for it with radeon-cluster keys create --role ROLE --model NAME"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        // The access layer has added a caller to every request with a route.
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| {
            Fault::internal("a request came past the check of its key").for_path(parts.uri.path())
        })
    }
}
