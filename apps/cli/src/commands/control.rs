//! `control`: where a cluster's log and authority are stored, and how to migrate them.

use crate::failure::{Failure, Result};
use crate::folder::{self, Ownership};
use crate::output::{self, Output, Yes};
use crate::settings::{self, Flags, Settings};
use indicatif::ProgressBar;
use lgp_distributed::{BlobsAt, ClusterHome, Control, ControlView, Migrated, MigrationStep};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Flags of `control`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  radeon-cluster control migrate --to postgres://USER@localhost/NAME\n\n\
    Takes durable tasks with their results, tokens, keys and revocations from the data folder to what\n\
    several coordinators share, or back: --to FOLDER. No coordinator may run. What was left says so,\n\
    and coordinators refuse to start on it. Interrupted, the same command goes on."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Move the cluster elsewhere
    Migrate {
        /// Where to: postgres://…, or a data folder. An address with a password belongs in the variable
        /// RADEON_CONTROL_TO, for others see command lines: give - here then
        #[arg(long, value_name = "URL|DIR", required_unless_present = "undo")]
        to: Option<String>,
        /// Let coordinators start again where the cluster was before, as it was then
        #[arg(long, conflicts_with = "to")]
        undo: bool,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        home: Home,
    },
    /// Show what is kept at a URL, and who takes part, without taking part
    Show {
        #[command(flatten)]
        home: Home,
    },
}

/// Where the cluster is now.
#[derive(Debug, clap::Args)]
struct Home {
    /// Where it is kept now, if not in the data folder; RADEON_CONTROL may say so as well
    #[arg(long, value_name = "URL")]
    control: Option<String>,
    /// The name under which a URL keeps this cluster [default: radeon_cluster]
    #[arg(long, value_name = "NAME")]
    control_name: Option<String>,
    /// The data folder of this machine, which has the cluster's authority [default:
    /// ~/.local/share/radeon-cluster]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The settings file [default: radeon-cluster.toml in the data folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Home {
    fn settings(&self) -> Result<Settings> {
        let flags = Flags {
            config: self.config.as_deref(),
            data: self.data.as_deref(),
            control: self.control.as_deref(),
            control_name: self.control_name.as_deref(),
            ..Flags::default()
        };
        settings::resolve(&flags, settings::environment)
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    match &args.action {
        Action::Migrate { to: Some(to), home, yes, .. } => {
            let settings = home.settings()?;
            let from = settings.data.display();
            out.confirm(format!("the cluster of {from} moves, and starts there no more"), *yes)?;
            migrate(to, &settings, out)
        }
        Action::Migrate { home, yes, .. } => {
            out.confirm("what was done where the cluster moved to is left there", *yes)?;
            undo(&home.settings()?, out)
        }
        Action::Show { home } => {
            let control = home.settings()?.control()?.ok_or_else(|| {
                Failure::usage("no URL is given").hint("name one: --control postgres://…")
            })?;
            out.emit(&Shown(&control.look()?).json(), text)
        }
    }
}

fn migrate(to: &str, settings: &Settings, out: Output) -> Result<()> {
    let data = &settings.data;
    let _own = own(data)?;
    let to = match to {
        "-" => settings::environment(TO)
            .filter(|to| !to.is_empty())
            .ok_or_else(|| Failure::usage(format!("--to is -, and {TO} is not set")))?,
        to => to.to_owned(),
    };
    // If the settings already name the target, the cluster is still in the data folder.
    let control = if to == settings.control { None } else { settings.control()? };
    let blobs = settings.blobs(settings::environment)?;
    let from = home(data, control.clone(), blobs.clone());
    let (to, _theirs) = match (to.contains("://"), control) {
        (true, Some(_)) => {
            return Err(Failure::usage("the settings name another place where it is now")
                .hint("take it to a folder first: radeon-cluster control migrate --to DIR"));
        }
        (true, None) => {
            let control = Control::new(to, &settings.control_name)?;
            (home(data, Some(control), blobs), None)
        }
        (false, None) => {
            return Err(Failure::usage("the cluster is in a data folder now").hint(
                "give the URL of what coordinators share: --to postgres://…; or copy the folder \
                 while no coordinator runs",
            ));
        }
        (false, Some(_)) => {
            let folder = std::path::absolute(&to)
                .map_err(|error| Failure::file("find", Path::new(&to), &error))?;
            // The data folder itself is locked already.
            let same = folder.canonicalize().ok() == data.canonicalize().ok();
            let theirs = if same { None } else { Some(Ownership::take(&folder)?) };
            (home(&folder, None, blobs), theirs)
        }
    };
    let progress = Progress::new(out);
    let migrated = from.migrate(&to, &mut |step| progress.show(step))?;
    progress.end();
    out.emit(&migrated, |it| done(it, to.control.is_some()))
}

/// The variable with the target of a migration.
const TO: &str = "RADEON_CONTROL_TO";

fn undo(settings: &Settings, out: Output) -> Result<()> {
    let _own = own(&settings.data)?;
    let left = home(&settings.data, settings.control()?, None).undo_migration()?;
    out.emit(&json!({ "undone": true, "moved_to": left }), |_| {
        format!(
            "coordinators may start here again; what was done in {left} since is not here, and no \
             coordinator may run there\n"
        )
    })
}

fn home(data: &Path, control: Option<Control>, blobs: Option<BlobsAt>) -> ClusterHome {
    ClusterHome { pki: folder::pki(data), journal: folder::journal(data), control, blobs }
}

/// Takes a data folder that has an authority.
fn own(data: &Path) -> Result<Ownership> {
    if !folder::pki(data).exists() {
        let message = format!("{} has no cluster's authority", data.display());
        return Err(Failure::new("no_cluster", message)
            .hint("name the data folder of a coordinator: --data DIR"));
    }
    Ownership::take(data)
}

fn done(migrated: &Migrated, is_shared: bool) -> String {
    let Migrated { from, to, records, bytes, documents, digest } = migrated;
    let next = match is_shared {
        true => {
            "start coordinators with --control and --control-name as here; each machine needs \
                 the file pki/authority.pem of this one in its data folder"
        }
        false => "start a coordinator with --data and this folder",
    };
    format!(
        "from     {from}\nto       {to}\ntasks    {records} ({bytes} bytes)\ndocuments  {documents}\n\
         sha256   {digest}\nverified: all of it was read back; what was left refuses to start\n{next}\n"
    )
}

/// A progress bar for each step of the migration.
struct Progress {
    out: Output,
    bar: std::cell::RefCell<Option<(&'static str, ProgressBar)>>,
}

impl Progress {
    fn new(out: Output) -> Self {
        Self { out, bar: std::cell::RefCell::default() }
    }

    fn show(&self, step: MigrationStep) {
        let (what, done, total) = match step {
            MigrationStep::Copied { done, total } => ("copied", done, total),
            MigrationStep::Verified { done, total } => ("verified", done, total),
            // The other steps have no known total.
            _ => return,
        };
        let mut bar = self.bar.borrow_mut();
        if bar.as_ref().is_none_or(|(shown, _)| *shown != what) {
            let total = u64::try_from(total).unwrap_or(u64::MAX);
            *bar = Some((what, self.out.progress(total, what)));
        }
        if let Some((_, bar)) = &*bar {
            bar.set_position(u64::try_from(done).unwrap_or(u64::MAX));
        }
    }

    fn end(self) {
        if let Some((_, bar)) = self.bar.into_inner() {
            bar.finish_and_clear();
        }
    }
}

/// The stored state at a URL, as JSON.
struct Shown<'a>(&'a ControlView);

impl Shown<'_> {
    fn json(&self) -> Value {
        let view = self.0;
        let commit = view.last_commit.as_ref();
        json!({
            "place": view.place,
            "engine": view.engine,
            "cluster": view.cluster,
            "coordinators": view.coordinators,
            "led": view.is_led,
            "records": view.records,
            "bytes": view.bytes,
            "documents": view.documents,
            "last_commit": commit.map(|(number, digest)| json!({ "number": number, "sha256": digest })),
            "closed": view.closed,
        })
    }
}

fn text(shown: &Value) -> String {
    let cell = |name: &str| output::cell(&shown[name]);
    let mut text = format!(
        "place    {}\nengine   {}\ncluster  {}\n",
        cell("place"),
        cell("engine"),
        cell("cluster")
    );
    let coordinators = output::array(&shown["coordinators"]);
    for one in coordinators {
        let at = output::cell(&one["url"]);
        let at = if one["url"].is_null() { output::cell(&one["quic"]) } else { at };
        let leads = if one["leads"] == true { "leads" } else { "follows" };
        text += &format!("{leads:<8} {at}, number {}\n", output::cell(&one["number"]));
    }
    if coordinators.is_empty() {
        text += "no coordinator takes part\n";
    }
    let commit = &shown["last_commit"];
    let bytes = shown["bytes"].as_u64();
    text += &format!(
        "tasks    {}{}\ndocuments  {}\n",
        cell("records"),
        bytes.map_or_else(String::new, |bytes| format!(" ({bytes} bytes)")),
        shown["documents"].as_array().map_or(0, Vec::len)
    );
    if !commit.is_null() {
        let [number, digest] = ["number", "sha256"].map(|name| output::cell(&commit[name]));
        text += &format!("commit   {number}, {digest}\n");
    }
    if let Some(why) = shown["closed"].as_str() {
        text += &format!("closed   {}\n", output::plain(why));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_shown() {
        let shown = json!({
            "place": "postgres://db/x, schema s", "engine": "PostgreSQL 17.2", "cluster": "f00d",
            "coordinators": [
                { "number": 9, "leads": true, "quic": "10.0.0.1:8443", "url": null },
                { "number": 7, "leads": false, "quic": "q", "url": "https://b:8000" },
            ],
            "led": true, "records": 3, "bytes": 90, "documents": ["a.json", "b.json"],
            "last_commit": { "number": 12, "sha256": "00ff" }, "closed": null,
        });
        assert_eq!(
            text(&shown),
            "place    postgres://db/x, schema s\nengine   PostgreSQL 17.2\ncluster  f00d\n\
             leads    10.0.0.1:8443, number 9\nfollows  https://b:8000, number 7\n\
             tasks    3 (90 bytes)\ndocuments  2\ncommit   12, 00ff\n"
        );
        let mut left = shown;
        left["coordinators"] = json!([]);
        left["closed"] = json!("it was moved");
        let text = text(&left);
        assert!(text.contains("no coordinator takes part\n") && text.ends_with("it was moved\n"));
    }
}
