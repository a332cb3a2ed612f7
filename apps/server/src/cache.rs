//! The response cache of a model: answers for repeated inferences with the same inputs.
//!
//! A model's cache is bounded in bytes. Each entry has all outputs, whichever of them a request wants.

use crate::deployment::Deployment;
use lgp_sdk::cluster::ModelRef;
use lgp_sdk::tensor::NamedTensor;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};

/// Approximate bytes of an entry besides its outputs.
const ENTRY_BYTES: u64 = 256;
/// Entries to allocate for at first; there may be more.
const ENTRIES: usize = 64;

/// A digest of a model version and its inputs.
pub(crate) type Key = [u8; 32];

#[derive(Clone)]
struct Kept {
    outputs: Vec<NamedTensor>,
    since: Instant,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Kept> for Bytes {
    fn weight(&self, _: &Key, kept: &Kept) -> u64 {
        let bytes: usize = kept.outputs.iter().map(|o| o.tensor.packed_len() + o.name.len()).sum();
        u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(ENTRY_BYTES)
    }
}

/// The response cache of one model.
pub(crate) struct ResponseCache {
    kept: Cache<Key, Kept, Bytes>,
    ttl: Option<Duration>,
}

impl ResponseCache {
    /// The cache that a deployment asks for.
    pub(crate) fn of(wish: &Deployment) -> Option<Self> {
        let bytes = wish.cache_bytes?.get();
        // One shard, so that a single answer may fill the whole cache.
        let options = OptionsBuilder::new()
            .estimated_items_capacity(ENTRIES)
            .weight_capacity(bytes)
            .shards(1)
            .build()
            .ok()?;
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        let kept = Cache::with_options(options, Bytes, hasher, lifecycle);
        Some(Self { kept, ttl: wish.cache_ttl_ms.map(|ms| Duration::from_millis(ms.get())) })
    }

    /// The cached outputs of a key, unless they have expired.
    pub(crate) fn get(&self, key: &Key, now: Instant) -> Option<Vec<NamedTensor>> {
        let kept = self.kept.get(key)?;
        if self.ttl.is_some_and(|ttl| now.saturating_duration_since(kept.since) >= ttl) {
            self.kept.remove(key);
            return None;
        }
        Some(kept.outputs)
    }

    /// Caches outputs, if they fit at all.
    pub(crate) fn put(&self, key: Key, outputs: &[NamedTensor], now: Instant) {
        // Copied, because memory that a worker lends must return to it.
        let copy = |output: &NamedTensor| {
            let tensor = output.tensor.view().to_tensor().ok()?;
            Some(NamedTensor::new(output.name.clone(), tensor))
        };
        if let Some(outputs) = outputs.iter().map(copy).collect() {
            self.kept.insert(key, Kept { outputs, since: now });
        }
    }
}

impl std::fmt::Debug for ResponseCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (entries, bytes) = (self.kept.len(), self.kept.weight());
        f.debug_struct("ResponseCache").field("entries", &entries).field("bytes", &bytes).finish()
    }
}

/// The key of a model version and its inputs, in any order.
pub(crate) fn key(model: &ModelRef, inputs: &[NamedTensor]) -> Key {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        // Length prefixes keep different parts from hashing the same bytes.
        hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(bytes);
    };
    part(model.name.as_bytes());
    part(&model.version.to_le_bytes());
    part(model.sha256.as_bytes());
    let mut inputs: Vec<&NamedTensor> = inputs.iter().collect();
    inputs.sort_by(|a, b| a.name.cmp(&b.name));
    for NamedTensor { name, tensor } in inputs {
        part(name.as_bytes());
        part(tensor.dtype().name().as_bytes());
        part(format!("{:?}", tensor.shape().dims()).as_bytes());
        part(&tensor.packed());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_sdk::tensor::Tensor;
    use std::num::NonZeroU64;

    fn tensor(name: &str, shape: [usize; 2], values: &[f32]) -> NamedTensor {
        NamedTensor::new(name, Tensor::from_slice(shape, values).expect("small"))
    }

    fn cache(bytes: u64, ttl_ms: u64) -> ResponseCache {
        let (cache_bytes, cache_ttl_ms) = (NonZeroU64::new(bytes), NonZeroU64::new(ttl_ms));
        ResponseCache::of(&Deployment { cache_bytes, cache_ttl_ms, ..Deployment::default() })
            .expect("a size was given")
    }

    #[test]
    fn each_thing_that_may_change_an_answer_changes_the_key() {
        let model = |name: &str, version, sha256: &str| ModelRef {
            name: name.into(),
            version,
            sha256: sha256.into(),
        };
        let (a, b) = (tensor("a", [1, 2], &[1., 2.]), tensor("b", [1, 1], &[3.]));
        let both = [a.clone(), b.clone()];
        let one = key(&model("m", 1, "x"), &both);
        assert_eq!(one, key(&model("m", 1, "x"), &[b.clone(), a.clone()]), "the order is free");
        let bits = Tensor::from_slice([1, 1], &[3f32.to_bits()]).expect("small");
        for (what, other) in [
            ("name", key(&model("n", 1, "x"), &both)),
            ("version", key(&model("m", 2, "x"), &both)),
            ("digest", key(&model("m", 1, "y"), &both)),
            ("an input less", key(&model("m", 1, "x"), &both[..1])),
            ("value", key(&model("m", 1, "x"), &[a.clone(), tensor("b", [1, 1], &[4.])])),
            ("shape", key(&model("m", 1, "x"), &[tensor("a", [2, 1], &[1., 2.]), b.clone()])),
            ("dtype", key(&model("m", 1, "x"), &[a.clone(), NamedTensor::new("b", bits)])),
            ("input's name", key(&model("m", 1, "x"), &[a, tensor("c", [1, 1], &[3.])])),
        ] {
            assert_ne!(one, other, "{what}");
        }
    }

    #[test]
    fn answers_stay_until_they_are_old_or_others_need_the_room() {
        let outputs = [tensor("y", [1, 2], &[1., 2.])];
        let began = Instant::now();
        let after = |ms| began + Duration::from_millis(ms);
        let short = cache(1 << 20, 100);
        short.put([1; 32], &outputs, began);
        assert_eq!(short.get(&[1; 32], after(99)).as_deref(), Some(&outputs[..]));
        assert!(short.get(&[1; 32], after(100)).is_none() && short.get(&[2; 32], began).is_none());
        assert_eq!(short.kept.len(), 0, "what is too old takes no room");

        let small = cache(4 * (ENTRY_BYTES + 9), 0);
        (0..100u8).for_each(|n| small.put([n; 32], &outputs, began));
        let found = (0..100u8).filter(|n| small.get(&[*n; 32], after(1_000_000)).is_some()).count();
        assert!((1..=4).contains(&found), "{found} are kept");
        assert!(small.kept.weight() <= 4 * (ENTRY_BYTES + 9));
        let tiny = cache(8, 0);
        tiny.put([1; 32], &outputs, began);
        assert!(tiny.get(&[1; 32], began).is_none(), "it has no room for it");
        assert!(ResponseCache::of(&Deployment::default()).is_none(), "nobody asked for one");
    }
}
