//! The log as CSV: one line for each limit, each range held before, and each event.

use super::{MemoryEvent, MemoryLog};
use crate::error::{Error, Result};
use crate::segments::SegmentLimits;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

const COLUMNS: [&str; 5] = ["event", "time_us", "range", "bytes", "owner"];

/// The limits with the names of their lines.
fn fields(limits: &mut SegmentLimits) -> [(&'static str, &mut usize); 5] {
    [
        ("budget_bytes", &mut limits.budget_bytes),
        ("segment_bytes_max", &mut limits.segment_bytes_max),
        ("segment_bytes", &mut limits.segment_bytes),
        ("alignment_bytes", &mut limits.alignment_bytes),
        ("idle_bytes_max", &mut limits.idle_bytes_max),
    ]
}

fn io(error: impl ToString) -> Error {
    Error::LogFile { reason: error.to_string() }
}

impl MemoryLog {
    /// Writes the log as CSV. Columns that an event does not need are empty.
    ///
    /// # Errors
    /// [`Error::LogFile`] when the target refuses.
    pub fn write_csv(&self, target: impl Write) -> Result<()> {
        let mut out = csv::Writer::from_writer(target);
        let mut line = |event: &str, time: &str, range: &str, bytes: &str, owner: &str| {
            out.write_record([event, time, range, bytes, owner]).map_err(io)
        };
        let [event, time, range, bytes, owner] = COLUMNS;
        line(event, time, range, bytes, owner)?;
        let mut limits = self.limits;
        for (name, value) in fields(&mut limits) {
            line(name, "", "", &value.to_string(), "")?;
        }
        line("dropped", "", &self.dropped.to_string(), "", "")?;
        for (range, bytes, owner) in self.held() {
            line("held", "", &range.to_string(), &bytes.to_string(), owner)?;
        }
        for (time, event) in self.events() {
            let time = time.as_micros().to_string();
            match event {
                MemoryEvent::Taken { range, bytes, owner } => {
                    line("taken", &time, &range.to_string(), &bytes.to_string(), owner)?;
                }
                MemoryEvent::Freed { range } => line("freed", &time, &range.to_string(), "", "")?,
                MemoryEvent::Phase { name } => line("phase", &time, "", "", name)?,
                MemoryEvent::Host { owner, bytes } => {
                    line("host", &time, "", &bytes.to_string(), owner)?;
                }
                MemoryEvent::Failed { bytes, owner } => {
                    line("failed", &time, "", &bytes.to_string(), owner)?;
                }
            }
        }
        out.flush().map_err(io)
    }

    /// Reads a log that [`MemoryLog::write_csv`] wrote. It keeps all events of the file.
    ///
    /// # Errors
    /// [`Error::LogFile`] when the source fails, [`Error::LogLine`] for a line that does not belong
    /// to a log, or that takes a range twice.
    pub fn read_csv(source: impl Read) -> Result<Self> {
        let mut reader = csv::Reader::from_reader(source);
        if reader.headers().map_err(io)?.iter().ne(COLUMNS) {
            return Err(Error::LogLine {
                line: 1,
                reason: format!("it has other columns than {}", COLUMNS.join(",")),
            });
        }
        let mut log = Self::new(SegmentLimits::new(0, 0), usize::MAX);
        let mut taken = HashSet::new();
        for record in reader.records() {
            let record = record.map_err(io)?;
            let line = Line {
                number: record.position().map_or(0, csv::Position::line),
                columns: [0, 1, 2, 3, 4].map(|i| record.get(i).unwrap_or_default()),
            };
            let (time, event) = match line.columns[0] {
                "held" => (None, line.taken()?),
                "taken" => (Some(line.time()?), line.taken()?),
                "freed" => (Some(line.time()?), MemoryEvent::Freed { range: line.number(2)? }),
                "failed" => {
                    let (bytes, owner) = (line.number(3)?, line.owner());
                    (Some(line.time()?), MemoryEvent::Failed { bytes, owner })
                }
                "phase" => (Some(line.time()?), MemoryEvent::Phase { name: line.owner() }),
                "host" => {
                    let (bytes, owner) = (line.number(3)?, line.owner());
                    (Some(line.time()?), MemoryEvent::Host { owner, bytes })
                }
                "dropped" => {
                    log.dropped = line.number(2)?;
                    continue;
                }
                name => {
                    let limit =
                        fields(&mut log.limits).into_iter().find(|(field, _)| *field == name);
                    let (_, value) = limit.ok_or_else(|| line.wrong(0, "an event"))?;
                    *value = line.number(3)?;
                    continue;
                }
            };
            match &event {
                MemoryEvent::Taken { range, .. } if !taken.insert(*range) => {
                    return Err(line.wrong(2, "a range that is not taken"));
                }
                MemoryEvent::Freed { range } => {
                    taken.remove(range);
                }
                _ => {}
            }
            match time {
                Some(time) => log.push(time, event),
                None => log.fold(event),
            }
        }
        Ok(log)
    }
}

/// A line of the file with its number.
struct Line<'a> {
    number: u64,
    columns: [&'a str; COLUMNS.len()],
}

impl Line<'_> {
    fn wrong(&self, column: usize, expected: &str) -> Error {
        let (name, given) = (COLUMNS[column], self.columns[column]);
        let reason = format!("its {name} is {given:?}, expected {expected}");
        Error::LogLine { line: self.number, reason }
    }

    fn number<T: FromStr>(&self, column: usize) -> Result<T> {
        self.columns[column].parse().map_err(|_| self.wrong(column, "a number"))
    }

    fn time(&self) -> Result<Duration> {
        self.number(1).map(Duration::from_micros)
    }

    fn owner(&self) -> Arc<str> {
        self.columns[4].into()
    }

    fn taken(&self) -> Result<MemoryEvent> {
        let (range, bytes) = (self.number(2)?, self.number(3)?);
        Ok(MemoryEvent::Taken { range, bytes, owner: self.owner() })
    }
}
