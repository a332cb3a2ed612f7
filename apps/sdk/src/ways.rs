//! Which way to use a card is the fastest: measured once for a card and its drivers, and kept on disk.

use crate::choice::DeviceLimits;
use lgp_compute::device::Accelerator;
use lgp_hal::{DeviceId, Way};
use lgp_measure::{TrialSize, typical_ms};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// The time limit of measuring one way, with slow compilers in mind.
const LIMIT: Duration = Duration::from_secs(30);
/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The best way by rank is left for one that is faster by this factor: less is noise.
const GAIN_MIN: f64 = 1.05;

/// The milliseconds of a way, or why it does not run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Ms(f64),
    /// In so many processes it took too long. A second one is tried, because programs that a driver compiles slowly are
    /// kept by then.
    Hung(u8),
    /// It fails soon, and may work when the card has memory again.
    Failed(String),
}

impl Outcome {
    fn is_kept(&self) -> bool {
        match self {
            Self::Ms(ms) => ms.is_finite() && *ms > 0.,
            Self::Hung(_) => true,
            Self::Failed(_) => false,
        }
    }

    /// Whether there is nothing left to measure.
    fn is_final(&self) -> bool {
        self.is_kept() && !matches!(self, Self::Hung(1))
    }
}

/// The outcomes by id, and those by the ways that were measured.
type Outcomes = BTreeMap<String, Outcome>;
type Kept = BTreeMap<String, Outcomes>;

impl DeviceLimits {
    /// The fastest of the ways to use a card; `None` for the first. The ways are measured once for a card and its
    /// drivers, which takes some seconds, and the times are kept in [`DeviceLimits::cache`]; without such a folder
    /// nothing is measured. [`open_device`](crate::device::open_device) chooses by it for `auto`.
    #[must_use]
    pub fn fastest_way(&self, ways: &[Way]) -> Option<DeviceId> {
        fastest(&self.way_times(ways))
    }

    /// As [`DeviceLimits::fastest_way`], by the times that are kept: nothing is measured.
    #[must_use]
    pub fn known_way(&self, ways: &[Way]) -> Option<DeviceId> {
        let known = |_| Outcome::Failed("it was not measured".to_owned());
        self.file().and_then(|file| fastest(&times(&file, ways, &known)))
    }

    /// The times that [`DeviceLimits::fastest_way`] compares: milliseconds, or why a way does not run. Nothing for one
    /// way.
    #[must_use]
    pub fn way_times(&self, ways: &[Way]) -> Vec<(DeviceId, Result<f64, String>)> {
        let times = |file: PathBuf| times(&file, ways, &|id| self.measured(id));
        self.file().map_or_else(Vec::new, times)
    }

    /// The file of the times.
    fn file(&self) -> Option<PathBuf> {
        Some(self.cache.as_deref()?.join("devices").join("ways.json"))
    }

    /// Measures a way. A driver may take forever over a kernel: the thread then ends with the process.
    fn measured(&self, id: DeviceId) -> Outcome {
        tracing::info!(%id, "measuring a way to use a card");
        let (sender, receiver) = mpsc::channel();
        let limits = Self { cache: self.cache.clone(), ..Self::default() };
        let measure = move || -> Result<f64, String> {
            let device = lgp_hal::open(id).map_err(|error| error.to_string())?;
            let accelerator = Accelerator::new(device).map_err(|error| error.to_string())?;
            limits.keep_programs(&accelerator)?;
            typical_ms(&accelerator, TrialSize::Full).map_err(|error| error.to_string())
        };
        let spawned = std::thread::Builder::new().name(format!("speed of {id}")).spawn(move || {
            // The receiver is gone after the time limit.
            let _ = sender.send(measure());
        });
        if let Err(error) = spawned {
            return Outcome::Failed(error.to_string());
        }
        match receiver.recv_timeout(LIMIT) {
            Ok(Ok(ms)) => Outcome::Ms(ms),
            Ok(Err(reason)) => Outcome::Failed(reason),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Outcome::Failed("its driver ended the measurement".to_owned())
            }
            Err(mpsc::RecvTimeoutError::Timeout) => Outcome::Hung(1),
        }
    }
}

/// The times of ways: from the file, or else by `measure` and then in the file.
fn times(
    file: &Path,
    ways: &[Way],
    measure: &dyn Fn(DeviceId) -> Outcome,
) -> Vec<(DeviceId, Result<f64, String>)> {
    if ways.len() < 2 {
        return Vec::new();
    }
    let key = key(ways);
    let known = read(file).remove(&key).unwrap_or_default();
    // A measurement that hung still takes the card's time.
    let mut is_busy = false;
    let outcome = |way: &Way| {
        let before = known.get(&way.id.to_string());
        if let Some(outcome) = before.filter(|outcome| outcome.is_final()) {
            return (way.id, outcome.clone());
        }
        if is_busy {
            return (way.id, Outcome::Failed("another way is still being measured".to_owned()));
        }
        let outcome = match (before, measure(way.id)) {
            (Some(Outcome::Hung(times)), Outcome::Hung(_)) => Outcome::Hung(times + 1),
            (_, outcome) => outcome,
        };
        is_busy = matches!(outcome, Outcome::Hung(_));
        (way.id, outcome)
    };
    let outcomes: Vec<(DeviceId, Outcome)> = ways.iter().map(outcome).collect();
    let kept = outcomes.iter().filter(|(_, outcome)| outcome.is_kept());
    let kept: Outcomes = kept.map(|(id, outcome)| (id.to_string(), outcome.clone())).collect();
    if kept != known {
        // Another process may have written in the meantime.
        let mut all = read(file);
        all.insert(key, kept);
        if let Err(error) = write(file, &all) {
            tracing::warn!(%error, "the ways to use a card are measured each time");
        }
    }
    let time = |(id, outcome)| match outcome {
        Outcome::Ms(ms) => (id, Ok(ms)),
        Outcome::Hung(_) => {
            let (seconds, file) = (LIMIT.as_secs(), file.display());
            (id, Err(format!("not measured within {seconds} s; without {file} it is tried again")))
        }
        Outcome::Failed(reason) => (id, Err(reason)),
    };
    outcomes.into_iter().map(time).collect()
}

/// The way to take; `None` for the first.
fn fastest(times: &[(DeviceId, Result<f64, String>)]) -> Option<DeviceId> {
    let measured = times.iter().filter_map(|(id, ms)| Some((*id, *ms.as_ref().ok()?)));
    let (best, ms) = measured.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    match times.first() {
        Some((first, Ok(by_rank))) if *by_rank < GAIN_MIN * ms => Some(*first),
        _ => Some(best),
    }
}

/// Everything that the times depend on: the card, and the versions of its drivers and of this program.
fn key(ways: &[Way]) -> String {
    let way = |Way { id, name, driver, .. }: &Way| format!("{id} {name}, {driver}");
    let mut ways: Vec<String> = ways.iter().map(way).collect();
    ways.sort_unstable();
    format!("{}: {}", env!("CARGO_PKG_VERSION"), ways.join("; "))
}

/// The file's times; none if it is missing, too large or something else.
fn read(file: &Path) -> Kept {
    let is_small = std::fs::metadata(file).is_ok_and(|it| it.len() <= FILE_BYTES_MAX);
    let text = is_small.then(|| std::fs::read(file).ok()).flatten();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Writes a file that appears whole or not at all. Its folder was made when programs were kept.
fn write(file: &Path, kept: &Kept) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut whole = tempfile::NamedTempFile::new_in(folder)?;
    whole.write_all(&serde_json::to_vec_pretty(kept)?)?;
    whole.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_hal::SelfTest;
    use std::cell::RefCell;

    fn way(id: &str, driver: &str) -> Way {
        let (id, name, driver) = (id.parse().expect(id), "a card".to_owned(), driver.to_owned());
        let (reason, hint, self_test) = (None, None, SelfTest::NotRun);
        Way { id, name, driver, usable: true, reason, hint, self_test }
    }

    #[test]
    fn ways_are_measured_once_for_a_card_and_its_drivers() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ways.json");
        let asked = RefCell::new(Vec::new());
        let measure = |id: DeviceId| {
            asked.borrow_mut().push(id.to_string());
            match id.to_string().as_str() {
                "opencl:0" => Outcome::Ms(2.0),
                "opencl:1" => Outcome::Hung(1),
                "cuda:0" => Outcome::Failed("no kernel compiles".to_owned()),
                _ => Outcome::Ms(3.0),
            }
        };
        let two = [way("vulkan:0", "radv 25.0"), way("opencl:0", "rusticl 25.0")];
        let newer = [way("vulkan:0", "radv 25.1"), way("opencl:0", "rusticl 25.0")];
        let four = [&two[..], &[way("cuda:0", ""), way("opencl:1", "")]].concat();
        let busy = [&[way("opencl:1", "slow")][..], &two].concat();
        let all: &[&str] = &["vulkan:0", "opencl:0", "cuda:0", "opencl:1"];
        for (ways, measured) in [
            (&two[..1], &[][..]),
            (&two, &all[..2]),
            (&two, &[]),
            (&newer, &all[..2]),
            (&two, &[]),
            (&four, all),
            // Both may work by now.
            (&four, &all[2..]),
            (&four, &["cuda:0"]),
            // One that hangs keeps the card from the others.
            (&busy, &["opencl:1"]),
            (&busy, &["opencl:1"]),
            (&busy, &all[..2]),
        ] {
            let times = times(&file, ways, &measure);
            assert_eq!(asked.take(), measured, "{ways:?}");
            assert_eq!(times.len(), if ways.len() < 2 { 0 } else { ways.len() });
            if measured == ["opencl:1"] {
                assert!(times.iter().all(|(_, time)| time.is_err()), "{times:?}");
                continue;
            }
            for (id, time) in &times {
                assert_eq!(time.is_err(), all[2..].contains(&&*id.to_string()), "{times:?}");
            }
            let best = fastest(&times).map(|id| id.to_string());
            assert_eq!(best.as_deref(), (ways.len() > 1).then_some("opencl:0"));
        }
        // What is no list of times counts as missing.
        let key = serde_json::to_string(&key(&two)).expect("a text");
        for text in ["{\"a\": [", "[]", &format!("{{{key}: {{\"vulkan:0\": {{\"ms\": -1}}}}}}")] {
            std::fs::write(&file, text).expect("writable");
            times(&file, &two, &measure);
            assert_eq!(asked.take(), all[..2], "{text}");
        }
    }

    #[test]
    fn a_way_is_taken_if_it_is_clearly_faster_and_never_one_that_fails() {
        let [one, two] = ["vulkan:0", "opencl:0"].map(|id| id.parse::<DeviceId>().expect(id));
        let failed = || Err("it hangs".to_owned());
        for (times, expected) in [
            (vec![(one, Ok(2.0)), (two, Ok(1.0))], Some(two)),
            (vec![(one, Ok(1.04)), (two, Ok(1.0))], Some(one)),
            (vec![(one, Ok(1.0)), (two, Ok(2.0))], Some(one)),
            (vec![(one, failed()), (two, Ok(9.0))], Some(two)),
            (vec![(one, Ok(9.0)), (two, failed())], Some(one)),
            (vec![(one, failed()), (two, failed())], None),
            (vec![], None),
        ] {
            assert_eq!(fastest(&times), expected, "{times:?}");
        }
    }

    #[test]
    fn nothing_is_measured_without_a_folder_or_where_only_what_is_known_counts() {
        let ways = [way("vulkan:0", ""), way("opencl:0", "")];
        assert_eq!(DeviceLimits::default().fastest_way(&ways), None);
        assert!(DeviceLimits::default().way_times(&ways).is_empty());
        let folder = tempfile::tempdir().expect("a folder");
        let limits = DeviceLimits { cache: Some(folder.path().to_owned()), ..Default::default() };
        assert_eq!(limits.known_way(&ways), None);
        let file = limits.file().expect("it has a folder");
        std::fs::create_dir(file.parent().expect("it has one")).expect("writable");
        let ms = |id: DeviceId| Outcome::Ms(if id == ways[1].id { 1. } else { 2. });
        times(&file, &ways, &ms);
        assert_eq!(limits.known_way(&ways), Some(ways[1].id));
    }
}
