//! Tests of comparable runs, and of refused ones.

use super::super::Common;
use super::super::frame::Run;
use super::*;
use crate::output::Output;
use lgp_measure::Random;
use serde_json::json;
use std::path::PathBuf;
use tempfile::TempDir;

fn write(folder: &TempDir, json: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join("baseline.json");
    std::fs::write(&path, json).expect("the folder is ours");
    path
}

fn earlier(values: &[f64]) -> Value {
    json!({
        "kind": "local",
        "version": "0.0.1",
        "machine": {"cpu": "another", "cores": 1, "memory_bytes": null},
        "config": {"model": "m", "batch": 1},
        "samples": {"latency": {"unit": "ms", "better": "lower", "values": values}},
        "latency_ms": {"min": 1},
    })
}

fn noise(random: &mut Random, factor: f64) -> Vec<f64> {
    (0..20).map(|_| factor * (10. + f64::from(random.uniform()))).collect()
}

fn common(path: &Path) -> Common {
    Common { output: None, baseline: Some(path.to_owned()), tolerance: 0.05, quick: false }
}

fn measured(path: &Path, values: Vec<f64>) -> Result<()> {
    let common = common(path);
    let mut run = Run::begin("local", &common, json!({"batch": 1, "model": "m"}))?;
    run.add("latency", "ms", Better::Lower, values);
    run.finish((), String::new, Output::new(true))
}

#[test]
fn a_planted_regression_fails_and_noise_does_not() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for seed in 0..20 {
        let mut random = Random::seeded(seed);
        let path = write(&folder, earlier(&noise(&mut random, 1.)).to_string());
        for factor in [0.8, 1., 1.04] {
            measured(&path, noise(&mut random, factor)).expect("within the tolerance");
        }
        let failure = measured(&path, noise(&mut random, 1.2)).expect_err("a fifth slower");
        assert_eq!((failure.code.as_ref(), failure.exit), ("regression", 1));
        assert!(failure.message.contains("latency"), "{}", failure.message);
    }
    let path = write(&folder, earlier(&[1.; 3]).to_string());
    measured(&path, vec![9.; 20]).expect("three values show nothing");
}

#[test]
fn the_words_are_those_of_the_quantity() {
    let old = |unit: &str, better| Sample { unit: unit.into(), better, values: vec![10.; 8] };
    for (unit, better, value, verdict, is_regression) in [
        ("ms", Better::Lower, 20., "slower", true),
        ("ms", Better::Lower, 10.2, "slower", false),
        ("1/s", Better::Higher, 20., "faster", false),
        ("bytes", Better::Lower, 5., "better", false),
        ("bytes", Better::Lower, 20., "worse", true),
        ("%", Better::Neither, 20., "no difference shown", false),
        ("ms", Better::Lower, 10., "no difference shown", false),
    ] {
        let sample = old(unit, better);
        let new = Sample { values: vec![value; 8], ..old(unit, better) };
        let (compared, found) = compare(&sample, &new, 0.05);
        assert_eq!((compared.verdict, found), (verdict, is_regression), "{unit} {value}");
    }
}

#[test]
fn another_unit_or_direction_is_said_and_not_compared() {
    let old = Sample { unit: "us".into(), better: Better::Lower, values: vec![10.; 8] };
    for (unit, better, reason) in [
        ("ms", Better::Lower, "its unit was us, and is ms"),
        ("us", Better::Higher, "better was lower, and is higher"),
        ("us", Better::Neither, "better was lower, and is neither"),
    ] {
        let new = Sample { unit: unit.into(), better, values: vec![90.; 8] };
        let (compared, is_regression) = compare(&old, &new, 0.05);
        assert_eq!((compared.verdict, is_regression), (NOT_COMPARABLE, false), "{reason}");
        assert_eq!((compared.reason.as_deref(), compared.ratio), (Some(reason), None));
    }
    let (compared, is_regression) =
        compare(&old, &Sample { values: vec![90.; 8], ..old.clone() }, 0.05);
    assert_eq!((compared.verdict, compared.reason, is_regression), ("slower", None, true));
}

fn comparison(version: &str, metrics: BTreeMap<String, Compared>) -> Comparison {
    Comparison {
        baseline: "before.json".into(),
        baseline_version: version.into(),
        same_version: version == VERSION,
        same_machine: true,
        confidence: CONFIDENCE,
        tolerance: 0.07,
        metrics,
        regressions: vec!["latency".into()],
    }
}

#[test]
fn people_read_what_differs_between_the_runs() {
    let reason = Some("its unit was us, and is ms".to_owned());
    let odd = Compared { reason, ..Compared::without(NOT_COMPARABLE) };
    let text = comparison("0.0.1\n", BTreeMap::from([("latency".to_owned(), odd)])).text();
    let version = format!("it was made by version 0.0.1\\n, and this is {VERSION}\n");
    for part in ["not comparable: its unit was us, and is ms", &version] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let same = comparison(VERSION, BTreeMap::new());
    assert!(!same.text().contains("version"));
    let failure = same.judge().expect_err("a regression");
    assert!(failure.message.contains("by more than 7 %: latency"), "{}", failure.message);
    for (share, expected) in [(0.07, "7"), (0.125, "12.5"), (0.05, "5"), (0.29, "29"), (0., "0")] {
        assert_eq!(percent(share).to_string(), expected);
    }
}

#[test]
fn other_kinds_and_configs_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = write(&folder, earlier(&[1.; 5]).to_string());
    let begin = |kind, config| Run::begin(kind, &common(&path), config).err();
    let failure = begin("memory", json!({})).expect("another kind");
    assert_eq!(failure.code, "other_kind");
    let failure = begin("local", json!({"model": "n", "threads": 2})).expect("another config");
    assert_eq!(failure.code, "other_config");
    for part in ["batch was 1 and is none", "model was m and is n", "threads was none and is 2"] {
        assert!(failure.message.contains(part), "{}", failure.message);
    }
    assert!(begin("local", json!({"model": "m", "batch": 1})).is_none());
}

#[test]
fn files_that_nobody_wrote_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let with = |change: fn(&mut Value)| {
        let mut value = earlier(&[1.; 5]);
        change(&mut value);
        value.to_string()
    };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for bad in [
        String::new(),
        "[]".to_owned(),
        deep.clone(),
        earlier(&[1.]).to_string().replace("{\"batch\":1,\"model\":\"m\"}", &deep),
        earlier(&[1.]).to_string().replace("1.0", "1e999"),
        earlier(&[1.]).to_string().replace("1.0", "NaN"),
        with(|v| v["samples"]["latency"]["values"] = json!([-1])),
        with(|v| v["samples"]["latency"]["values"] = json!(["1"])),
        with(|v| v["samples"]["latency"]["better"] = json!("sideways")),
        with(|v| v["samples"]["latency"]["extra"] = json!(1)),
        with(|v| v["samples"] = json!({"x".repeat(201): v["samples"]["latency"]})),
        with(|v| v["machine"]["cores"] = json!(-1)),
        with(|v| v["version"] = json!("1".repeat(201))),
        with(|v| {
            let sample = v["samples"]["latency"].clone();
            let many = (0..=METRICS_MAX).map(|i| (i.to_string(), sample.clone()));
            v["samples"] = Value::Object(many.collect());
        }),
    ] {
        let failure = Baseline::read(&write(&folder, &bad)).expect_err("refused");
        assert_eq!(failure.code, "bad_baseline", "{}", &bad[..bad.len().min(80)]);
    }
    let large = folder.path().join("large.json");
    let file = std::fs::File::create(&large).expect("the folder is ours");
    file.set_len(BYTES_MAX + 1).expect("a sparse file");
    assert_eq!(Baseline::read(&large).expect_err("too large").code, "bad_baseline");
    let missing = Baseline::read(&folder.path().join("none")).expect_err("not there");
    assert_eq!(missing.code, "file_not_found");
}

#[test]
fn shares_as_people_write_them() {
    for (text, expected) in [("5%", 0.05), ("0.05", 0.05), ("12.5 %", 0.125), ("0", 0.)] {
        assert!((share(text).expect(text) - expected).abs() < 1e-12);
    }
    for text in ["", "%", "-1%", "100%", "5", "nan", "inf", "5 percent"] {
        assert!(share(text).is_err(), "{text:?}");
    }
}
