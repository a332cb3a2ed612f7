//! Parses the notation of einsum.

use crate::error::{Error, Result};

/// An axis: by its letter, or by its position from the back among the axes that `...` stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    Dots(usize),
    Letter(char),
}

/// The axes of each input and of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Equation {
    pub(super) inputs: Vec<Vec<Label>>,
    pub(super) output: Vec<Label>,
}

impl Equation {
    /// Reads an equation for inputs of the given ranks.
    pub(super) fn parse(text: &str, ranks: &[usize]) -> Result<Self> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let wrong = |why: String| Error::invalid(format!("equation '{text}' {why}"));
        let terms: Vec<&str> = left.split(',').collect();
        if terms.len() != ranks.len() {
            return Err(wrong(format!("has {} inputs, expected {}", terms.len(), ranks.len())));
        }
        let mut inputs = Vec::with_capacity(terms.len());
        let mut dots = 0;
        for (term, &rank) in terms.iter().zip(ranks) {
            let letters = term.replace("...", "").chars().count();
            let missing = rank.checked_sub(letters).filter(|&n| n == 0 || term.contains("..."));
            let missing = missing.ok_or_else(|| {
                wrong(format!("names {letters} axes for an input of rank {rank}"))
            })?;
            dots = dots.max(missing);
            inputs.push(labels(term, missing).map_err(wrong)?);
        }
        let output = match right {
            Some(term) => labels(term, dots).map_err(wrong)?,
            None => implicit(&inputs, dots),
        };
        let twice = output.iter().enumerate().any(|(i, label)| output[..i].contains(label));
        let known = |label: &Label| inputs.iter().any(|input| input.contains(label));
        if twice || !output.iter().all(known) {
            return Err(wrong("names an axis of the output twice, or one of no input".into()));
        }
        Ok(Self { inputs, output })
    }
}

/// The axes of one term, whose dots stand for `dots` axes.
fn labels(term: &str, dots: usize) -> std::result::Result<Vec<Label>, String> {
    let dotted = || (0..dots).rev().map(Label::Dots);
    let letters = |part: &str| {
        let letter = |c: char| {
            if c.is_alphabetic() {
                Ok(Label::Letter(c))
            } else {
                Err(format!("has '{c}', expected a letter"))
            }
        };
        part.chars().map(letter).collect::<std::result::Result<Vec<_>, _>>()
    };
    Ok(match term.split_once("...") {
        None => letters(term)?,
        Some((before, after)) => {
            letters(before)?.into_iter().chain(dotted()).chain(letters(after)?).collect()
        }
    })
}

/// The output where none is given: the dots' axes, then the letters that occur once, sorted.
fn implicit(inputs: &[Vec<Label>], dots: usize) -> Vec<Label> {
    let all: Vec<Label> = inputs.iter().flatten().copied().collect();
    let once = |label: &&Label| all.iter().filter(|other| other == label).count() == 1;
    let letters = all.iter().filter(|label| matches!(label, Label::Letter(_))).filter(once);
    let mut letters: Vec<Label> = letters.copied().collect();
    letters.sort_unstable();
    (0..dots).rev().map(Label::Dots).chain(letters).collect()
}
