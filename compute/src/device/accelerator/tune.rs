//! Chooses the recipe that is fastest on a device, by measuring.

#[cfg(test)]
mod tests;

use super::cache::{digest, hex};
use super::{Accelerator, Prepared, lock};
use crate::device::recipe::Recipe;
use crate::device::tensor::DeviceTensor;
use crate::error::{Error, Result};
use lgp_memory::{DType, Tensor};
use std::time::{Duration, Instant};

/// The byte that fills operands. It makes small numbers in every type of float, and no denormal
/// ones, which are slow on some devices.
const FILL: u8 = 0x3c;
/// About how long the launches of one measurement last together, for the clock's resolution.
const MEASUREMENT: Duration = Duration::from_millis(2);
const LAUNCHES_MAX: u32 = 32;
/// How often each recipe is measured that was launched within the budget: at least and at most.
const ROUNDS: std::ops::Range<u32> = 3..20;
/// A recipe is preferred to the cost model's if it is faster by this factor: less is noise.
const GAIN_MIN: f64 = 1.03;

/// The result of measuring recipes that compute the same.
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
    /// or an earlier one; else the first. Where the vendor's library could multiply, it is measured
    /// against the first, and the choice is kept as that of a tuning. `None` for no recipes.
    #[must_use]
    pub fn choose(&self, mut recipes: Vec<Recipe>) -> Option<Recipe> {
        let mut at = self.chosen_of(&recipes);
        if at.is_none() && self.device().blas().is_some() {
            self.try_library(&recipes);
            at = self.chosen_of(&recipes);
        }
        (!recipes.is_empty()).then(|| recipes.swap_remove(at.unwrap_or(0)))
    }

    /// The number of the recipe that was chosen, if one was. The host may have lost the vendor's
    /// library since.
    fn chosen_of(&self, recipes: &[Recipe]) -> Option<usize> {
        if recipes.len() < 2 || !self.has_choices() {
            return None;
        }
        let chosen = self.choice(&recipes[0].digest())?;
        let at = recipes.iter().position(|recipe| recipe.digest() == chosen)?;
        (recipes[at].library().is_none() || self.device().blas().is_some()).then_some(at)
    }

    /// Measures the first recipe and those of the vendor's library. The cost model knows nothing of
    /// the library, which is slower for some products.
    fn try_library(&self, recipes: &[Recipe]) {
        let by_library = |recipe: &&Recipe| recipe.library().is_some();
        let Some((first, others)) = recipes.split_first() else { return };
        let library = others.iter().filter(by_library);
        let some: Vec<Recipe> = std::iter::once(first).chain(library).cloned().collect();
        if some.len() > 1 {
            // What cannot be measured, for want of memory for example, is left to the first recipe.
            let _ = self.fastest_of(&some, None);
        }
    }

    /// Measures recipes that compute the same, in turn, for `budget` or a little longer, and
    /// chooses the fastest. The choice is kept where programs are kept ([`Accelerator::keep_in`]).
    ///
    /// # Errors
    /// Out of memory; the first recipe does not run; [`Error::Cache`] for a choice that cannot be
    /// written.
    pub fn tune(&self, recipes: &[Recipe], budget: Duration) -> Result<Tuned> {
        self.fastest_of(recipes, Some(budget))
    }

    /// As [`Accelerator::tune`]; without a budget each recipe is measured as seldom as it may be.
    fn fastest_of(&self, recipes: &[Recipe], budget: Option<Duration>) -> Result<Tuned> {
        let Some(first) = recipes.first() else {
            return Err(Error::invalid("there are no recipes, expected one at least").of("tune"));
        };
        let end = budget.map(|budget| Instant::now() + budget);
        let is_late = || end.is_some_and(|end| Instant::now() >= end);
        // Recipes may read different inputs.
        let [inputs, outputs] = [0, 1].map(|i| {
            let sizes = recipes.iter().map(|recipe| recipe.sizes()[i].to_vec());
            sizes.reduce(|a, b| a.iter().zip(&b).map(|(a, b)| *a.max(b)).collect())
        });
        let filled = |sizes: Option<Vec<usize>>| self.filled(&sizes.unwrap_or_default());
        let (inputs, outputs) = (filled(inputs)?, filled(outputs)?);
        let operands = Operands { inputs: present(&inputs), outputs: present(&outputs) };
        let mut runs = vec![self.warm(first, &operands)?];
        for recipe in &recipes[1..] {
            // A recipe that this device refuses is left out.
            let tried = (!is_late()).then(|| self.warm(recipe, &operands).ok());
            runs.push(tried.flatten().unwrap_or_default());
        }
        for round in 0..ROUNDS.end {
            if round >= ROUNDS.start && (end.is_none() || is_late()) {
                break;
            }
            let best = runs.iter().filter_map(|run| run.time).min();
            for run in &mut runs {
                // A recipe that takes twice the best time will not become the fastest.
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

    /// A recipe that has been launched: drivers put work off until the first launch.
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

    /// The choice that [`Accelerator::keep_choice`] kept under this name.
    #[must_use]
    pub fn choice(&self, name: &str) -> Option<String> {
        lock(&self.0.choices).get(name).cloned()
    }

    /// Keeps a measured choice until this process ends, and in the folder of programs
    /// ([`Accelerator::keep_in`]) if there is one. The name tells everything that the choice
    /// depends on, except the device.
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

/// A recipe that is being measured, or, if it is not prepared, one that is left out.
#[derive(Default)]
struct Run {
    prepared: Option<Prepared>,
    /// Launches in one measurement.
    launches: u32,
    time: Option<Duration>,
}

/// The number of the fastest recipe if it is clearly faster than the first; else 0.
fn fastest(times: &[Option<Duration>]) -> usize {
    let measured = times.iter().enumerate().filter_map(|(i, time)| Some((i, (*time)?)));
    let best = measured.min_by_key(|(_, time)| *time);
    match (best, times.first()) {
        (Some((i, best)), Some(Some(first))) if first.div_duration_f64(best) >= GAIN_MIN => i,
        _ => 0,
    }
}

impl Recipe {
    /// A name for exactly these launches, the same in every process.
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
