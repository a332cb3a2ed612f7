//! Who sent a request, as far as its key tells.

use super::keys::{KeyInfo, KeyRole};
use super::limits::{Limits, Place};
use super::local::LocalKey;
use crate::fault::Fault;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use std::sync::Arc;

/// By what callers without a key are known: they are one.
pub(crate) const NO_KEY: &str = "-";

/// Who sent a request, and its place among those of its key, given back with the last clone.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    who: Who,
    _place: Option<Arc<Place>>,
}

#[derive(Debug, Clone)]
enum Who {
    /// A program of this machine without a key.
    Anonymous,
    /// Whoever can read `local.key`.
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

    /// The same with a place for one more request, which is what its key's limits leave.
    pub(crate) fn placed(self, limits: &Limits) -> Result<Self, Fault> {
        let place = match &self.who {
            Who::Key(key) => limits.take(key)?.map(Arc::new),
            Who::Anonymous | Who::Owner => None,
        };
        Ok(Self { who: self.who, _place: place })
    }

    /// The same without a place, for what lasts and is no request by itself.
    pub(crate) fn without_place(&self) -> Self {
        Self { who: self.who.clone(), _place: None }
    }

    /// Has the key's rate count so many requests more than the one that was let in.
    pub(crate) fn count(&self, limits: &Limits, more: usize) -> Result<(), Fault> {
        match &self.who {
            Who::Key(key) => limits.count(key, more),
            Who::Anonymous | Who::Owner => Ok(()),
        }
    }

    /// Requests that the caller may have under way at the same time, where that is limited.
    pub(crate) fn concurrent_max(&self) -> Option<usize> {
        match &self.who {
            Who::Key(key) => key.concurrent_max.and_then(|most| usize::try_from(most).ok()),
            Who::Anonymous | Who::Owner => None,
        }
    }

    pub(super) fn is_anonymous(&self) -> bool {
        matches!(self.who, Who::Anonymous)
    }

    /// The models that the caller may use, if not all.
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

    /// By what the caller is logged.
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

    /// Refuses a model that the caller's key is not for.
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
        // Each route that is served has one: the layer that lets requests in has put it there.
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| {
            Fault::internal("a request came past the check of its key").for_path(parts.uri.path())
        })
    }
}
