//! Partial changes of a deployment.

use super::{Deployment, Sequences, WarmUp};
use crate::versions::VersionPolicy;
use lgp_distributed::Batching;
use serde::{Deserialize, Deserializer};
use std::num::NonZeroU64;

/// A change of some fields of a [`Deployment`]: a JSON merge patch (RFC 7396) of its top-level fields. An absent
/// field keeps its value, `null` unsets it, and a value replaces the whole field, even an object. This is a type
/// instead of a JSON map so that duplicate fields are refused at every depth.
///
/// ```
/// use lgp_server::{Deployment, DeploymentPatch};
///
/// let said: Deployment = serde_json::from_str(r#"{"backend": "cpu", "memory_bytes": 5}"#)?;
/// let patch: DeploymentPatch = serde_json::from_str(r#"{"backend": null, "family": "Polaris"}"#)?;
/// let expected = r#"{"family": "Polaris", "memory_bytes": 5}"#;
/// assert_eq!(patch.over(said), serde_json::from_str::<Deployment>(expected)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeploymentPatch {
    memory_bytes: Change<u64>,
    backend: Change<String>,
    family: Change<String>,
    variants: Change<Vec<String>>,
    run_limit_ms: Change<NonZeroU64>,
    version_policy: Change<VersionPolicy>,
    cache_bytes: Change<NonZeroU64>,
    cache_ttl_ms: Change<NonZeroU64>,
    batching: Change<Batching>,
    sequences: Change<Sequences>,
    warm_up: Change<Vec<WarmUp>>,
}

impl DeploymentPatch {
    /// The deployment after the change, from `said` before it.
    #[must_use]
    pub fn over(self, said: Deployment) -> Deployment {
        Deployment {
            memory_bytes: self.memory_bytes.over(said.memory_bytes),
            backend: self.backend.over(said.backend),
            family: self.family.over(said.family),
            variants: self.variants.over(Some(said.variants)).unwrap_or_default(),
            run_limit_ms: self.run_limit_ms.over(said.run_limit_ms),
            version_policy: self.version_policy.over(said.version_policy),
            cache_bytes: self.cache_bytes.over(said.cache_bytes),
            cache_ttl_ms: self.cache_ttl_ms.over(said.cache_ttl_ms),
            batching: self.batching.over(said.batching),
            sequences: self.sequences.over(said.sequences),
            warm_up: self.warm_up.over(Some(said.warm_up)).unwrap_or_default(),
        }
    }
}

/// The change of a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Change<T> {
    /// The field is absent.
    #[default]
    None,
    Open,
    Value(T),
}

impl<T> Change<T> {
    fn over(self, said: Option<T>) -> Option<T> {
        match self {
            Self::None => said,
            Self::Open => None,
            Self::Value(value) => Some(value),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(from)?.map_or(Self::Open, Self::Value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn all() -> Value {
        json!({
            "memory_bytes": 5, "backend": "cpu", "family": "Polaris", "variants": ["a", "b"],
            "run_limit_ms": 500, "version_policy": "latest:2", "cache_bytes": 4096, "cache_ttl_ms": 50,
            "batching": {"max": 8, "preferred": [4], "delay_us": 500},
            "sequences": {"idle_ms": 5, "states": [{"input": "h", "output": "g"}], "controls": []},
            "warm_up": [{"shapes": {"x": [1, 2]}}],
        })
    }

    fn patched(said: &Value, patch: Value) -> Value {
        let said: Deployment = serde_json::from_value(said.clone()).expect("a deployment");
        let patch: DeploymentPatch = serde_json::from_value(patch).expect("a patch");
        serde_json::to_value(patch.over(said)).expect("JSON")
    }

    #[test]
    fn each_field_stays_opens_or_changes_by_itself() {
        let nothing = serde_json::to_value(Deployment::default()).expect("JSON");
        let all = all();
        assert_eq!(patched(&all, json!({})), all);
        let fields: Vec<&String> = nothing.as_object().expect("an object").keys().collect();
        assert_eq!(fields, all.as_object().expect("an object").keys().collect::<Vec<_>>());
        for field in fields {
            let mut expected = all.clone();
            expected[field] = nothing[field].clone();
            assert_eq!(patched(&all, json!({ field: null })), expected, "{field}");
            let mut expected = nothing.clone();
            expected[field] = all[field].clone();
            assert_eq!(patched(&nothing, json!({ field: all[field] })), expected, "{field}");
        }
        // A value replaces the whole field; nested fields are not merged.
        let patched = patched(&all, json!({"batching": {"max": 2}, "variants": ["c"]}));
        assert_eq!(patched["batching"], json!({"max": 2, "preferred": [], "delay_us": 0}));
        assert_eq!(patched["variants"], json!(["c"]));
    }

    #[test]
    fn what_is_no_field_or_no_value_of_one_is_refused() {
        for (text, part) in [
            (r#"{"memory": 1}"#, "unknown field `memory`"),
            (r#"{"memory_bytes": -1}"#, "-1"),
            (r#"{"cache_bytes": 0}"#, "nonzero"),
            (r#"{"batching": {"preferred": [4]}}"#, "max"),
            (r#"{"variants": [null]}"#, "null"),
            (r#"{"backend": null, "backend": "cpu"}"#, "duplicate field `backend`"),
        ] {
            let error = serde_json::from_str::<DeploymentPatch>(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
