//! Waiting for the end of a task within a request.

use crate::access::Caller;
use crate::fault::Fault;
use crate::faults;
use crate::query;
use crate::state::ServerState;
use lgp_sdk::cluster::{TaskId, TaskRecord};
use std::time::Duration;

/// The wait in a query, capped at `most_ms`; none by default.
pub(super) fn limit(query: &str, most_ms: u64) -> Result<Duration, Fault> {
    let mut limit = Duration::ZERO;
    for part in query::parts(query) {
        let (key, value) = part?;
        if key != "wait_ms" {
            return Err(query::unknown(key, "wait_ms"));
        }
        let ms: u64 = value.parse().map_err(|_| {
            let given = query::shown(&value);
            Fault::bad_input(format!("wait_ms is '{given}', expected milliseconds from 0"))
        })?;
        limit = Duration::from_millis(ms.min(most_ms));
    }
    Ok(limit)
}

/// Waits for a task and returns its record if it ends meanwhile. `None` if it had ended before, if
/// the limit has passed, and if the server is stopping.
///
/// # Errors
/// 503 if too many callers wait; 404 and 410 as for showing a task.
pub(super) async fn ended(
    (state, caller): (&ServerState, &Caller),
    id: TaskId,
    limit: Duration,
) -> Result<Option<TaskRecord>, Fault> {
    let stands = match state.coordinator().state(id) {
        // To wait for an open task, the local state suffices; it need not be confirmed.
        Ok(open) if !open.is_terminal() && !limit.is_zero() => open,
        _ => state.coordinator().state_of(id).await.map_err(faults::cluster)?,
    };
    if limit.is_zero() || stands.is_terminal() {
        return Ok(None);
    }
    let _place = state.waiters().take(caller.id()).ok_or_else(|| {
        let most = state.config().waiters_max;
        let what =
            format!("{most} may wait for tasks, the last eighth of them callers that have few");
        Fault::unavailable("busy", what).hint("ask without wait_ms, or later")
    })?;
    tokio::select! {
        record = state.coordinator().wait(id) => record.map(Some).map_err(faults::cluster),
        () = tokio::time::sleep(limit) => Ok(None),
        () = state.closing() => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_or_refused_by_name() {
        for (query, ms) in [
            ("", 0),
            ("wait_ms=0", 0),
            ("wait_ms=10", 10),
            ("&wait_ms=1000&", 1000),
            ("wait_ms=1001", 1000),
        ] {
            assert_eq!(limit(query, 1_000).ok(), Some(Duration::from_millis(ms)), "{query}");
        }
        let beyond = "wait_ms=18446744073709551616";
        for query in ["wait_ms", "wait_ms=", "wait_ms=-1", "wait_ms=1.5", "wait_ms=x", beyond] {
            let fault = limit(query, 1_000).expect_err(query);
            assert!(fault.message.contains("wait_ms is") && fault.status == 400, "{fault:?}");
        }
        let fault = limit("wait=5", 1_000).expect_err("a name that is not known");
        assert!(fault.message.contains("'wait', expected wait_ms"), "{fault:?}");
    }
}
