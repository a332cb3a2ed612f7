//! The open connections. At the limit, an idle connection makes room for the next one.

use super::activity::Activity;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How long to wait for a place before more idle connections are asked to leave.
const LOOK: Duration = Duration::from_millis(250);
/// How long a connection that must leave has to end by itself.
pub(super) const LEAVE: Duration = Duration::from_millis(200);
/// More connections than any process has.
const MOST: u32 = 1 << 20;

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    free: Arc<Semaphore>,
    most: u32,
    open: Mutex<Vec<Weak<Activity>>>,
    began: Instant,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Self {
        let most = u32::try_from(most).unwrap_or(u32::MAX).clamp(1, MOST);
        let free = Arc::new(Semaphore::new(usize::try_from(most).unwrap_or(1)));
        Self { free, most, open: Mutex::default(), began: Instant::now() }
    }

    /// A place for one more connection, once one is free.
    pub(crate) async fn room(&self) -> Arc<Activity> {
        let mut asked = 1;
        let place = loop {
            if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
                break Ok(place);
            }
            // Connections take time to leave. While none has left, more are asked.
            self.make_room(asked);
            asked = asked.saturating_mul(2);
            let waits = Arc::clone(&self.free).acquire_owned();
            if let Ok(place) = tokio::time::timeout(LOOK, waits).await {
                break place;
            }
        };
        // The semaphore is never closed.
        let activity = Arc::new(Activity::new(self.began, place.ok()));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() == open.capacity() {
            open.retain(|activity| activity.strong_count() > 0);
        }
        open.push(Arc::downgrade(&activity));
        activity
    }

    /// The number of taken places.
    pub(crate) fn taken(&self) -> usize {
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        most.saturating_sub(self.free.available_permits())
    }

    /// Resolves once no connection is open.
    pub(crate) async fn all_ended(&self) {
        // The semaphore is never closed.
        let _ = self.free.acquire_many(self.most).await;
    }

    /// Asks `count` idle connections to leave, those idle for longest first.
    fn make_room(&self, count: usize) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let living = open.iter().filter_map(Weak::upgrade);
        let mut idle: Vec<_> = living
            .filter(|activity| !activity.is_busy() && !activity.is_asked.load(Relaxed))
            .map(|activity| (activity.idle_since_ms.load(Relaxed), activity))
            .collect();
        idle.sort_unstable_by_key(|(since_ms, _)| *since_ms);
        for (_, activity) in idle.iter().take(count) {
            activity.is_asked.store(true, Relaxed);
            activity.leave.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn the_longest_idle_connection_makes_room() {
        let connections = Connections::new(2);
        let first = connections.room().await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let second = connections.room().await;
        let busy = first.begin();
        {
            let room = connections.room();
            tokio::pin!(room);
            tokio::select! {
                _ = &mut room => panic!("two are open"),
                () = first.asked_to_leave() => panic!("it is busy"),
                () = second.asked_to_leave() => {}
            }
            drop(second);
            room.await;
        }
        assert!(first.is_busy());
        drop(busy);
        let third = connections.room().await;
        tokio::select! {
            _ = connections.room() => panic!("two are open"),
            () = third.asked_to_leave() => panic!("the other is idle for longer"),
            () = first.asked_to_leave() => {}
        }
        drop((first, third));
        connections.all_ended().await;
    }

    #[tokio::test]
    async fn a_full_house_asks_at_once_and_more_where_nobody_leaves() {
        let connections = Connections::new(8);
        let mut open = Vec::new();
        for _ in 0..8 {
            open.push(connections.room().await);
        }
        let asked = || open.iter().filter(|one| one.asked_to_leave().now_or_never().is_some());
        let room = connections.room();
        tokio::pin!(room);
        assert!(room.as_mut().now_or_never().is_none());
        assert_eq!(asked().count(), 1, "before anything was waited for");
        assert!(tokio::time::timeout(3 * LOOK, &mut room).await.is_err());
        assert!(asked().count() >= 2);
    }
}
