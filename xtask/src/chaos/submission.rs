//! One request of a client: a durable task or a batch of them, with its body.

use super::job::Job;
use super::picture::Pictures;
use super::rest::Body;
use serde_json::{Value, json};
use std::time::Duration;

/// A durable task.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) key: String,
    pub(super) job: Job,
    pub(super) priority: &'static str,
    pub(super) deadline: Option<Duration>,
    /// The places of earlier tasks of the same submission that this task depends on.
    pub(super) within: Vec<usize>,
    /// The ids of tasks of earlier submissions that this task depends on.
    pub(super) after: Vec<String>,
}

impl Spec {
    /// A task with default settings.
    pub(super) fn new(key: impl Into<String>, job: Job) -> Self {
        let (within, after) = (Vec::new(), Vec::new());
        Self { key: key.into(), job, priority: "normal", deadline: None, within, after }
    }

    fn json(&self, pictures: &Pictures, raw: &mut Vec<u8>) -> Value {
        let mut task = json!({
            "model": self.job.model(),
            "inputs": self.job.inputs(pictures, raw),
            "durable": true,
            "idempotency_key": self.key,
            "priority": self.priority,
        });
        if let Some(deadline) = self.deadline {
            task["deadline_ms"] = u64::try_from(deadline.as_millis()).unwrap_or(1).max(1).into();
        }
        let within = self.within.iter().map(|place| format!("#{place}"));
        let all: Vec<String> = within.chain(self.after.iter().cloned()).collect();
        if !all.is_empty() {
            task["depends_on"] = all.into();
        }
        task
    }
}

/// A request: one task, or several in a batch.
#[derive(Debug, Clone)]
pub(super) struct Submission(pub(super) Vec<Spec>);

impl Submission {
    /// The path of the request.
    pub(super) fn path(&self) -> &'static str {
        if self.0.len() == 1 { "tasks" } else { "tasks/batch" }
    }

    /// The body: the same bytes each time.
    pub(super) fn body(&self, pictures: &Pictures) -> Body {
        let mut raw = Vec::new();
        let mut tasks: Vec<Value> =
            self.0.iter().map(|spec| spec.json(pictures, &mut raw)).collect();
        let json = match tasks.pop() {
            Some(only) if tasks.is_empty() => only,
            last => {
                tasks.extend(last);
                json!({ "tasks": tasks })
            }
        };
        Body { json: json.to_string().into_bytes(), raw }
    }

    /// Bytes of all inputs.
    pub(super) fn input_bytes(&self) -> u64 {
        self.0.iter().map(|spec| spec.job.input_bytes()).sum()
    }

    /// The task ids in an answer that accepts the submission.
    pub(super) fn ids(&self, accepted: &Value) -> Option<Vec<String>> {
        let id = |task: &Value| task["task_id"].as_str().map(str::to_owned);
        if self.0.len() == 1 {
            return id(accepted).map(|id| vec![id]);
        }
        let ids: Vec<String> = accepted["tasks"].as_array()?.iter().filter_map(id).collect();
        (ids.len() == self.0.len()).then_some(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_all_that_is_asked_for() {
        let pictures = Pictures::of(&[&[0.0]]);
        let big = Job::Big { seed: 1, input: 100, output: 1 };
        let first = Spec::new("a", big);
        let alone = Submission(vec![first.clone()]);
        assert_eq!((alone.path(), alone.input_bytes()), ("tasks", 800));
        let body = alone.body(&pictures);
        let value: Value = serde_json::from_slice(&body.json).unwrap();
        assert_eq!((&value["idempotency_key"], body.raw.len()), (&json!("a"), 800));
        assert_eq!(alone.ids(&json!({ "task_id": "1-1" })), Some(vec!["1-1".to_owned()]));

        let mut second = Spec::new("b", big);
        second.deadline = Some(Duration::from_millis(70));
        (second.within, second.after) = (vec![0], vec!["1-1".to_owned()]);
        let both = Submission(vec![first, second]);
        let body = both.body(&pictures);
        let value: Value = serde_json::from_slice(&body.json).unwrap();
        assert_eq!((both.path(), body.raw.len()), ("tasks/batch", 1_600));
        assert_eq!(value["tasks"][1]["depends_on"], json!(["#0", "1-1"]));
        assert_eq!(value["tasks"][1]["deadline_ms"], 70);
        assert_eq!(both.ids(&json!({ "tasks": [{ "task_id": "1-1" }] })), None);
    }
}
