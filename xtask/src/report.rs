//! Counts the tests that passed, failed and were skipped, with reasons and times.

use std::time::{Duration, Instant};

/// A test that did not run, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skip {
    /// What was missing, in one word: opencl, cuda, python …
    pub(crate) need: String,
    /// The reason in words.
    pub(crate) reason: String,
}

impl Skip {
    pub(crate) fn new(need: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { need: need.into(), reason: reason.into() }
    }

    /// The skip of a test called `SUBJECT: WHAT`. Only a skip of `all laws` means that the subject
    /// itself is missing.
    fn of(self, name: &str) -> Self {
        let Some((subject, what)) = name.split_once(": ") else { return self };
        let backend = subject.split(':').next().unwrap_or(subject);
        match what {
            "all laws" => Self::new(backend, self.reason),
            _ => Self::new("", format!("{subject}: {}", self.text())),
        }
    }

    fn text(&self) -> String {
        let Self { need, reason } = self;
        if need.is_empty() { reason.clone() } else { format!("{need}: {reason}") }
    }

    /// Parses the line of a test that cannot run: `skipped: NEED: REASON`; the first colon may be
    /// missing.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let rest = line.trim().strip_prefix("skipped")?;
        let rest = rest.strip_prefix(": ").or_else(|| rest.strip_prefix(' '))?;
        match rest.split_once(": ") {
            Some((need, reason)) if !need.contains(' ') => Some(Self::new(need, reason)),
            _ => Some(Self::new("", rest)),
        }
    }
}

/// The outcome of one suite.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// How many tests passed.
    pub(crate) passed: usize,
    /// The failures, one entry for each test.
    pub(crate) failed: Vec<String>,
    /// The skipped tests.
    pub(crate) skipped: Vec<Skip>,
}

impl Outcome {
    /// One test that passed.
    pub(crate) fn pass() -> Self {
        Self { passed: 1, ..Self::default() }
    }

    /// One test that failed.
    pub(crate) fn fail(reason: impl Into<String>) -> Self {
        Self { failed: vec![reason.into()], ..Self::default() }
    }

    /// One test that did not run.
    pub(crate) fn skip(skip: Skip) -> Self {
        Self { skipped: vec![skip], ..Self::default() }
    }

    /// Reads the lines that our programs print for their tests: `ok NAME`, `failed: WHAT`,
    /// `skipped: NEED: REASON`, or `NAME … ` followed by one of them.
    pub(crate) fn read(output: &str) -> Self {
        let mut outcome = Self::default();
        for line in output.lines() {
            let (name, verdict) = line.rsplit_once(" … ").unwrap_or(("", line));
            let lower = verdict.to_lowercase();
            if lower == "ok" || lower.starts_with("ok ") || lower.starts_with("ok: ") {
                outcome.passed += 1;
            } else if lower.starts_with("failed: ") || lower.starts_with("failed ") {
                outcome.failed.push(line.to_owned());
            } else if let Some(skip) = Skip::parse(verdict) {
                outcome.skipped.push(skip.of(name));
            }
        }
        outcome
    }

    /// Adds the tests of `other`.
    pub(crate) fn and(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }
}

/// How long a run may take.
pub(crate) struct Time {
    /// The expected time on the machines that tests are meant for; a longer run says so.
    pub(crate) wanted: Duration,
    /// The limit for a slow or busy machine; a longer run fails.
    pub(crate) limit: Duration,
}

/// The suites of one run.
pub(crate) struct Report {
    required: Vec<String>,
    started: Instant,
    suites: Vec<(String, Duration, Outcome)>,
}

impl Report {
    /// An empty report; skipping one of `required` counts as a failure.
    pub(crate) fn new(required: &[String]) -> Self {
        Self { required: required.to_vec(), started: Instant::now(), suites: Vec::new() }
    }

    /// Runs one suite and keeps its outcome.
    pub(crate) fn suite(&mut self, name: &str, run: impl FnOnce() -> anyhow::Result<Outcome>) {
        eprintln!("\n== {name}");
        let started = Instant::now();
        let outcome = run().unwrap_or_else(|error| Outcome::fail(format!("{error:#}")));
        for failure in &outcome.failed {
            eprintln!("failed: {failure}");
        }
        self.add(name, started.elapsed(), outcome);
    }

    fn add(&mut self, name: &str, took: Duration, mut outcome: Outcome) {
        let required = |skip: &Skip| self.required.contains(&skip.need);
        let (missing, skipped) = outcome.skipped.into_iter().partition::<Vec<_>, _>(required);
        outcome.skipped = skipped;
        let missing = missing.into_iter();
        outcome.failed.extend(missing.map(|s| format!("{} is required: {}", s.need, s.reason)));
        self.suites.push((name.to_owned(), took, outcome));
    }

    /// Prints all, with the counts alone on the last line. True when nothing failed and the run
    /// stayed within the limit of `time`.
    pub(crate) fn close(self, time: &Time) -> bool {
        let took = self.started.elapsed();
        let (text, good) = self.render(took, time);
        print!("{text}");
        good
    }

    fn render(mut self, took: Duration, time: &Time) -> (String, bool) {
        let late = |most: Duration, what| {
            format!("{} s in all, at most {} s {what}", took.as_secs(), most.as_secs())
        };
        if took > time.limit {
            let outcome = Outcome::fail(late(time.limit, "allowed"));
            self.suites.push(("time".to_owned(), Duration::ZERO, outcome));
        }
        let mut text = String::from("\nseconds  passed  failed  skipped  suite\n");
        let mut total = Outcome::default();
        for (name, took, outcome) in &self.suites {
            let Outcome { passed, failed, skipped } = outcome;
            let (failed, skipped, took) = (failed.len(), skipped.len(), took.as_secs_f64());
            text += &format!("{took:7.1}  {passed:6}  {failed:6}  {skipped:7}  {name}\n");
            total.and(outcome.clone());
        }
        text += &format!("{:7.1}  in all\n", took.as_secs_f64());
        if took > time.wanted {
            text += &format!("slow: {}\n", late(time.wanted, "wanted"));
        }
        let entries = self.suites.iter();
        let mut skips: Vec<(String, usize)> = Vec::new();
        for (name, _, outcome) in entries.clone() {
            for skip in &outcome.skipped {
                let line = format!("skipped: {name}: {}", skip.text());
                match skips.iter_mut().find(|(other, _)| *other == line) {
                    Some((_, count)) => *count += 1,
                    None => skips.push((line, 1)),
                }
            }
        }
        for (line, count) in skips {
            text += &line;
            text += &if count > 1 { format!(" ({count} times)\n") } else { "\n".to_owned() };
        }
        for (name, reason) in entries.flat_map(|(n, _, o)| o.failed.iter().map(move |f| (n, f))) {
            text += &format!("failed: {name}: {}\n", reason.lines().next().unwrap_or_default());
        }
        let (passed, failed, skipped) = (total.passed, total.failed.len(), total.skipped.len());
        text += &format!("{passed} passed, {failed} failed, {skipped} skipped\n");
        (text, failed == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const TIME: Time = Time { wanted: HOUR, limit: Duration::from_secs(5400) };

    fn report(required: &[&str], took: Duration) -> (String, bool) {
        let required: Vec<String> = required.iter().map(|&r| r.to_owned()).collect();
        let mut report = Report::new(&required);
        report.suite("fine", || Ok(Outcome { passed: 41, ..Outcome::default() }));
        report.suite("one more", || Ok(Outcome::pass()));
        report.suite("gpu", || Ok(Outcome::skip(Skip::new("cuda", "no driver"))));
        report.render(took, &TIME)
    }

    #[test]
    fn the_last_line_is_the_sum() {
        let (text, good) = report(&["opencl"], Duration::ZERO);
        assert!(good && text.ends_with("\n42 passed, 0 failed, 1 skipped\n"), "{text}");
        assert!(text.contains("skipped: gpu: cuda: no driver\n"), "{text}");
    }

    #[test]
    fn a_required_thing_that_is_skipped_fails() {
        let (text, good) = report(&["cuda"], Duration::ZERO);
        assert!(!good && text.ends_with("\n42 passed, 1 failed, 0 skipped\n"), "{text}");
    }

    #[test]
    fn longer_than_wanted_is_told_and_too_long_fails() {
        let (text, good) = report(&[], HOUR);
        assert!(good && !text.contains("slow"), "{text}");
        let (text, good) = report(&[], Duration::from_secs(4000));
        assert!(good && text.contains("slow: 4000 s in all, at most 3600 s wanted\n"), "{text}");
        let (text, good) = report(&[], 2 * HOUR);
        assert!(!good && text.contains("7200 s in all, at most 5400 s allowed"), "{text}");
    }

    #[test]
    fn an_error_is_a_failure() {
        let mut report = Report::new(&[]);
        report.suite("broken", || anyhow::bail!("no compiler"));
        let (text, good) = report.render(HOUR, &TIME);
        assert!(!good && text.contains("failed: broken: no compiler\n"), "{text}");
    }

    #[test]
    fn printed_tests_are_counted() {
        let outcome = Outcome::read(
            "ok: copy\nok infer\ncpu: fill … ok\nall done\nfailed: 3 is not 4\n\
             opencl:0: fill … FAILED: 3 is not 4\ncpu: add … skipped: it has no programs\n\
             cuda:0: all laws … skipped: no device cuda:0: no driver\n1 passed, 0 failed\n",
        );
        assert_eq!(outcome.passed, 3);
        assert_eq!(outcome.failed.len(), 2, "{outcome:?}");
        let skips = [
            Skip::new("", "cpu: it has no programs"),
            Skip::new("cuda", "no device cuda:0: no driver"),
        ];
        assert_eq!(outcome.skipped, skips);
    }

    #[test]
    fn skip_lines_are_read() {
        let cases = [
            ("skipped: opencl: no platform", Some(Skip::new("opencl", "no platform"))),
            ("  skipped: no such: thing", Some(Skip::new("", "no such: thing"))),
            ("skipped kserve: not installed", Some(Skip::new("kserve", "not installed"))),
            ("test skipped: x", None),
        ];
        for (line, wanted) in cases {
            assert_eq!(Skip::parse(line), wanted, "{line}");
        }
    }
}
