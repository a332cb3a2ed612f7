//! The latest lines of the platform's log files, whose format is text or JSON.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Bytes that are read from the end of each file.
const BYTES_MAX: u64 = 4 << 20;
/// Read sizes for a follower that has earlier lines. If lines are missing, the next larger size is read, up to the
/// whole file and its rotated part.
const NEWS_BYTES: [u64; 3] = [256 << 10, 4 << 20, 64 << 20];
/// Longest line that is returned, in bytes; longer ones are cut.
const LINE_BYTES_MAX: usize = 4 << 10;

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Single steps.
    Trace,
    /// Details for developers.
    Debug,
    /// Normal events.
    Info,
    /// Events that may need attention.
    Warn,
    /// Events that need attention.
    Error,
}

impl LogLevel {
    /// Every level, the least first.
    pub const ALL: [Self; 5] = [Self::Trace, Self::Debug, Self::Info, Self::Warn, Self::Error];

    /// The level's name as requests write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            format!("'{text}' is no level, expected trace, debug, info, warn or error")
        })
    }
}

/// A line of a log, with the following lines that have no time of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// The time of the line: RFC 3339, UTC, microseconds.
    pub at: String,
    /// The severity of the line.
    pub level: LogLevel,
    /// The file's name without its extension: `coordinator` or `workers`.
    pub source: String,
    /// The message.
    pub text: String,
}

/// Selects lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter {
    /// The least severity.
    pub level: LogLevel,
    /// A part of the text or the source, case-insensitive.
    pub contains: String,
    /// Only lines later than this time, in the format of [`LogLine::at`].
    pub after: Option<String>,
    /// The most lines. Without `after`, the latest; with it, the earliest, plus all lines with the time of the last
    /// one, so that a follower that continues from there misses none.
    pub limit: usize,
}

impl LogFilter {
    fn takes(&self, line: &LogLine, contains: &str) -> bool {
        let later = self.after.as_ref().is_none_or(|after| line.at > *after);
        let has = |text: &str| text.to_lowercase().contains(contains);
        later && line.level >= self.level && (has(&line.text) || has(&line.source))
    }
}

/// The latest lines of log files that pass a filter, oldest first. Each file is read together with `NAME.1`, its
/// rotated part: the last 4 MiB of the two, or with [`LogFilter::after`] up to all that is later. A missing file
/// has no lines.
///
/// # Errors
/// Errors of reading.
pub fn read_logs(paths: &[PathBuf], filter: &LogFilter) -> io::Result<Vec<LogLine>> {
    let contains = filter.contains.to_lowercase();
    let mut all = Vec::new();
    for path in paths {
        let source = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let lines = match &filter.after {
            None => lines(&tail(path, BYTES_MAX)?, &source),
            Some(after) => news(path, &source, after)?,
        };
        all.extend(lines.into_iter().filter(|line| filter.takes(line, &contains)));
    }
    // The sort is stable: lines of the same time keep their order.
    all.sort_by(|a, b| a.at.cmp(&b.at));
    let limit = filter.limit;
    if filter.after.is_none() {
        all.drain(..all.len().saturating_sub(limit));
    } else if let Some(last) = limit.checked_sub(1).and_then(|at| all.get(at)).map(|l| l.at.clone())
    {
        all.truncate(all.partition_point(|line| line.at <= last));
    }
    Ok(all)
}

/// The lines of a file from a time on, with earlier lines that were read along.
fn news(path: &Path, source: &str, after: &str) -> io::Result<Vec<LogLine>> {
    let mut found = Vec::new();
    let mut seen = 0;
    for bytes_max in NEWS_BYTES {
        let text = tail(path, bytes_max)?;
        let is_all = text.len() == seen;
        seen = text.len();
        if is_all {
            break;
        }
        found = lines(&text, source);
        if found.first().is_some_and(|line| line.at.as_str() <= after) {
            break;
        }
    }
    Ok(found)
}

/// The end of a log from the beginning of a line on, continued into the rotated file if the log is shorter than
/// `bytes_max`. Missing files are empty.
fn tail(path: &Path, bytes_max: u64) -> io::Result<String> {
    let (text, left) = end(path, bytes_max)?;
    if left == 0 {
        return Ok(text);
    }
    let mut aside = path.to_owned().into_os_string();
    aside.push(".1");
    Ok(end(Path::new(&aside), left)?.0 + &text)
}

/// The end of a file from the beginning of a line on, and by how many bytes it is shorter than `bytes_max`.
fn end(path: &Path, bytes_max: u64) -> io::Result<(String, u64)> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((String::new(), bytes_max));
        }
        file => file?,
    };
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(bytes_max);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    // The file may grow meanwhile.
    file.take(bytes_max).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let begins = if skipped == 0 { 0 } else { text.find('\n').map_or(text.len(), |at| at + 1) };
    Ok((text[begins..].to_owned(), bytes_max.saturating_sub(length)))
}

/// Parses the lines of a text. Lines without a time, as of a panic, are appended to the line before.
fn lines(text: &str, source: &str) -> Vec<LogLine> {
    let mut all: Vec<LogLine> = Vec::new();
    for line in text.lines() {
        match parse(line) {
            Some((at, level, text)) => {
                all.push(LogLine { at, level, source: source.to_owned(), text: cut(&text) });
            }
            None => {
                if let Some(last) = all.last_mut() {
                    last.text = cut(&format!("{}\n{line}", last.text));
                }
            }
        }
    }
    all
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(LINE_BYTES_MAX)].to_owned()
}

/// Time, level and text of a line.
fn parse(line: &str) -> Option<(String, LogLevel, String)> {
    if line.starts_with('{') {
        return parse_json(line);
    }
    let (at, rest) = line.split_once(' ')?;
    let (level, text) = rest.trim_start().split_once(' ')?;
    is_time(at).then_some(())?;
    Some((at.to_owned(), level.parse().ok()?, text.to_owned()))
}

fn parse_json(line: &str) -> Option<(String, LogLevel, String)> {
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).ok()?;
    let mut take = |name: &str| match fields.remove(name) {
        Some(serde_json::Value::String(text)) => Some(text),
        _ => None,
    };
    let (at, level, message) = (take("timestamp")?, take("level")?, take("message"));
    let target = take("target").unwrap_or_default();
    is_time(&at).then_some(())?;
    let mut text = format!("{target}: {}", message.unwrap_or_default());
    for (name, value) in &fields {
        text += &format!(" {name}={value}");
    }
    Some((at, level.parse().ok()?, text))
}

/// Whether a text is a UTC time in the logs' format; such times sort as strings.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 27 && bytes[10] == b'T' && bytes[26] == b'Z' && bytes[0].is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COORDINATOR: &str = "\
2026-11-27T13:08:35.621761Z  INFO radeon_cluster::driver: worker started worker=\"local-1\"
2026-11-27T13:08:36.000001Z  WARN lgp: a worker is lost worker=local-1
2026-11-27T13:08:36.000002Z ERROR lgp: a panic
at src/main.rs
{\"timestamp\":\"2026-11-27T13:08:37.000000Z\",\"level\":\"INFO\",\"message\":\"ready\",\"http\":1,\"target\":\"lgp\"}
";
    const WORKERS: &str =
        "no time\n2026-11-27T13:08:36.500000Z  INFO lgp_sdk::executor: loading model=digits/1\n";

    #[test]
    fn lines_of_all_files_are_found_by_what_they_say() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let paths =
            ["coordinator.log", "workers.log", "none.log"].map(|name| folder.path().join(name));
        std::fs::write(&paths[0], COORDINATOR).expect("ours");
        std::fs::write(&paths[1], WORKERS).expect("ours");
        let all =
            LogFilter { level: LogLevel::Trace, contains: String::new(), after: None, limit: 100 };
        let texts = |filter: &LogFilter| -> Vec<String> {
            let lines = read_logs(&paths, filter).expect("ours");
            lines.into_iter().map(|line| line.text).collect()
        };
        let whole = texts(&all);
        assert_eq!(whole.len(), 5, "{whole:?}");
        assert_eq!(whole[2], "lgp: a panic\nat src/main.rs");
        assert_eq!(whole[3], "lgp_sdk::executor: loading model=digits/1");
        assert_eq!(whole[4], "lgp: ready http=1");
        let some = |filter: LogFilter| texts(&filter);
        assert_eq!(some(LogFilter { level: LogLevel::Warn, ..all.clone() }), whole[1..3]);
        assert_eq!(some(LogFilter { contains: "LOCAL-1".into(), ..all.clone() }), whole[..2]);
        assert_eq!(some(LogFilter { contains: "workers".into(), ..all.clone() }), whole[3..4]);
        let after = Some("2026-11-27T13:08:36.000002Z".to_owned());
        assert_eq!(some(LogFilter { after, ..all.clone() }), whole[3..]);
        assert_eq!(some(LogFilter { limit: 2, ..all }), whole[3..]);
    }

    #[test]
    fn what_came_later_is_found_however_much_it_is_and_where_it_was_put_aside() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let paths = [folder.path().join("busy.log")];
        let line = |n: usize| {
            format!("2026-11-27T13:08:36.{n:06}Z  INFO lgp: line {n} {}\n", "x".repeat(100))
        };
        // Three times the first read size.
        let text: String = (0..6_000).map(line).collect();
        let (aside, rest) = text.split_at(text.len() / 2);
        std::fs::write(folder.path().join("busy.log.1"), aside).expect("ours");
        std::fs::write(&paths[0], rest).expect("ours");
        let mut filter = LogFilter {
            level: LogLevel::Trace,
            contains: String::new(),
            after: Some("2026-11-27T13:08:36.000009Z".to_owned()),
            limit: 1_000,
        };
        let mut told = Vec::new();
        loop {
            let news = read_logs(&paths, &filter).expect("ours");
            let Some(last) = news.last() else { break };
            filter.after = Some(last.at.clone());
            told.extend(news);
        }
        assert_eq!(told.len(), 5_990);
        let numbers = |line: &LogLine| line.at[20..26].parse::<usize>().expect("a number");
        assert!(told.iter().map(numbers).eq(10..6_000));
        let latest = LogFilter { after: None, limit: 4_000, ..filter };
        let latest = read_logs(&paths, &latest).expect("ours");
        assert_eq!((latest.len(), numbers(&latest[0])), (4_000, 2_000));
    }

    #[test]
    fn a_long_file_is_read_from_its_end_and_from_a_line_on() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("long.log");
        std::fs::write(&path, "first line\nsecond\u{fffd}\nthird\n").expect("ours");
        assert_eq!(tail(&path, 100).expect("ours").lines().count(), 3);
        assert_eq!(tail(&path, 8).expect("ours"), "third\n");
        assert_eq!(tail(&path, 3).expect("ours"), "");
        let long = format!("2026-11-27T13:08:36.500000Z  INFO {}", "ä".repeat(LINE_BYTES_MAX));
        let told = lines(&long, "long");
        assert!(told[0].text.len() <= LINE_BYTES_MAX && told[0].text.starts_with('ä'));
    }
}
