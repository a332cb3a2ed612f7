//! Parses the tasks of a request: each has a name, and models by their types.
#![deny(clippy::as_conversions)]

use super::clip::Textual;
use super::faces::Faces;
use super::ocr::Ocr;
use crate::fault::Fault;
use axum::http::StatusCode;
use serde::Deserialize;
use std::collections::BTreeMap;

// Immich's own defaults of optional settings.
const FACE_SCORE_MIN: f32 = 0.7;
const REGION_SCORE_MIN: f32 = 0.5;
const TEXT_SCORE_MIN: f32 = 0.9;
const RESOLUTION: u32 = 736;
const RESOLUTION_MAX: u32 = 4096;

/// The most bytes besides the pixels that making an input takes, for CLIP or for a face detector with sides of up
/// to 1024. The intermediate image of a resize never exceeds the larger image.
const INPUT_BYTES: usize = 40 << 20;

/// A requested task, with Immich's names of its models.
pub(super) enum Task {
    Visual(String),
    Textual(Textual),
    Faces(Faces),
    Ocr(Ocr),
}

/// A model and its options.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    model_name: String,
    #[serde(default)]
    options: Options,
}

/// Unknown options are ignored, as in Immich's own service.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    min_score: Option<f32>,
    max_resolution: Option<u32>,
    language: Option<String>,
}

impl Task {
    /// Parses one task of a request.
    ///
    /// # Errors
    /// 422 for a task or type that is not served, or a missing type.
    pub(super) fn of(task: &str, types: BTreeMap<String, Entry>) -> Result<Self, Fault> {
        match task {
            "clip" => clip(types),
            "facial-recognition" => {
                let [detection, recognition] = both(task, types)?;
                Ok(Self::Faces(Faces {
                    score_min: detection.score_min(FACE_SCORE_MIN)?,
                    detection: detection.model_name,
                    recognition: recognition.model_name,
                }))
            }
            "ocr" => {
                let [detection, recognition] = both(task, types)?;
                Ok(Self::Ocr(Ocr {
                    region_score_min: detection.score_min(REGION_SCORE_MIN)?,
                    text_score_min: recognition.score_min(TEXT_SCORE_MIN)?,
                    resolution: detection.resolution()?,
                    detection: detection.model_name,
                    recognition: recognition.model_name,
                }))
            }
            _ => Err(invalid(format!(
                "the task '{task}' is not served, expected 'clip', 'facial-recognition' or 'ocr'"
            ))),
        }
    }

    /// The task's name in requests and answers.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Visual(_) | Self::Textual(_) => "clip",
            Self::Faces(_) => "facial-recognition",
            Self::Ocr(_) => "ocr",
        }
    }

    /// Bytes that the task needs besides the pixels of an image of this size.
    ///
    /// # Errors
    /// 400 if the task cannot use the image.
    pub(super) fn room(&self, size: (u32, u32)) -> Result<usize, Fault> {
        match self {
            Self::Ocr(ocr) => ocr.room(size),
            Self::Visual(_) | Self::Faces(_) => Ok(INPUT_BYTES),
            Self::Textual(_) => Ok(0),
        }
    }

    /// For messages.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Visual(_) => "the task 'clip' of the type 'visual'",
            Self::Textual(_) => "the task 'clip' of the type 'textual'",
            Self::Faces(_) => "the task 'facial-recognition'",
            Self::Ocr(_) => "the task 'ocr'",
        }
    }
}

fn clip(mut types: BTreeMap<String, Entry>) -> Result<Task, Fault> {
    match (types.remove("visual"), types.remove("textual"), types.keys().next()) {
        (_, _, Some(other)) => {
            let what = format!("the task 'clip' has no type '{other}'");
            Err(invalid(what + ", expected 'visual' or 'textual'"))
        }
        (Some(visual), None, None) => Ok(Task::Visual(visual.model_name)),
        (None, Some(textual), None) => {
            let Entry { model_name: model, options } = textual;
            Ok(Task::Textual(Textual { model, language: options.language }))
        }
        (given, ..) => {
            let given = if given.is_some() { "both" } else { "neither" };
            let what = format!("the task 'clip' has {given} of 'visual' and 'textual'");
            Err(invalid(what + ", expected one of them"))
        }
    }
}

/// The two models of a task that uses one after the other.
fn both(task: &str, mut types: BTreeMap<String, Entry>) -> Result<[Entry; 2], Fault> {
    match (types.remove("detection"), types.remove("recognition"), types.keys().next()) {
        (Some(detection), Some(recognition), None) => Ok([detection, recognition]),
        (_, _, Some(other)) => {
            let what = format!("the task '{task}' has no type '{other}'");
            Err(invalid(what + ", expected 'detection' and 'recognition'"))
        }
        (detection, ..) => {
            let missing = if detection.is_some() { "recognition" } else { "detection" };
            let what = format!("the task '{task}' lacks the type '{missing}'");
            Err(invalid(what + ", expected 'detection' and 'recognition' together"))
        }
    }
}

impl Entry {
    fn score_min(&self, default: f32) -> Result<f32, Fault> {
        let given = self.options.min_score.unwrap_or(default);
        match (0.0..=1.0).contains(&given) {
            true => Ok(given),
            false => Err(invalid(format!("minScore is {given}, expected 0 to 1"))),
        }
    }

    fn resolution(&self) -> Result<u32, Fault> {
        let given = self.options.max_resolution.unwrap_or(RESOLUTION);
        match (1..=RESOLUTION_MAX).contains(&given) {
            true => Ok(given),
            false => {
                let what = format!("maxResolution is {given}, expected 1 to {RESOLUTION_MAX}");
                Err(invalid(what))
            }
        }
    }
}

/// 422, as Immich's own service answers invalid tasks.
pub(super) fn invalid(what: String) -> Fault {
    Fault::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_entries", what)
}
