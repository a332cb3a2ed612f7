//! What somebody may have meant who named what there is not.

use super::{Client, segment};
use crate::failure::Failure;
use crate::near::near;
use serde_json::Value;

/// Codes of refusals, where to look for what there is, and the field with its names.
const KINDS: [(&str, &str, &str); 6] = [
    ("unknown_model", "models", "name"),
    ("unknown_worker", "workers", "id"),
    ("unknown_task", "tasks?limit=1000", "task_id"),
    ("unknown_key", "keys", "id"),
    ("unknown_token", "tokens", "id"),
    ("unknown_alias", "aliases", "name"),
];

impl Client {
    /// A refusal with the name that may have been meant, where what `path` names is not known.
    pub(super) fn suggest(&self, failure: Failure, path: &str) -> Failure {
        let kind = KINDS.iter().find(|(code, ..)| *code == failure.code);
        let Some((_, list, field)) = kind else { return failure };
        // A list that cannot be had suggests nothing.
        let request = self.bounded(self.agent.get(self.url(list)), list);
        let all: Vec<Value> = self.answer(|| request.call()).unwrap_or_default();
        let names: Vec<&str> = all.iter().filter_map(|one| one[*field].as_str()).collect();
        let wrong = path.split(['/', '?']).nth(1).unwrap_or_default();
        // One that is there has no such version, or is named by the body.
        if names.contains(&wrong) {
            return failure;
        }
        // Names that need no encoding are compared as they are, which are all that there can be.
        let Some(meant) = near(wrong, names.into_iter().filter(|name| segment(name) == *name))
        else {
            return failure;
        };
        let hint = match &failure.hint {
            Some(hint) => format!("did you mean {meant}? {hint}"),
            None => format!("did you mean {meant}?"),
        };
        failure.hint(hint)
    }
}
