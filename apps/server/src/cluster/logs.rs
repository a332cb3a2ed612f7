//! Recent log lines of this machine's processes.

use crate::fault::{ClusterError, Fault};
use crate::logs::{LogFilter, LogLevel, LogLine, read_logs};
use crate::query;
use crate::state::ServerState;
use axum::Json;
use axum::extract::{RawQuery, State};

/// The default number of lines in an answer.
const USUAL: usize = 100;
/// The most lines in an answer.
const MOST: usize = 1_000;

/// `GET logs?level=L&contains=TEXT&after=TIME&limit=N`: a bare array, oldest first.
pub(crate) async fn show(
    State(state): State<ServerState>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<LogLine>>, ClusterError> {
    let filter = filter(&query.unwrap_or_default())?;
    let paths = state.driver().map(|driver| driver.logs()).unwrap_or_default();
    let reading = tokio::task::spawn_blocking(move || read_logs(&paths, &filter));
    let lines = reading.await.map_err(Fault::internal)?.map_err(Fault::internal)?;
    Ok(Json(lines))
}

fn filter(query: &str) -> Result<LogFilter, Fault> {
    let mut filter =
        LogFilter { level: LogLevel::Trace, contains: String::new(), after: None, limit: USUAL };
    for part in query::parts(query) {
        let (key, value) = part?;
        match key {
            "level" => filter.level = value.parse().map_err(Fault::bad_input)?,
            "contains" => filter.contains = value,
            "after" => filter.after = Some(value),
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MOST).contains(limit));
                filter.limit = limit.ok_or_else(|| {
                    let given = query::shown(&value);
                    Fault::bad_input(format!("limit is '{given}', expected 1 to {MOST}"))
                })?;
            }
            other => return Err(query::unknown(other, "level, contains, after, limit")),
        }
    }
    Ok(filter)
}
