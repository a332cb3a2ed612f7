//! The ordered steps of an ensemble file: its values, and the steps that make and read them.

use super::file::{self, Joints, ModelName, Work as WrittenWork, Written};
use super::steps::{self, BuiltIn};
use crate::oip;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{Dim, SymShape, TensorType};
use std::collections::HashMap;
use std::sync::Arc;

/// A parsed file whose model names are not resolved yet.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(super) inputs: Vec<ValueSpec>,
    pub(super) outputs: Vec<(String, String)>,
    pub(super) steps: Vec<Step>,
}

/// A step. Steps are ordered such that each follows those whose values it reads.
#[derive(Debug)]
pub(super) struct Step {
    /// The step's name in messages.
    pub(super) title: String,
    pub(super) work: Work,
    pub(super) inputs: Joints,
    pub(super) outputs: Joints,
}

#[derive(Debug)]
pub(super) enum Work {
    BuiltIn(Arc<dyn BuiltIn>),
    Model(ModelName),
}

impl Step {
    /// The step's title and the model that it names, if any.
    fn names(&self) -> Option<(&str, &ModelName)> {
        let model = match &self.work {
            Work::Model(model) => Some(model),
            Work::BuiltIn(step) => step.labels(),
        };
        model.map(|model| (self.title.as_str(), model))
    }
}

impl Draft {
    /// Parses a file.
    ///
    /// # Errors
    /// The first error in the file that is independent of the existing models.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Written { inputs, outputs, steps } = file::parse(text)?;
        let mut draft = Self { inputs: Vec::new(), outputs: Vec::new(), steps: Vec::new() };
        for input in inputs {
            let dtype = oip::parse_datatype(&input.name, &input.datatype).map_err(|f| f.message)?;
            let dim = |&size: &i64| match size {
                -1 => Ok(Dim::Unknown),
                size => usize::try_from(size).map(Dim::Known).map_err(|_| {
                    let (name, shape) = (&input.name, &input.shape);
                    format!("input '{name}' has the shape {shape:?}, expected -1 or sizes from 0")
                }),
            };
            let dims = input.shape.iter().map(dim).collect::<Result<_, _>>()?;
            let ty = TensorType { dtype, shape: Some(SymShape(dims)) };
            draft.inputs.push(ValueSpec::tensor(input.name, ty));
        }
        draft.outputs =
            outputs.iter().map(|out| (out.name.clone(), out.value().to_owned())).collect();
        for (step, number) in steps.into_iter().zip(1..) {
            let (title, work) = match step.work {
                WrittenWork::Model(model) => {
                    (format!("step {number} (model {model})"), Work::Model(model))
                }
                WrittenWork::Use(name, parameters) => {
                    let title = format!("step {number} ({name})");
                    let step = steps::find(&name, parameters);
                    let step = step.map_err(|reason| format!("{title}: {reason}"))?;
                    (title, Work::BuiltIn(step))
                }
            };
            draft.steps.push(Step { title, work, inputs: step.inputs, outputs: step.outputs });
        }
        draft.check_order()?;
        Ok(draft)
    }

    /// Every model that the steps name, including those used for their labels only.
    pub(crate) fn models(&self) -> Vec<(&str, &ModelName)> {
        self.steps.iter().filter_map(Step::names).collect()
    }

    /// Checks that each value is made once, by an input or a step, and before it is read.
    fn check_order(&self) -> Result<(), String> {
        let mut makers: HashMap<&str, Option<usize>> = HashMap::new();
        for input in &self.inputs {
            if makers.insert(&input.name, None).is_some() {
                return Err(format!("input '{}' is there twice", input.name));
            }
        }
        for (at, step) in self.steps.iter().enumerate() {
            for value in step.outputs.values() {
                if makers.insert(value, Some(at)).is_some() {
                    return Err(format!("{}: value '{value}' is made twice", step.title));
                }
            }
        }
        for (at, step) in self.steps.iter().enumerate() {
            for value in step.inputs.values() {
                match makers.get(value.as_str()) {
                    None => return Err(nobody_makes(&step.title, value)),
                    Some(Some(maker)) if *maker >= at => {
                        return Err(self.out_of_order(value, *maker, at, &makers));
                    }
                    _ => {}
                }
            }
        }
        let mut names = Vec::new();
        for (name, value) in &self.outputs {
            if !makers.contains_key(value.as_str()) {
                return Err(nobody_makes(&format!("output '{name}'"), value));
            }
            if names.contains(&name) {
                return Err(format!("output '{name}' is there twice"));
            }
            names.push(name);
        }
        let reads = |name: &str| {
            self.steps.iter().any(|step| step.inputs.values().any(|value| value == name))
                || self.outputs.iter().any(|(_, value)| value == name)
        };
        match self.inputs.iter().find(|input| !reads(&input.name)) {
            Some(unread) => Err(format!("input '{}' is read by no step", unread.name)),
            None => Ok(()),
        }
    }

    fn out_of_order(
        &self,
        value: &str,
        maker: usize,
        reader: usize,
        makers: &HashMap<&str, Option<usize>>,
    ) -> String {
        let title = |at: usize| self.steps.get(at).map_or("", |step| step.title.as_str());
        // The maker's inputs, and their makers in turn.
        let mut needed = vec![maker];
        let mut next = 0;
        while let Some(step) = needed.get(next).and_then(|at| self.steps.get(*at)) {
            for before in step.inputs.values().filter_map(|value| *makers.get(value.as_str())?) {
                if !needed.contains(&before) {
                    needed.push(before);
                }
            }
            next += 1;
        }
        let (reader_title, maker_title) = (title(reader), title(maker));
        match needed.contains(&reader) {
            true => format!(
                "{reader_title}: value '{value}' of {maker_title} goes round in a cycle, expected steps \
                 that can run one after another"
            ),
            false => format!(
                "{reader_title}: value '{value}' is read before {maker_title} makes it, expected steps \
                 behind those whose values they read"
            ),
        }
    }
}

pub(super) fn nobody_makes(who: &str, value: &str) -> String {
    format!("{who}: no input or step makes value '{value}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_guide_are_ensembles() {
        let guide = include_str!("../../../../docs/serving.md");
        let blocks = guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let named = |text: &str| {
            let draft = Draft::parse(text).unwrap_or_else(|reason| panic!("{reason}: {text}"));
            draft.models().into_iter().map(|(_, model)| model.to_string()).collect::<Vec<_>>()
        };
        // Other blocks are config files of models.
        let all: Vec<_> = blocks.filter(|text| text.contains("[[steps]]")).map(named).collect();
        assert_eq!(all, [["resnet50"; 2], ["yolov8n"; 2]]);
    }
}
