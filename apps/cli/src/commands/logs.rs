//! `logs`: log lines of the coordinator and its local workers.

use crate::failure::{Failure, Result};
use crate::folder;
use crate::output::{self, Output};
use crate::rest::{Client, Target};
use lgp_server::{LogFilter, LogLevel, LogLine, read_logs};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// The pause between looks for new lines.
const PAUSE: Duration = Duration::from_millis(500);
/// The number of lines per request, which is the coordinators' limit.
const NEWS_MAX: usize = 1_000;

/// Flags of `logs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster logs --level warn --follow\n\n\
    Without --server the files in the data folder are read, also while nothing runs. With --json and\n\
    --follow each line is a JSON value of its own.")]
pub(crate) struct Args {
    /// Only lines of this level and the more serious ones: trace, debug, info, warn or error
    #[arg(short, long, value_name = "LEVEL", default_value = "trace")]
    level: LogLevel,
    /// Only lines with this text, in any case
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    contains: String,
    /// How many of the latest lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    lines: u16,
    /// Go on with each line as it is written, until ctrl-C
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    target: Target,
}

/// Where lines come from.
enum Source {
    Files(Vec<PathBuf>),
    Server(Box<Client>),
}

impl Source {
    fn of(target: &Target) -> Result<Self> {
        if target.is_server() {
            return Ok(Self::Server(Box::new(target.connect()?)));
        }
        let data = target.data_folder()?;
        if !data.exists() {
            let message = format!("there is no data folder {}", data.display());
            return Err(
                Failure::new("not_running", message).hint("start one with: radeon-cluster start")
            );
        }
        Ok(Self::Files(folder::logs(&data)))
    }

    fn read(&self, filter: &LogFilter) -> Result<Vec<LogLine>> {
        match self {
            Self::Files(paths) => read_logs(paths, filter)
                .map_err(|error| Failure::from_error("logs_unreadable", &error)),
            Self::Server(client) => {
                let LogFilter { level, contains, after, limit } = filter;
                let mut query = format!("logs?level={}&limit={limit}", level.name());
                query += &format!("&contains={}", crate::rest::segment(contains));
                if let Some(after) = after {
                    query += &format!("&after={}", crate::rest::segment(after));
                }
                client.get(&query)
            }
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let source = Source::of(&args.target)?;
    let Args { level, contains, lines, .. } = args;
    let (contains, limit) = (contains.clone(), usize::from(*lines));
    let mut filter = LogFilter { level: *level, contains, after: None, limit };
    let mut found = source.read(&filter)?;
    if !args.follow {
        return out.emit(&found, |lines| lines.iter().map(text).collect());
    }
    filter.limit = NEWS_MAX;
    loop {
        for line in &found {
            told(line, out)?;
            filter.after = Some(line.at.clone());
        }
        // A full answer may have left more lines behind.
        if filter.after.is_none() || found.len() < NEWS_MAX {
            std::thread::sleep(PAUSE);
        }
        found = source.read(&filter)?;
    }
}

fn told(line: &LogLine, out: Output) -> Result<()> {
    let written = match out.is_json() {
        true => serde_json::to_string(line).map_err(Failure::internal)? + "\n",
        false => text(line),
    };
    let mut stdout = std::io::stdout().lock();
    let done = stdout.write_all(written.as_bytes()).and_then(|()| stdout.flush());
    done.map_err(|_| Failure::broken_pipe())
}

fn text(line: &LogLine) -> String {
    let LogLine { at, level, source, text } = line;
    format!("{at} {:<5} {source:<11} {}\n", level.name(), output::plain(text))
}
