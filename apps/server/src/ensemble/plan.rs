//! An ensemble whose wiring was checked: every value is made once and before it is read, and fits where
//! it goes.

use super::file::{Joints, ModelName, Work as WrittenWork, Written, parse};
use super::kind::Kind;
use super::steps::{self, BuiltIn, Given, Joint};
use crate::catalog::ModelEntry;
use crate::oip;
use lgp_sdk::{Dim, SymShape, TensorType, ValueKind, ValueSpec};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The models that an ensemble names, as they are now.
pub(crate) type Models = BTreeMap<ModelName, ModelEntry>;

/// A checked ensemble.
#[derive(Debug)]
pub(crate) struct Ensemble {
    inputs: Vec<ValueSpec>,
    outputs: Vec<ValueSpec>,
    /// The value that each output is.
    pub(super) answered: Vec<String>,
    pub(super) steps: Vec<Step>,
    models: Models,
}

/// A step, which stands after those whose values it reads.
#[derive(Debug)]
pub(super) struct Step {
    /// What it is called in messages.
    pub(super) title: String,
    pub(super) work: Work,
    pub(super) inputs: Joints,
    pub(super) outputs: Joints,
}

impl Step {
    /// Its title and the model that it names, if it names one.
    fn names(&self) -> Option<(&str, &ModelName)> {
        let model = match &self.work {
            Work::Model(model) => Some(model),
            Work::BuiltIn(step) => step.labels(),
        };
        model.map(|model| (self.title.as_str(), model))
    }
}

#[derive(Debug)]
pub(super) enum Work {
    BuiltIn(Arc<dyn BuiltIn>),
    Model(ModelName),
}

/// A file whose names are not looked up yet.
#[derive(Debug)]
pub(crate) struct Draft {
    inputs: Vec<ValueSpec>,
    outputs: Vec<(String, String)>,
    steps: Vec<Step>,
}

impl Ensemble {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, whichever models there are.
    pub(crate) fn draft(text: &str) -> Result<Draft, String> {
        let Written { inputs, outputs, steps } = parse(text)?;
        let mut draft = Draft { inputs: Vec::new(), outputs: Vec::new(), steps: Vec::new() };
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

    pub(crate) fn inputs(&self) -> &[ValueSpec] {
        &self.inputs
    }

    pub(crate) fn outputs(&self) -> &[ValueSpec] {
        &self.outputs
    }

    /// The models whose readiness is its own.
    pub(crate) fn models(&self) -> impl Iterator<Item = (&ModelName, &ModelEntry)> {
        let runs = |name: &ModelName| {
            self.steps.iter().any(|step| matches!(&step.work, Work::Model(run) if run == name))
        };
        self.models.iter().filter(move |(name, _)| runs(name))
    }

    /// Whether it is wired to the same models as another.
    pub(crate) fn has_models_of(&self, other: &Self) -> bool {
        let same = |(a, b): (&ModelEntry, &ModelEntry)| a.model() == b.model();
        self.models.len() == other.models.len()
            && self.models.values().zip(other.models.values()).all(same)
    }
}

impl Draft {
    /// Every model that it names, also those whose labels alone it wants.
    pub(crate) fn models(&self) -> Vec<(&str, &ModelName)> {
        self.steps.iter().filter_map(Step::names).collect()
    }

    /// Each value is made once, by an input or a step, and not read before.
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
        // Whatever the maker needs, and what that needs.
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

    /// The ensemble, once what it is joined to was seen to fit.
    ///
    /// # Errors
    /// Where types contradict one another, and what is joined to nothing.
    pub(crate) fn with(self, models: Models) -> Result<Ensemble, String> {
        let Self { inputs, outputs, steps } = self;
        let typed = |spec: &ValueSpec| (spec.name.clone(), Kind::Tensor(spec.ty.clone()));
        let mut kinds: HashMap<String, Kind> = inputs.iter().map(typed).collect();
        for step in &steps {
            let made = match &step.work {
                Work::BuiltIn(work) => built_in(work.as_ref(), step, &inputs, &kinds),
                Work::Model(name) => match models.get(name) {
                    Some(entry) => of_model(entry, step, &kinds),
                    None => Err(format!("no model '{name}'")),
                },
            };
            kinds.extend(made.map_err(|reason| format!("{}: {reason}", step.title))?);
        }
        let spec = |(name, value): &(String, String)| {
            let ty = kinds.get(value).map(Kind::as_tensor);
            ty.map(|ty| ValueSpec::tensor(name.clone(), ty))
                .ok_or_else(|| nobody_makes(&format!("output '{name}'"), value))
        };
        let answered = outputs.iter().map(|(_, value)| value.clone()).collect();
        let outputs = outputs.iter().map(spec).collect::<Result<_, _>>()?;
        Ok(Ensemble { inputs, outputs, answered, steps, models })
    }
}

fn nobody_makes(who: &str, value: &str) -> String {
    format!("{who}: no input or step makes value '{value}'")
}

/// What a value is called: those that requests bring go by the name that their senders know.
pub(super) fn label(inputs: &[ValueSpec], value: &str) -> String {
    match inputs.iter().any(|input| input.name == value) {
        true => format!("input '{value}'"),
        false => format!("value '{value}'"),
    }
}

/// The kinds of the values that a step makes.
type Kinds = Result<Vec<(String, Kind)>, String>;

fn built_in(
    work: &dyn BuiltIn,
    step: &Step,
    inputs: &[ValueSpec],
    kinds: &HashMap<String, Kind>,
) -> Kinds {
    let (needs, may_have) = (work.needs(), work.may_have());
    let known = || needs.iter().chain(may_have).copied();
    if let Some(port) = step.inputs.keys().find(|port| !known().any(|known| known == **port)) {
        let known = known().collect::<Vec<_>>().join(", ");
        return Err(format!("it has no input '{port}', expected {known}"));
    }
    if let Some(port) = needs.iter().find(|port| !step.inputs.contains_key(**port)) {
        return Err(format!("input '{port}' gets no value"));
    }
    let joint = |(port, value): (&String, &String)| {
        let label = label(inputs, value);
        let kind = kinds.get(value).cloned();
        kind.map(|kind| Joint { port: port.clone(), label, value: kind })
    };
    let given = Given(step.inputs.iter().filter_map(joint).collect());
    let made = work.kinds(&given)?;
    let kind = |(port, value): (&String, &String)| {
        let found = made.iter().find(|(known, _)| known == port);
        let (_, kind) = found.ok_or_else(|| {
            let known = made.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
            let hint = match port.starts_with("label") {
                true => "; labels = \"MODEL\" says whose labels.txt names the classes",
                false => "",
            };
            format!("it has no output '{port}', expected {known}{hint}")
        })?;
        Ok((value.clone(), kind.clone()))
    };
    step.outputs.iter().map(kind).collect()
}

fn of_model(entry: &ModelEntry, step: &Step, kinds: &HashMap<String, Kind>) -> Kinds {
    let list = |specs: &[ValueSpec]| {
        specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    for spec in entry.inputs() {
        let value = step.inputs.get(&spec.name);
        let value = value.ok_or_else(|| format!("input '{}' gets no value", spec.name))?;
        let kind = kinds.get(value).ok_or_else(|| nobody_makes("it", value))?;
        kind.fits(&spec.ty).map_err(|reason| {
            format!("input '{}' cannot take value '{value}': {reason}", spec.name)
        })?;
    }
    let of = |specs: &[ValueSpec], port: &str| specs.iter().any(|spec| spec.name == port);
    if let Some(port) = step.inputs.keys().find(|port| !of(entry.inputs(), port)) {
        return Err(format!("it has no input '{port}', expected {}", list(entry.inputs())));
    }
    let kind = |(port, value): (&String, &String)| {
        let spec = entry.outputs().iter().find(|spec| spec.name == *port);
        let spec = spec.ok_or_else(|| {
            format!("it has no output '{port}', expected {}", list(entry.outputs()))
        })?;
        match spec.kind {
            ValueKind::Tensor => Ok((value.clone(), Kind::Tensor(unnamed(&spec.ty)))),
            _ => Err(format!("output '{port}' is no tensor")),
        }
    };
    step.outputs.iter().map(kind).collect()
}

/// Symbols mean something within their model alone.
fn unnamed(ty: &TensorType) -> TensorType {
    let dim = |dim: &Dim| dim.known().map_or(Dim::Unknown, Dim::Known);
    let shape = ty.shape.as_ref().map(|shape| SymShape(shape.0.iter().map(dim).collect()));
    TensorType { dtype: ty.dtype, shape }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_guide_are_ensembles() {
        let guide = include_str!("../../../../docs/serving.md");
        let blocks = guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let named = |text: &str| {
            let draft = Ensemble::draft(text).unwrap_or_else(|reason| panic!("{reason}: {text}"));
            draft.models().into_iter().map(|(_, model)| model.to_string()).collect::<Vec<_>>()
        };
        let all: Vec<_> = blocks.map(named).collect();
        assert_eq!(all, [["resnet50"; 2], ["yolov8n"; 2]]);
    }
}
