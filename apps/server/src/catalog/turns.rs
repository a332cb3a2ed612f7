//! Serializes operations on each model; those on different models run concurrently.

use super::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::OwnedMutexGuard;

/// A lock for each model with a running or waiting operation.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Waits for the model's turn, which ends when the guard is dropped.
    pub(super) async fn of(&self, name: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = lock(&self.0);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let known = turns.get(name).and_then(Weak::upgrade);
            let turn = known.unwrap_or_default();
            turns.insert(name.to_owned(), Arc::downgrade(&turn));
            turn
        };
        turn.lock_owned().await
    }
}
