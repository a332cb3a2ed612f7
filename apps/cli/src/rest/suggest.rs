//! Suggests known names for unknown ones.

use super::{Client, segment};
use crate::failure::Failure;
use crate::near::near;
use serde_json::Value;

/// Codes of refusals, the list of known names, and the field with the name.
const KINDS: [(&str, &str, &str); 6] = [
    ("unknown_model", "models", "name"),
    ("unknown_worker", "workers", "id"),
    ("unknown_task", "tasks?limit=1000", "task_id"),
    ("unknown_key", "keys", "id"),
    ("unknown_token", "tokens", "id"),
    ("unknown_alias", "aliases", "name"),
];

impl Client {
    /// Adds the nearest known name to a refusal of an unknown name in `path`.
    pub(super) fn suggest(&self, failure: Failure, path: &str) -> Failure {
        let kind = KINDS.iter().find(|(code, ..)| *code == failure.code);
        let Some((_, list, field)) = kind else { return failure };
        // Without the list there is no suggestion.
        let request = self.bounded(self.agent.get(self.url(list)), list);
        let all: Vec<Value> = self.answer(|| request.call()).unwrap_or_default();
        let names: Vec<&str> = all.iter().filter_map(|one| one[*field].as_str()).collect();
        let wrong = path.split(['/', '?']).nth(1).unwrap_or_default();
        // The name is known: its version is not, or the body names something else.
        if names.contains(&wrong) {
            return failure;
        }
        // Only names that need no encoding are compared; all valid names are such.
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
