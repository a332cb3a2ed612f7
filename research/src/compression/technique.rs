//! What a technique is: it changes a model without training, more or less strongly.

use super::observe::Work;
use super::runner::Runner;
use super::samples::Samples;
use crate::error::Result;
use lgp_inference::Model;

/// A model that a technique changed.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The changed model.
    pub model: Model,
    /// Sentences on what was changed, and on what was left alone and why.
    pub notes: Vec<String>,
}

/// What a technique may use.
pub struct Scene<'a> {
    /// The samples: a technique looks at the calibration part alone.
    pub samples: &'a Samples,
    /// The threads and the request to stop.
    pub work: &'a Work,
    /// The device that the model is made for.
    pub runner: &'a dyn Runner,
}

/// Changes a model as strongly as asked for; `None` where there is nothing to change.
pub type Apply<'a> = Box<dyn Fn(f64) -> Result<Option<Changed>> + 'a>;

/// Makes a model smaller or faster without training it.
pub trait Technique: Sync {
    /// The name in ledgers and plans.
    fn name(&self) -> &'static str;

    /// Values of the one number that says how strongly the technique is applied, the mildest
    /// first. The pipeline takes the strongest that keeps within its bound.
    fn strengths(&self) -> &'static [f64];

    /// Looks at the model and the samples once, for changes of every strength. `None` where there
    /// is nothing that the technique could change.
    ///
    /// # Errors
    /// A model or samples that the technique cannot work on; [`crate::Error::Stopped`]. So too for
    /// the changes.
    fn prepare<'a>(&self, model: &'a Model, scene: &'a Scene<'a>) -> Result<Option<Apply<'a>>>;
}
