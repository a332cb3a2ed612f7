//! The room for copies of requests.

use std::sync::Arc;
use tokio::sync::Semaphore;

/// The most bytes that copies hold at once.
const ROOM_BYTES: usize = 64 << 20;

/// The room for copies that wait or run.
#[derive(Debug)]
pub(crate) struct Shadows(pub(super) Arc<Semaphore>);

impl Default for Shadows {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM_BYTES)))
    }
}
