//! The measurements as tables.

use super::Bench;
use super::durable::Load;
use super::engines::RECORD_BYTES;
use crate::bench::run::{Better, Run};
use crate::bench::table::{Column, tabulate};
use anyhow::Result;
use serde_json::Value;

const RATES: [Column; 5] = [
    Column::higher("accepted", "1/s", "/accepted_per_s"),
    Column::higher("ended", "1/s", "/ended_per_s"),
    Column::lower("accepting p50", "ms", "/accept_p50_ms").digits(1),
    Column::lower("alone: accepting p50", "ms", "/alone_accept_p50_ms").digits(2),
    Column::lower("alone: to the end p50", "ms", "/alone_life_p50_ms").digits(2),
];
const LIVES: [Column; 6] = [
    Column::higher("each waited for", "1/s", "/lived_per_s"),
    Column::lower("to the end p50", "ms", "/life_p50_ms").digits(1),
    Column::lower("p99", "ms", "/life_p99_ms").digits(1),
    Column::lower("accepting p99", "ms", "/accept_p99_ms").digits(1),
    Column::lower("processor time a task, coordinators", "us", "/coordinators_us"),
    Column::lower("engine", "us", "/engine_us"),
];
const COMMITS: [Column; 1] =
    [Column::plain("records of a commit", "", "/records_per_commit").digits(1)];
const RECORDS: [Column; 4] = [
    Column::higher("records", "1/s", "/records_per_s"),
    Column::plain("records of a commit", "", "/batch").digits(1),
    Column::lower("p50", "ms", "/p50_ms").digits(2),
    Column::lower("p99", "ms", "/p99_ms").digits(2),
];
const SHARES: [Column; 2] = [
    Column::higher("of a commit for each record, by as many callers", "%", "/each").scale(100.0),
    Column::higher("of one caller's commits of as many records", "%", "/batched").scale(100.0),
];
const TAKEN: [Column; 4] = [
    Column::lower("memory idle", "MB", "/idle/memory_mb").digits(1),
    Column::lower("processor idle", "%", "/idle/cpu_percent").digits(1),
    Column::lower("memory under load", "MB", "/busy/memory_mb").digits(1),
    Column::lower("processor under load", "%", "/busy/cpu_percent"),
];

const CROWDS: [Column; 3] = [
    Column::lower("each coordinator without the workers", "MB", "/empty_mb").digits(1),
    Column::lower("all have joined after", "s", "/joined_s"),
    Column::higher("tasks", "1/s", "/ended_per_s"),
];

/// The steps with an engine, by their headings.
const ENGINES: [(&str, &str); 3] = [
    ("embedded", "in the folder (redb)"),
    ("postgres", "PostgreSQL"),
    ("etcd", "etcd and NATS JetStream"),
];

/// Heading and pointer of a row.
fn row(name: impl Into<String>, at: impl Into<String>) -> (String, String) {
    (name.into(), at.into())
}

/// A table of the rows that any round has; empty if there are none.
fn table(
    run: &mut Run,
    first: &str,
    rounds: &[Value],
    rows: impl IntoIterator<Item = (String, String)>,
    columns: &[Column],
) -> Result<String> {
    let has = |at: &str| rounds.iter().any(|round| round.pointer(at).is_some());
    let rows: Vec<_> = rows.into_iter().filter(|(_, at)| has(at)).collect();
    if rows.is_empty() {
        return Ok(String::new());
    }
    tabulate(run, first, rounds, &rows, columns)
}

/// A table whose last rows are for comparison and never count as regressions.
fn beside<const N: usize>(
    run: &mut Run,
    first: &str,
    rounds: &[Value],
    [ours, theirs]: [Vec<(String, String)>; 2],
    columns: [Column; N],
) -> Result<String> {
    let ours = table(run, first, rounds, ours, &columns)?;
    let plain = columns.map(|column| Column { better: Better::Neither, ..column });
    let theirs = table(run, first, rounds, theirs, &plain)?;
    // Both have the same head.
    let head = if ours.is_empty() { 0 } else { 2 };
    Ok(ours + &theirs.split_inclusive('\n').skip(head).collect::<String>())
}

/// A section, unless all its tables are empty.
fn section(title: &str, text: &str, tables: &[String]) -> String {
    let tables: Vec<_> = tables.iter().filter(|table| !table.is_empty()).cloned().collect();
    if tables.is_empty() {
        return String::new();
    }
    format!("\n## {title}\n\n{text}\n\n{}", tables.join("\n"))
}

/// All tables that are not empty.
pub(super) fn write(run: &mut Run, bench: &Bench, rounds: &[Value]) -> Result<String> {
    let text =
        "Each cell: median of the rounds (least to most), all on the same cores.\n".to_owned();
    let tasks = tasks(run, bench, rounds)?;
    let records = records(run, bench, rounds)?;
    Ok(text + &tasks + &records + &crowd(run, bench, rounds)?)
}

fn tasks(run: &mut Run, bench: &Bench, rounds: &[Value]) -> Result<String> {
    let Load { callers, tasks, alone } = bench.load;
    let ours = [
        row("one coordinator, in its folder (redb)", "/embedded/leader"),
        row("three on PostgreSQL, the leader is asked", "/postgres/leader"),
        row("three on PostgreSQL, all are asked", "/postgres/all"),
        row("three on etcd and NATS, the leader is asked", "/etcd/leader"),
        row("three on etcd and NATS, all are asked", "/etcd/all"),
    ];
    let peers = [row("Celery on Redis", "/celery"), row("Dramatiq on Redis", "/dramatiq")];
    let tables = [
        beside(run, "system", rounds, [ours.to_vec(), peers.to_vec()], RATES)?,
        table(run, "ours", rounds, ours.clone(), &LIVES)?,
        table(run, "ours on an engine", rounds, ours.into_iter().skip(1), &COMMITS)?,
    ];
    let text = format!(
        "{tasks} durable tasks that do next to nothing, by {callers} callers with a key each, from the first \
         submission to the last acknowledgement and to the last end. Ours over HTTP from threads of one \
         process, a local worker for each coordinator; the queues from threads of one Python process, with \
         two worker processes, acknowledged after the run, Redis with `appendfsync always`, every answer \
         fetched. Alone: {alone} tasks of one caller."
    );
    Ok(section("Durable tasks", &text, &tables))
}

fn records(run: &mut Run, bench: &Bench, rounds: &[Value]) -> Result<String> {
    let of = |way: &'static str, title: &'static str| {
        ENGINES.map(|(at, name)| row(format!("{name}: {title}"), format!("/{at}/engine/{way}")))
    };
    let bare = [of("each", "bare, a commit for each"), of("batched", "bare, batches")].concat();
    let shares =
        ENGINES.map(|(at, name)| row(format!("our log, {name}"), format!("/{at}/engine/shares")));
    let tables = [
        beside(run, "engine", rounds, [of("ours", "our log").to_vec(), bare], RECORDS)?,
        table(run, "records a second, of what the bare client does", rounds, shares, &SHARES)?,
    ];
    let versions = rounds
        .first()
        .into_iter()
        .flat_map(|round| ENGINES.iter().filter_map(|(at, _)| round[*at]["versions"].as_str()));
    let versions = versions.collect::<Vec<_>>().join("; ");
    let (callers, seconds) = (bench.load.callers, bench.seconds);
    let text = format!(
        "Records of {RECORD_BYTES} bytes for {seconds} s, two for each task, the second in place of the first \
         once that is durable. Our log and `a commit for each` serve {callers} callers that each wait for their \
         record. `Batches` is one caller whose commits have as many records as our log's had. PostgreSQL: \
         `synchronous_commit` on; JetStream: three copies, an acknowledged message for each commit, which its \
         servers write but do not sync at once; redb: a sync for each commit, where ours has a second for its \
         guard. Goal: 60 %. Servers: {versions}."
    );
    Ok(section("Logs, and engines by themselves", &text, &tables))
}

fn crowd(run: &mut Run, bench: &Bench, rounds: &[Value]) -> Result<String> {
    let engines = [("crowd-postgres", "PostgreSQL"), ("crowd-etcd", "etcd and NATS")];
    let parts = [
        ("leader", "the coordinator that leads"),
        ("followers", "each that follows"),
        ("engine", "the engine, all its processes"),
        ("workers", "the process of all workers"),
    ];
    let of = |(at, name): (&str, &str)| {
        parts.map(|(part, title)| row(format!("{name}: {title}"), format!("/{at}/{part}")))
    };
    let whole =
        engines.map(|(at, name)| row(format!("three coordinators on {name}"), format!("/{at}")));
    let tables = [
        table(run, "process", rounds, engines.into_iter().flat_map(of), &TAKEN)?,
        table(run, "cluster", rounds, whole, &CROWDS)?,
    ];
    let text = format!(
        "{} workers in one process, each connected to three coordinators, which are first left alone for {} s \
         and then given {} durable tasks by {} callers. Processor: percent of one core. Memory: resident; of \
         the engine's processes together what they share is counted once.",
        bench.workers,
        bench.idle_s,
        2 * bench.load.tasks,
        bench.load.callers,
    );
    Ok(section("Many workers", &text, &tables))
}
