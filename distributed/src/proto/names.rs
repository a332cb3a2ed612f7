//! One copy of each model's name for all who name it.

use crate::task::ModelRef;
use std::collections::HashSet;
use std::sync::Arc;

/// Names among which those that nobody uses any more are not looked for.
const FEW: usize = 64;

/// The names of models that somebody uses.
#[derive(Debug, Default)]
pub(super) struct Names {
    names: HashSet<Arc<ModelRef>>,
    /// How many there may be before the unused ones go.
    most: usize,
}

impl Names {
    /// The one copy of a name.
    pub(super) fn share(&mut self, model: &ModelRef) -> Arc<ModelRef> {
        if let Some(name) = self.names.get(model) {
            return Arc::clone(name);
        }
        if self.names.len() >= self.most.max(FEW) {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            // So that each name that comes pays for a look at two.
            self.most = self.names.len() * 2;
        }
        let name = Arc::new(model.clone());
        self.names.insert(Arc::clone(&name));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(version: u64) -> ModelRef {
        ModelRef { name: "m".into(), version, sha256: String::new() }
    }

    #[test]
    fn a_name_is_there_once_and_only_as_long_as_it_is_used() {
        let mut names = Names::default();
        let first = names.share(&model(0));
        assert!(Arc::ptr_eq(&first, &names.share(&model(0))));
        let used: Vec<_> = (1..100).map(|version| names.share(&model(version))).collect();
        assert_eq!(names.names.len(), 100);
        drop(used);
        (100..1_000).for_each(|version| drop(names.share(&model(version))));
        assert!(names.names.len() <= 200, "{}", names.names.len());
        assert!(Arc::ptr_eq(&first, &names.share(&model(0))));
    }
}
