//! The likeliest classes for a model's input: which output has the scores, and the classes' names.

use crate::failure::{Failure, Result};
use crate::output;
use crate::values;
use lgp_common::vision::top_k;
use lgp_sdk::model::Model;
use lgp_sdk::tensor::{DType, Tensor};
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The number of classes shown where the command line sets none.
const USUAL: usize = 5;
/// Largest file of names that is read, in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// Which classes are to be told.
#[derive(Debug, clap::Args)]
pub(crate) struct Wanted {
    /// What the classes are called: a file with a name a line [default: what the model says]
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Tell the K classes with the highest scores [default: 5 where classes have names or scores are
    /// probabilities]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: Option<u16>,
}

/// A class of a picture, or of another row of an input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Class {
    /// Its number, from 0.
    pub(crate) class: usize,
    /// Its name, where that is known.
    pub(crate) label: Option<String>,
    /// The model's score, unchanged.
    #[serde(serialize_with = "shortly")]
    pub(crate) score: f32,
}

fn shortly<S: Serializer>(score: &f32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(values::short(*score))
}

impl Class {
    fn name(&self) -> String {
        self.label.clone().unwrap_or_else(|| self.class.to_string())
    }
}

/// The known names and outputs of a model's classes.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    labels: Vec<String>,
    /// Whether a person named the file of names.
    is_asked: bool,
    top: Option<usize>,
    /// The outputs that come of a Softmax, whose scores are probabilities.
    probabilities: BTreeSet<String>,
}

impl Wanted {
    /// The names and outputs of a model's classes. The names come from the file of names if one is given, else from the
    /// model itself, which `labels` reads.
    ///
    /// # Errors
    /// `labels_unusable` for a file of names that cannot be read.
    pub(crate) fn of(
        &self,
        labels: impl FnOnce() -> Result<Vec<String>>,
        probabilities: BTreeSet<String>,
    ) -> Result<Classes> {
        let top = self.top.map(usize::from);
        let Some(path) = &self.labels else {
            return Ok(Classes { labels: labels()?, is_asked: false, top, probabilities });
        };
        let unusable = |what: String| {
            Failure::new("labels_unusable", format!("{} is not usable: {what}", path.display()))
                .hint(
                    "--labels takes a text file with one name on each line, that of class 0 first",
                )
        };
        let read = crate::files::read_bounded(path, BYTES_MAX)?;
        let text =
            String::from_utf8(read).map_err(|_| unusable("it is not text in UTF-8".to_owned()))?;
        let labels: Vec<String> = text.lines().map(str::to_owned).collect();
        match labels.is_empty() {
            true => Err(unusable("it is empty".to_owned())),
            false => Ok(Classes { labels, is_asked: true, top, probabilities }),
        }
    }
}

/// The outputs of a model that come of a Softmax.
pub(crate) fn probabilities(model: &Model) -> BTreeSet<String> {
    let nodes = model.nodes().iter().filter(|node| node.op_type == "Softmax");
    let made: BTreeSet<&String> = nodes.flat_map(|node| &node.outputs).collect();
    let outputs = model.outputs().iter().map(|output| output.name.clone());
    outputs.filter(|name| made.contains(name)).collect()
}

/// The classes of each row of an input.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// `probability` for a Softmax output, else `score`.
    pub(crate) kind: &'static str,
    pub(crate) rows: Vec<Vec<Class>>,
}

impl Classes {
    /// The highest scores of an output of numbers `[k]` or `[n, k]` with at least two classes. The first output with as
    /// many classes as names is taken, else the first probabilities, else, with `--top`, the first output. `None` where
    /// none fits and neither `--top` nor `--labels` was given.
    ///
    /// # Errors
    /// `no_classes` where classes were asked for and no output fits.
    pub(crate) fn find<'a>(
        &self,
        outputs: impl Iterator<Item = (&'a str, &'a Tensor)>,
    ) -> Result<Option<Found>> {
        let rows = |(name, tensor): (&'a str, &'a Tensor)| {
            let scores = floats(tensor)?;
            let &count = tensor.shape().dims().last()?;
            let is_rows = tensor.shape().dims().len() <= 2 && count >= 2;
            is_rows.then_some((name, scores, count))
        };
        let all: Vec<_> = outputs.filter_map(rows).collect();
        let named = all.iter().find(|(_, _, count)| *count == self.labels.len());
        if named.is_none() && self.is_asked {
            let names = output::counted(self.labels.len(), "name");
            let message = format!("--labels has {names}, and no output has as many classes");
            return Err(no_classes(message, &all));
        }
        let probable = || all.iter().find(|(name, ..)| self.probabilities.contains(*name));
        let found = named.or_else(probable).or_else(|| all.first().filter(|_| self.top.is_some()));
        let Some((name, scores, count)) = found else {
            return match self.top {
                Some(_) => {
                    Err(no_classes("--top asks for classes, and there are none".to_owned(), &all))
                }
                None => Ok(None),
            };
        };
        let label = |class: usize| named.and(self.labels.get(class).cloned());
        let row = |row: &[f32]| {
            let best = top_k(row, self.top.unwrap_or(USUAL)).into_iter();
            best.map(|(class, score)| Class { class, label: label(class), score }).collect()
        };
        let kind = if self.probabilities.contains(*name) { "probability" } else { "score" };
        Ok(Some(Found { kind, rows: scores.chunks(*count).map(row).collect() }))
    }

    /// How wide names are at most, for tables that are written line by line.
    pub(crate) fn width(&self) -> usize {
        const MOST: usize = 30;
        let widest = self.labels.iter().map(|label| label.chars().count()).max();
        widest.unwrap_or(0).clamp(5, MOST)
    }
}

fn no_classes(message: String, all: &[(&str, Vec<f32>, usize)]) -> Failure {
    let outputs: Vec<String> =
        all.iter().map(|(name, _, count)| format!("'{name}' has {count}")).collect();
    let hint = match outputs.is_empty() {
        true => {
            "no output is a list of scores, such as f32 [n, 1000]; leave --top and --labels out"
                .to_owned()
        }
        false => format!("of the outputs with scores, {}", outputs.join(", ")),
    };
    Failure::new("no_classes", message).hint(hint)
}

fn floats(tensor: &Tensor) -> Option<Vec<f32>> {
    match tensor.dtype() {
        DType::F32 => tensor.as_slice::<f32>().ok().map(<[f32]>::to_vec),
        DType::F16 => {
            let all = tensor.as_slice::<half::f16>().ok()?;
            Some(all.iter().map(|v| v.to_f32()).collect())
        }
        DType::F64 => {
            let all = tensor.as_slice::<f64>().ok()?;
            Some(all.iter().map(|v| *v as f32).collect())
        }
        _ => None,
    }
}

impl Found {
    /// The classes as text: one row has a line for each class, several rows have a line each.
    pub(crate) fn text(&self) -> String {
        match self.rows.as_slice() {
            [one] => {
                let rows = one.iter().map(|it| [it.name(), score(it.score)]);
                output::table(["class", self.kind], rows)
            }
            rows => {
                let rows = rows.iter().enumerate().map(|(at, row)| [at.to_string(), line(row)]);
                output::table(["row", "classes"], rows)
            }
        }
    }
}

/// Classes on one line, the likeliest first: `cat 0.9713, dog 0.0120`.
fn line(classes: &[Class]) -> String {
    let each = classes.iter().map(|it| format!("{} {}", it.name(), score(it.score)));
    each.collect::<Vec<_>>().join(", ")
}

/// Name and score of the likeliest class, and the others on one line.
pub(crate) fn columns(classes: &[Class]) -> [String; 3] {
    match classes.split_first() {
        Some((best, rest)) => [best.name(), score(best.score), line(rest)],
        None => ["-".to_owned(), String::new(), String::new()],
    }
}

fn score(score: f32) -> String {
    format!("{score:.4}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize], values: &[f32]) -> Tensor {
        Tensor::from_slice(shape, values).expect("they fit")
    }

    fn classes(labels: &[&str], top: Option<usize>) -> Classes {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Classes { labels, top, ..Classes::default() }
    }

    #[test]
    fn scores_have_no_more_digits_in_json_than_the_model_gave() {
        let class = Class { class: 1, label: None, score: 0.1 };
        let value = serde_json::to_value(&class).expect("JSON");
        assert_eq!(value.to_string(), r#"{"class":1,"label":null,"score":0.1}"#);
    }

    #[test]
    fn the_output_with_as_many_scores_as_there_are_names_is_meant() {
        let box_ = tensor(&[1, 4], &[9.0; 4]);
        let scores = tensor(&[2, 3], &[0.1, 0.7, 0.2, 5.0, 4.0, 6.0]);
        let outputs = || [("boxes", &box_), ("scores", &scores)].into_iter();
        let found = classes(&["cat", "dog", "cow"], Some(2)).find(outputs());
        let found = found.expect("scores").expect("names");
        assert_eq!(found.kind, "score");
        let names: Vec<Vec<String>> =
            found.rows.iter().map(|row| row.iter().map(Class::name).collect()).collect();
        assert_eq!(names, [["dog", "cow"], ["cow", "cat"]]);
        assert_eq!(columns(&found.rows[0]), ["dog", "0.7000", "cow 0.2000"]);
        assert_eq!(classes(&[], None).find(outputs()).expect("nothing is asked for"), None);
        // Names of another model are not used.
        assert_eq!(classes(&["a", "b"], None).find(outputs()).expect("it says nothing"), None);
        let numbered =
            classes(&["a", "b"], Some(1)).find(outputs()).expect("scores").expect("--top");
        assert_eq!((numbered.rows[0][0].class, &numbered.rows[0][0].label), (0, &None));
        let wrong = Classes { is_asked: true, ..classes(&["a", "b"], None) };
        let failure = wrong.find(outputs()).expect_err("no output has two");
        assert!(failure.hint.expect("a hint").contains("'scores' has 3"));
        let none = classes(&[], Some(1)).find([("x", &tensor(&[1, 1], &[1.0]))].into_iter());
        assert_eq!(none.expect_err("no scores").code, "no_classes");
        let probabilities = BTreeSet::from(["scores".to_owned()]);
        let softmax = Classes { probabilities, ..Classes::default() };
        let found = softmax.find(outputs()).expect("scores").expect("probabilities");
        assert_eq!((found.kind, found.rows.len()), ("probability", 2));
    }
}
