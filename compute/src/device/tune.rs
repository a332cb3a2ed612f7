//! Which of several recipes a device is fastest with, as it was measured there.

#[cfg(test)]
mod tests;

use super::accelerator::{Prepared, lock};
use super::cache::{digest, hex};
use super::{Accelerator, DeviceTensor, Recipe};
use crate::error::{Error, Result};
use lgp_memory::{DType, Tensor};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What was measured to be best, by the name of what it is best for: the recipe that is fastest, by
/// that which a cost model prefers, both by digest, and what callers keep. Who computes something else,
/// or in another way, has another digest, and so an old entry misleads nobody.
pub(super) type Choices = BTreeMap<String, String>;

/// What operands are filled with: small numbers in every type of float, and no denormal ones, which
/// are slow on some devices.
const FILL: u8 = 0x3c;
/// Launches of a recipe in one measurement last about that long, for clocks to see them.
const MEASUREMENT: Duration = Duration::from_millis(2);
const LAUNCHES_MAX: u32 = 32;
/// Measurements of each recipe: at least, where the budget allows a first one, and at most.
const ROUNDS: std::ops::Range<u32> = 3..20;
/// By this factor a recipe must beat the cost model's to be preferred: less is noise.
const GAIN_MIN: f64 = 1.03;

/// What measuring recipes that compute the same came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// The shortest time of each recipe; `None` for one that does not compile or launch, or was
    /// not tried before the budget was spent.
    pub times: Vec<Option<Duration>>,
    /// The number of the recipe that is used from now on.
    pub chosen: usize,
}

impl Accelerator {
    /// Of recipes that compute the same, the one that [`Accelerator::tune`] chose, in this process
    /// or an earlier one; else one with the vendor's library, where the device has it; else the
    /// first. `None` for none.
    #[must_use]
    pub fn choose(&self, mut recipes: Vec<Recipe>) -> Option<Recipe> {
        let by_library = |recipe: &Recipe| recipe.library().is_some();
        let mut at = None;
        if recipes.len() > 1 && self.has_choices() {
            let chosen = self.choice(&recipes[0].digest());
            at = chosen.and_then(|c| recipes.iter().position(|recipe| recipe.digest() == c));
        }
        if at.is_none() && self.device().blas().is_some() {
            at = recipes.iter().position(by_library);
        }
        (!recipes.is_empty()).then(|| recipes.swap_remove(at.unwrap_or(0)))
    }

    /// Launches recipes that compute the same in turn until each has its shortest time, for `budget`
    /// or a little longer, and chooses the fastest. The choice is kept where programs are kept
    /// ([`Accelerator::keep_in`]).
    ///
    /// # Errors
    /// Out of memory; the first recipe does not run; [`Error::Cache`] for a choice that cannot be
    /// written.
    pub fn tune(&self, recipes: &[Recipe], budget: Duration) -> Result<Tuned> {
        let Some(first) = recipes.first() else {
            return Err(Error::invalid("there are no recipes, expected one at least").of("tune"));
        };
        let end = Instant::now() + budget;
        let [inputs, outputs] = first.sizes();
        let (inputs, outputs) = (self.filled(inputs)?, self.filled(outputs)?);
        let operands = Operands { inputs: present(&inputs), outputs: present(&outputs) };
        let mut runs = vec![self.warm(first, &operands)?];
        for recipe in &recipes[1..] {
            // One that this device refuses is none of its recipes.
            let tried = (Instant::now() < end).then(|| self.warm(recipe, &operands).ok());
            runs.push(tried.flatten().unwrap_or_default());
        }
        for round in 0..ROUNDS.end {
            if round >= ROUNDS.start && Instant::now() >= end {
                break;
            }
            let best = runs.iter().filter_map(|run| run.time).min();
            for run in &mut runs {
                // What takes twice the time will not become the fastest.
                if run.time.is_none_or(|time| best.is_none_or(|best| time <= 2 * best)) {
                    self.measure(run, &operands)?;
                }
            }
        }
        let times: Vec<Option<Duration>> = runs.iter().map(|run| run.time).collect();
        let chosen = fastest(&times);
        self.keep_choice(first.digest(), recipes[chosen].digest())?;
        Ok(Tuned { times, chosen })
    }

    /// A recipe that has been launched once: drivers put things off until then.
    fn warm(&self, recipe: &Recipe, operands: &Operands<'_>) -> Result<Run> {
        let prepared = self.prepare(recipe.clone())?;
        let launch = || -> Result<Duration> {
            let start = Instant::now();
            self.launch(&prepared, &operands.inputs, &operands.outputs)?;
            self.finish()?;
            Ok(start.elapsed())
        };
        launch()?;
        let once = launch()?.max(Duration::from_nanos(1));
        let launches = MEASUREMENT.div_duration_f64(once).clamp(1., f64::from(LAUNCHES_MAX));
        // Between 1 and 32.
        Ok(Run { prepared: Some(prepared), launches: launches as u32, time: None })
    }

    fn measure(&self, run: &mut Run, operands: &Operands<'_>) -> Result<()> {
        let Some(prepared) = &run.prepared else { return Ok(()) };
        let start = Instant::now();
        for _ in 0..run.launches {
            self.launch(prepared, &operands.inputs, &operands.outputs)?;
        }
        self.finish()?;
        let time = start.elapsed() / run.launches;
        run.time = Some(run.time.map_or(time, |best| best.min(time)));
        Ok(())
    }

    /// Buffers of these sizes; none for 0 bytes.
    fn filled(&self, sizes: &[usize]) -> Result<Vec<Option<DeviceTensor>>> {
        let filled = |&bytes: &usize| {
            let host = Tensor::from_bytes(DType::U8, [bytes], &vec![FILL; bytes])?;
            (bytes > 0).then(|| self.upload(&host.view())).transpose()
        };
        sizes.iter().map(filled).collect()
    }

    /// Whether anything was chosen by measurement, in this process or an earlier one.
    #[must_use]
    pub fn has_choices(&self) -> bool {
        !lock(&self.0.choices).is_empty()
    }

    /// What [`Accelerator::keep_choice`] kept under this name.
    #[must_use]
    pub fn choice(&self, name: &str) -> Option<String> {
        lock(&self.0.choices).get(name).cloned()
    }

    /// Keeps what was measured to be best for something, where programs are kept
    /// ([`Accelerator::keep_in`]) and until this process ends. Its name tells all that the
    /// choice depends on but the device.
    ///
    /// # Errors
    /// [`Error::Cache`] for a choice that cannot be written.
    pub fn keep_choice(&self, name: String, chosen: String) -> Result<()> {
        lock(&self.0.choices).insert(name.clone(), chosen.clone());
        self.0.cache.get().map_or(Ok(()), |cache| cache.put_choice(name, chosen))
    }
}

/// Buffers that recipes are launched on.
struct Operands<'a> {
    inputs: Vec<Option<&'a DeviceTensor>>,
    outputs: Vec<Option<&'a DeviceTensor>>,
}

fn present(tensors: &[Option<DeviceTensor>]) -> Vec<Option<&DeviceTensor>> {
    tensors.iter().map(Option::as_ref).collect()
}

/// A recipe that is being measured; without programs one that is not.
#[derive(Default)]
struct Run {
    prepared: Option<Prepared>,
    /// In one measurement.
    launches: u32,
    time: Option<Duration>,
}

/// The fastest that is clearly faster than the first.
fn fastest(times: &[Option<Duration>]) -> usize {
    let measured = times.iter().enumerate().filter_map(|(i, time)| Some((i, (*time)?)));
    let best = measured.min_by_key(|(_, time)| *time);
    match (best, times.first()) {
        (Some((i, best)), Some(Some(first))) if first.div_duration_f64(best) >= GAIN_MIN => i,
        _ => 0,
    }
}

impl Recipe {
    /// A name for just these launches, the same in every process.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut text = format!("{:?} {:?}", self.library(), self.scratch());
        for call in self.calls() {
            let (name, source) = (call.kernel.name(), call.kernel.source());
            text += &format!("{name} {:?} {:?} {source}", call.groups, call.arguments);
        }
        hex(&digest(&[text.as_bytes()])[..16])
    }
}
