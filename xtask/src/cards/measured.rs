//! The table of `docs/cards.md`, from files that `radeon-cluster card` made on real machines.

use crate::cmd;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;

const PAGE: &str = "docs/cards.md";
const FOLDER: &str = "docs/cards";
/// The form of the files that is read.
const SCHEMA: u64 = 1;
/// The page is generated between these lines, and written by hand elsewhere.
const MARKS: [&str; 2] = ["<!-- made by cargo xtask cards --measured -->\n", "<!-- end -->\n"];

/// Generates the table.
pub(crate) fn run() -> Result<()> {
    let path = cmd::root().join(PAGE);
    std::fs::write(&path, made()?).with_context(|| format!("writing {}", path.display()))?;
    println!("{PAGE} is made of what lies in {FOLDER}");
    Ok(())
}

/// Where the page differs from the files.
pub(crate) fn drift() -> Result<Option<String>> {
    let text = std::fs::read_to_string(cmd::root().join(PAGE))?;
    Ok((text != made()?)
        .then(|| format!("{PAGE}: is not what {FOLDER} makes it: cargo xtask cards --measured")))
}

fn made() -> Result<String> {
    let root = cmd::root();
    let text = std::fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let entries = match std::fs::read_dir(root.join(FOLDER)) {
        Ok(entries) => entries.collect::<std::io::Result<Vec<_>>>()?,
        // No file has been sent yet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).context(FOLDER),
    };
    let mut paths: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "json"));
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let card: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)
            .with_context(|| format!("{FOLDER}/{name}"))?;
        files.push((name, card));
    }
    page(&text, &files)
}

/// The page with its table made of these files.
fn page(text: &str, files: &[(String, Value)]) -> Result<String> {
    let rows = files.iter().map(|(name, card)| rows(name, card)).collect::<Result<Vec<_>>>()?;
    let table = rows.into_iter().flatten().collect::<String>();
    let head = "\n| device | driver | what | median ms | rate | by |\n|---|---|---|---|---|---|\n";
    super::with(PAGE, text, MARKS, &format!("{head}{table}"))
}

/// The rows of a file: one for each device, with its measurements.
fn rows(name: &str, card: &Value) -> Result<Vec<String>> {
    if card["schema"] != SCHEMA {
        bail!("{FOLDER}/{name}: has schema {}, expected {SCHEMA}", card["schema"]);
    }
    if card["quick"] != false {
        bail!("{FOLDER}/{name}: was measured with --quick, which tells no speed");
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").replace('|', "\\|");
    let version = text(&card["program"]["version"]);
    let build = match text(&card["program"]["build"]).as_str() {
        "release" => String::new(),
        build => format!(", **{build} build**"),
    };
    let mut rows = Vec::new();
    for device in card["devices"].as_array().map_or(&[][..], Vec::as_slice) {
        let backend = text(&device["backend"]);
        let driver = Some(text(&device["driver"])).filter(|driver| !driver.is_empty());
        let driver = driver.map_or(backend.clone(), |driver| format!("{backend}, {driver}"));
        let checks = device["checks"].as_array().map_or(&[][..], Vec::as_slice);
        let wrong = checks.iter().filter(|check| check["passed"] != true).count();
        let wrong = if wrong == 0 { String::new() } else { format!(" (**{wrong} checks wrong**)") };
        for one in device["measured"].as_array().map_or(&[][..], Vec::as_slice) {
            let rate = match (one["gflops"].as_f64(), one["gb_per_s"].as_f64()) {
                (Some(rate), _) => format!("{rate:.1} GFLOP/s"),
                (_, Some(rate)) => format!("{rate:.1} GB/s"),
                _ => String::new(),
            };
            let median = one["median_ms"].as_f64().unwrap_or(f64::NAN);
            rows.push(format!(
                "| {}{wrong} | {driver} | {} | {median:.3} | {rate} | [{version}](cards/{name}){build} |\n",
                text(&device["name"]),
                text(&one["name"]),
            ));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn card(quick: bool, build: &str) -> Value {
        json!({
            "schema": 1, "quick": quick, "program": { "version": "0.1.0", "build": build },
            "devices": [
                { "name": "RX | 580", "backend": "opencl", "driver": "25.0.7",
                  "checks": [{ "passed": true }, { "passed": false }],
                  "measured": [
                    { "name": "gemm-512", "median_ms": 1.25, "gflops": 858.99, "gb_per_s": null },
                    { "name": "copy", "median_ms": 6.0, "gflops": null, "gb_per_s": 11.18 }] },
                { "name": "unused", "checks": [], "measured": [] },
            ],
        })
    }

    #[test]
    fn the_table_is_made_of_the_files() {
        let [begin, end] = MARKS;
        let text = format!("# Cards\n{begin}old\n{end}tail\n");
        let made = page(&text, &[("a.json".to_owned(), card(false, "debug"))]).expect("sound");
        assert!(made.starts_with("# Cards\n") && made.ends_with("tail\n") && !made.contains("old"));
        let row = "| RX \\| 580 (**1 checks wrong**) | opencl, 25.0.7 | gemm-512 | 1.250 | 859.0 GFLOP/s | [0.1.0](cards/a.json), **debug build** |\n";
        assert!(made.contains(row), "{made}");
        assert!(
            made.contains("| copy | 6.000 | 11.2 GB/s |") && !made.contains("unused"),
            "{made}"
        );
        assert_eq!(
            page(&made, &[("a.json".to_owned(), card(false, "debug"))]).expect("again"),
            made
        );
    }

    #[test]
    fn what_tells_no_speed_is_refused() {
        let [begin, end] = MARKS;
        let text = format!("{begin}{end}");
        let files = |card| [("a.json".to_owned(), card)];
        assert!(page(&text, &files(card(true, "release"))).is_err());
        assert!(page(&text, &files(json!({ "schema": 2 }))).is_err());
        assert!(page("no marks", &[]).is_err());
    }
}
