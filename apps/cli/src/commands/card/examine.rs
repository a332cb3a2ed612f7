//! The checks and measurements of each device.

use crate::cluster::digits::{self, Example};
use crate::device;
use crate::dims::Dims;
use crate::failure::{Failure, Result};
use crate::inputs;
use crate::measure::Runs;
use crate::redact::Redactor;
use lgp_hal::{Monitor, SelfTest, Status as FindingStatus, Telemetry};
use lgp_inference::Isa;
use lgp_measure::{TRIAL_KINDS, Trial, TrialSize, data, difference, measure_copies, trials};
use lgp_sdk::device::{Accelerator, DeviceId, DeviceInfo, ProbeOptions};
use lgp_sdk::model::{Model, Session, SessionOptions};
use lgp_sdk::tensor::NamedTensor;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How far results may be off, as a share of the largest: sums in another order differ by less.
const TOLERANCE: f64 = 1e-4;

/// The checks and measurements to make on each device.
pub(super) struct Plan {
    /// Bytes of a copy, and how many of each kind.
    copies: (usize, usize),
    /// How long a network is measured, and in how many runs at most.
    each: (Duration, usize),
    /// Small networks with their results from the processor's plainest instructions.
    checks: Vec<(Trial, Vec<NamedTensor>)>,
    speeds: Vec<Trial>,
    digits: Model,
    images: Vec<Example>,
    models: Vec<(String, Model)>,
}

/// A device and its results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Examined {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) backend: String,
    pub(super) driver: String,
    pub(super) chip: Option<String>,
    /// PCI vendor, device and revision, in hexadecimal.
    pub(super) pci: Option<String>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) self_test: SelfTest,
    /// Why the device is not used; then all else is unknown.
    pub(super) reason: Option<String>,
    /// The sensors' readings before and after.
    pub(super) sensors: [Option<Telemetry>; 2],
    pub(super) checks: Vec<Check>,
    pub(super) measured: Vec<Measured>,
    /// The measurements that failed, and why.
    pub(super) failures: Vec<String>,
}

/// A comparison with the processor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) passed: bool,
    /// The largest difference as a share of the largest result; null where there are no numbers.
    pub(super) error: Option<f64>,
    pub(super) tolerance: f64,
    /// The failure, or more about the result.
    pub(super) note: String,
}

/// A measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Measured {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) runs: Runs,
    /// Billions of multiplications and additions a second, by the median.
    pub(super) gflops: Option<f64>,
    /// Billions of bytes a second, by the median.
    pub(super) gb_per_s: Option<f64>,
}

impl Plan {
    pub(super) fn new(quick: bool, models: Vec<(String, Model)>) -> Result<Self> {
        let plain = SessionOptions { isa: Some(Isa::Scalar), ..SessionOptions::default() };
        let reference = |trial: Trial| {
            let outputs = trial.run(&trial.session(plain, None)?)?;
            Ok((trial, outputs))
        };
        let size = if quick { TrialSize::Small } else { TrialSize::Full };
        Ok(Self {
            copies: if quick { (1 << 20, 3) } else { (64 << 20, 10) },
            each: if quick { (Duration::from_millis(20), 3) } else { (Duration::from_secs(2), 50) },
            checks: trials(TrialSize::Small, &TRIAL_KINDS)?
                .into_iter()
                .map(reference)
                .collect::<Result<_>>()?,
            speeds: trials(size, &TRIAL_KINDS)?,
            digits: digits::model()?,
            images: digits::test_images()?,
            models,
        })
    }

    /// Tries and measures a device.
    pub(super) fn examine(&self, info: &DeviceInfo) -> Examined {
        let card = info.card.as_ref();
        let mut all = Examined {
            id: info.id.clone(),
            name: info.name.clone(),
            backend: info.backend.clone(),
            driver: info.caps.driver.clone(),
            chip: card.and_then(|card| card.chip).map(|chip| chip.to_string()),
            pci: card
                .map(|it| format!("{:04x}:{:04x} rev {:02x}", it.vendor, it.device, it.revision)),
            memory_bytes: info.memory_bytes,
            self_test: info.self_test,
            reason: info.reason.clone(),
            sensors: [info.telemetry.clone(), None],
            checks: Vec::new(),
            measured: Vec::new(),
            failures: Vec::new(),
        };
        let Some(id) = info.device.filter(|_| info.usable) else { return all };
        let mut monitor = Monitor::new(id, ProbeOptions::default());
        let told = |telemetry: Telemetry| Some(telemetry).filter(|it| *it != Telemetry::default());
        all.sensors[0] = told(monitor.read());
        match device::resolve(&id.to_string()) {
            Ok(accelerator) => {
                self.check(accelerator.as_ref(), &mut all);
                self.measure(id, accelerator.as_ref(), &mut all);
            }
            Err(failure) => all.failures.push(failure.message),
        }
        all.sensors[1] = told(monitor.read());
        all
    }

    /// Compares the device with the processor.
    fn check(&self, accelerator: Option<&Accelerator>, all: &mut Examined) {
        for (trial, reference) in &self.checks {
            let outputs = trial
                .session(SessionOptions::default(), accelerator.cloned())
                .and_then(|session| trial.run(&session));
            let (error, note) = match outputs {
                Ok(outputs) => (difference(&outputs, reference), String::new()),
                Err(error) => (None, lgp_common::chain(&error)),
            };
            all.checks.push(Check::new(trial.name.clone(), error, note));
        }
        let (error, note) = match self.digits(accelerator) {
            Ok((error, note)) => (error, note),
            Err(failure) => (None, failure.message),
        };
        all.checks.push(Check::new("digits".to_owned(), error, note));
    }

    /// The bundled model on all images: the difference from the processor's logits, and how many
    /// digits are right.
    fn digits(&self, accelerator: Option<&Accelerator>) -> Result<(Option<f64>, String)> {
        let session = self.session(&self.digits, accelerator)?;
        let plain = SessionOptions { isa: Some(Isa::Scalar), ..SessionOptions::default() };
        let own = Session::new(&self.digits, plain)?;
        let (mut worst, mut right) = (Some(0.0f64), 0);
        for Example { image, digit } in &self.images {
            let given = [(digits::INPUT, image.view())];
            let (outputs, expected) = (session.run(&given)?, own.run(&given)?);
            let off = difference(&outputs, &expected);
            worst = worst.zip(off).map(|(worst, off)| worst.max(off));
            let answer = outputs.first().and_then(|logits| digits::answer(&logits.tensor));
            right += usize::from(answer == Some(*digit));
        }
        Ok((worst, format!("{right} of {} digits right", self.images.len())))
    }

    fn session(&self, model: &Model, accelerator: Option<&Accelerator>) -> Result<Session> {
        let options = SessionOptions::default();
        Ok(Session::on_devices(model, options, accelerator.into_iter().cloned().collect())?)
    }

    /// Measures copies, networks, the bundled model and the given ones.
    fn measure(&self, id: DeviceId, accelerator: Option<&Accelerator>, all: &mut Examined) {
        match self.copy(id) {
            Ok(copies) => all.measured.extend(copies),
            Err(failure) => all.failures.push(format!("copies: {}", failure.message)),
        }
        let mut say = |name: &str, operations, runs: Result<Runs>| match runs {
            Ok(runs) => all.measured.push(Measured::of(name, runs, operations, None)),
            Err(failure) => all.failures.push(format!("{name}: {}", failure.message)),
        };
        let (budget, most) = self.each;
        for trial in &self.speeds {
            let runs = || -> Result<Runs> {
                let session = trial.session(SessionOptions::default(), accelerator.cloned())?;
                trial.run(&session)?;
                Ok(Runs::time(budget, most, || trial.run(&session).map(drop))?)
            };
            say(&trial.name, Some(trial.operations), runs());
        }
        let bundled = ("digits".to_owned(), self.digits.clone());
        for (name, model) in [&bundled].into_iter().chain(&self.models) {
            let runs = || -> Result<Runs> {
                let session = self.session(model, accelerator)?;
                let (given, _) =
                    inputs::complete(Vec::new(), session.inputs(), None, &Dims::default())?;
                let run = || session.run_data(data(&given)).map(drop);
                run()?;
                Ok(Runs::time(budget, most, run)?)
            };
            say(name, None, runs());
        }
    }

    fn copy(&self, id: DeviceId) -> Result<Vec<Measured>> {
        let (bytes, times) = self.copies;
        let failed = |error| Failure::from_error("device_broken", &error);
        let device = lgp_hal::open(id).map_err(failed)?;
        let all = measure_copies(&*device, bytes, times).map_err(failed)?;
        let measured = all.into_iter().map(|copies| {
            let samples = copies.took.into_iter().map(crate::measure::ms).collect();
            let name = format!("copy, {}, {} MiB", copies.name, copies.bytes >> 20);
            Measured::of(&name, Runs::of(samples), None, Some(copies.bytes as f64))
        });
        Ok(measured.collect())
    }
}

impl Check {
    fn new(name: String, error: Option<f64>, note: String) -> Self {
        let passed = error.is_some_and(|error| error <= TOLERANCE);
        Self { name, passed, error, tolerance: TOLERANCE, note }
    }
}

impl Measured {
    fn of(name: &str, runs: Runs, operations: Option<f64>, bytes: Option<f64>) -> Self {
        // A measured time of 0 gives no rate.
        let rate = |amount: f64| Some(amount / runs.median_ms / 1e6).filter(|it| it.is_finite());
        let (gflops, gb_per_s) = (operations.and_then(rate), bytes.and_then(rate));
        Self { name: name.to_owned(), runs, gflops, gb_per_s }
    }
}

impl Examined {
    /// The same with this machine's accounts and folders removed from texts of drivers and files.
    pub(super) fn without_places(mut self, redactor: &Redactor) -> Self {
        let clean = |text: &mut String| *text = redactor.text(text);
        self.reason.iter_mut().chain(&mut self.failures).for_each(clean);
        self.checks.iter_mut().map(|check| &mut check.note).for_each(clean);
        self
    }

    /// Fail where the device computes wrongly, warn where a measurement failed.
    pub(super) fn status(&self) -> FindingStatus {
        let is_wrong = self.checks.iter().any(|check| !check.passed);
        match (is_wrong || self.self_test == SelfTest::Failed, &self.reason, self.failures.len()) {
            (true, ..) => FindingStatus::Fail,
            (_, Some(_), _) => FindingStatus::Info,
            (_, None, 0) => FindingStatus::Ok,
            _ => FindingStatus::Warn,
        }
    }
}

/// Reads the models of files, by the files' names.
///
/// # Errors
/// Those of [`Model::load`].
pub(super) fn load(files: &[PathBuf]) -> Result<Vec<(String, Model)>> {
    files.iter().map(|path| Ok((stem(path), Model::load(path)?))).collect()
}

/// A model's name without its folder.
fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_billions_a_second() {
        let runs = Runs { runs: 3, min_ms: 1.0, median_ms: 2.0 };
        let measured = Measured::of("x", runs, Some(4e9), Some(2e6));
        assert_eq!((measured.gflops, measured.gb_per_s), (Some(2000.0), Some(1.0)));
        let none = Runs { median_ms: 0.0, ..runs };
        assert_eq!(Measured::of("x", none, Some(4e9), None).gflops, None);
    }

    #[test]
    fn what_is_wrong_or_no_number_does_not_pass() {
        for (error, passed) in
            [(Some(0.0), true), (Some(TOLERANCE), true), (Some(2e-4), false), (None, false)]
        {
            assert_eq!(Check::new("x".into(), error, String::new()).passed, passed);
        }
    }
}
