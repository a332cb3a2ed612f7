//! What is compared: networks and their uses, precisions, threads and batches.

use super::engines::Engine;
use super::inputs::{self, Input};
use super::nets::{NETS, Net, Use};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// A model with all that is chosen for a run.
pub(super) struct Case {
    pub(super) net: &'static Net,
    pub(super) usage: &'static Use,
    /// In bf16.
    pub(super) fast: bool,
    pub(super) threads: usize,
    pub(super) batch: usize,
}

/// Every case, in the order of the table.
pub(super) fn all() -> impl Iterator<Item = Case> {
    let kinds = NETS.iter().map(|net| (net, false));
    let kinds = kinds.chain(NETS.iter().filter(|net| net.fast.is_some()).map(|net| (net, true)));
    let uses = kinds.flat_map(|(net, fast)| net.uses.iter().map(move |usage| (net, usage, fast)));
    uses.flat_map(|(net, usage, fast)| {
        [1, 2].into_iter().flat_map(move |threads| {
            let case = move |&batch: &usize| Case { net, usage, fast, threads, batch };
            usage.batches.iter().map(case)
        })
    })
}

impl Case {
    /// That in which a model is loaded.
    pub(super) fn loading(net: &'static Net) -> Self {
        Self { net, usage: &net.uses[0], fast: false, threads: 1, batch: 1 }
    }

    /// `NET-PRECISION-USE-THREADS-BATCH`.
    pub(super) fn name(&self) -> String {
        let Self { net, usage, threads, batch, .. } = self;
        let short = if self.fast { net.short.replace("f32", "bf16") } else { net.short.to_owned() };
        let usage = match usage.short {
            "" => String::new(),
            short => format!("-{short}"),
        };
        format!("{short}{usage}-t{threads}-b{batch}")
    }

    /// What it is called in tables.
    pub(super) fn title(&self) -> String {
        let title = self.net.title;
        let title = if self.fast { title.replace("f32", "bf16") } else { title.to_owned() };
        let usage = self.usage.title;
        if usage.is_empty() { title } else { format!("{title}, {usage}") }
    }

    /// The model's file.
    pub(super) fn model(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.onnx", self.net.file))
    }

    fn data(&self) -> Vec<Input> {
        (self.usage.inputs)(self.batch)
    }

    /// Beginning of the names of the files with its inputs, the same for all cases that share them.
    pub(super) fn prefix(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}-{}-{}", self.net.file, self.usage.short, self.batch))
    }

    /// Inputs as the protocol names them.
    pub(super) fn inputs(&self, folder: &Path) -> Vec<String> {
        let prefix = self.prefix(folder);
        self.data().iter().map(|input| input.argument(&prefix)).collect()
    }

    /// Writes the elements of its inputs.
    pub(super) fn write_inputs(&self, folder: &Path) -> Result<()> {
        inputs::write(&self.data(), &self.prefix(folder))
    }

    /// Who takes part. In bf16 ONNX Runtime only gives the outputs to compare with. rten and tract,
    /// which are slower by more than threads change, are compared on one thread.
    pub(super) fn engines(&self) -> impl Iterator<Item = Engine> {
        let all = !self.fast && self.threads == 1;
        Engine::ALL.into_iter().filter(move |e| all || !matches!(e, Engine::Rten | Engine::Tract))
    }

    /// Whom the goal is about, and the most of its time that ours should take.
    pub(super) fn goal(&self) -> (Engine, Option<f64>) {
        match (self.fast, self.net.fast) {
            (true, goal) => (Engine::OpenVino, goal.flatten()),
            (false, _) => (Engine::OnnxRuntime, self.net.goal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<String> = all().map(|case| case.name()).collect();
        assert_eq!((names.len(), all().count()), (106, 106));
        for name in ["resnet50-f32-t1-b8", "bert-bf16-t2-b1", "gpt2-f32-past512-t1-b1"] {
            assert!(names.contains(name), "{name}");
        }
        let shorts: BTreeSet<&str> = NETS.iter().map(|net| net.short).collect();
        assert_eq!(shorts.len(), NETS.len());
    }

    #[test]
    fn cases_share_the_files_of_equal_inputs_alone() {
        let folder = Path::new("models");
        let find = |name: &str| all().find(|case| case.name() == name).unwrap();
        let [one, two, eight, past] = [
            "gpt2-f32-prompt32-t1-b1",
            "gpt2-f32-prompt32-t2-b1",
            "resnet50-f32-t1-b8",
            "gpt2-f32-past1-t1-b1",
        ]
        .map(find);
        assert_eq!(one.inputs(folder), two.inputs(folder));
        assert_ne!(one.inputs(folder), past.inputs(folder));
        assert_eq!(eight.inputs(folder), ["input:f32:8x3x224x224:models/resnet50--8-input.in"]);
        assert_eq!(one.inputs(folder).len(), 25);
    }
}
