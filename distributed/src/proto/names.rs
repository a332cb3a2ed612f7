//! One shared copy of each model's name for the tasks, results and devices that name it.

use crate::task::ModelRef;
use std::collections::HashSet;
use std::sync::Arc;

/// With fewer names than these, unused ones are never looked for.
const FEW: usize = 64;

/// The names of models, each as long as it is used and a little longer.
#[derive(Debug, Default)]
pub(super) struct Names {
    names: HashSet<Arc<ModelRef>>,
    /// Names asked for since unused ones were last removed.
    asked: usize,
}

impl Names {
    /// Takes in the names of `others`.
    pub(super) fn merge(&mut self, others: Self) {
        self.names.extend(others.names);
    }

    /// The shared copy of a name.
    pub(super) fn share(&mut self, model: &ModelRef) -> Arc<ModelRef> {
        self.asked += 1;
        // Each call pays for a look at two names. If it paid for one, new names would put the look
        // off for ever.
        if self.asked * 2 > self.names.len().max(FEW) {
            self.asked = 0;
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.names.shrink_to(self.names.len() * 2);
        }
        if let Some(name) = self.names.get(model) {
            return Arc::clone(name);
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
    fn a_name_is_there_once_and_unused_ones_go() {
        let mut names = Names::default();
        let first = names.share(&model(0));
        assert!(Arc::ptr_eq(&first, &names.share(&model(0))));
        let used: Vec<_> = (1..1_000).map(|version| names.share(&model(version))).collect();
        assert_eq!(names.names.len(), 1_000);
        drop(used);
        for _ in 0..=1_000 {
            assert!(Arc::ptr_eq(&first, &names.share(&model(0))));
        }
        assert_eq!(names.names.len(), 1);
        (1..10_000).for_each(|version| drop(names.share(&model(version))));
        assert!(names.names.len() <= FEW + 1, "{}", names.names.len());
    }
}
