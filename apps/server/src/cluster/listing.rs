//! `GET tasks`: pages of tasks that match a query.

use super::references::may_see;
use super::tasks::{model_name, summary};
use crate::access::Caller;
use crate::fault::{ClusterError, Fault};
use crate::faults;
use crate::query;
use crate::state::ServerState;
use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::header::LINK;
use axum::response::{IntoResponse, Response};
use lgp_distributed::TaskFilter;
use lgp_sdk::cluster::{TaskId, TaskRecord};

/// `GET tasks`: a bare array, newest first, without outputs. If more may follow, a link leads to the next page. A
/// key limited to models sees only their tasks, so its pages may be shorter; only the link shows whether more
/// follow.
pub(crate) async fn list(
    State(state): State<ServerState>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Response, ClusterError> {
    let query = query.unwrap_or_default();
    let filter = filter(&query)?;
    let mut page = state.coordinator().tasks(&filter).await.map_err(faults::cluster)?;
    page.tasks
        .retain(|record| may_see(&state, &caller, (&record.model.name, record.model.version)));
    let told = page.tasks.into_iter().map(|record| faults::for_caller(&caller, record));
    let tasks: Vec<TaskRecord> = told.collect();
    let body = Json(tasks.iter().map(summary).collect::<Vec<_>>());
    Ok(match page.next {
        Some(next) => ([(LINK, link(&query, next))], body).into_response(),
        None => body.into_response(),
    })
}

/// A link to the same query, starting after a task.
fn link(query: &str, after: TaskId) -> String {
    let others = query.split('&').filter(|part| !part.is_empty() && !part.starts_with("after="));
    let after = format!("after={after}");
    let query: Vec<&str> = others.chain([after.as_str()]).collect();
    format!("</api/v1/cluster/tasks?{}>; rel=\"next\"", query.join("&"))
}

fn filter(query: &str) -> Result<TaskFilter, Fault> {
    let mut filter = TaskFilter::default();
    for part in query::parts(query) {
        let (key, value) = part?;
        match key {
            "state" => filter.state = Some(value.parse().map_err(faults::cluster)?),
            "model" => {
                let (name, version) = model_name(&value)?;
                (filter.model, filter.version) = (Some(name.to_owned()), version);
            }
            "limit" => filter.limit = limit(&value)?,
            "after" => filter.after = Some(value.parse().map_err(faults::cluster)?),
            other => return Err(query::unknown(other, "state, model, limit or after")),
        }
    }
    Ok(filter)
}

fn limit(given: &str) -> Result<usize, Fault> {
    let most = TaskFilter::LIMIT_MAX;
    given.parse().ok().filter(|limit| (1..=most).contains(limit)).ok_or_else(|| {
        Fault::bad_input(format!("limit is '{}', expected 1 to {most}", query::shown(given)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_sdk::cluster::TaskState;

    #[test]
    fn queries_are_read_or_refused() {
        let all = filter("state=failed&model=a%2Bb%2F3&limit=5&after=1-2").expect("right");
        let after = "1-2".parse().ok();
        let model = Some("a+b".to_owned());
        let (state, version) = (Some(TaskState::Failed), Some(3));
        assert_eq!(all, TaskFilter { state, model, version, limit: 5, after });
        assert_eq!(filter("").ok(), Some(TaskFilter::default()));
        for wrong in [
            "state=odd",
            "model=a/b",
            "limit=0",
            "limit=1001",
            "after=x",
            "sort=1",
            "model=%zz",
            "limit",
        ] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn links_keep_the_rest_of_the_query() {
        let after = "1-2".parse().expect("an id");
        let link = link("state=failed&after=1-9&limit=5", after);
        assert_eq!(link, "</api/v1/cluster/tasks?state=failed&limit=5&after=1-2>; rel=\"next\"");
    }
}
