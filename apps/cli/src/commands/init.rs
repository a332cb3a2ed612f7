//! `init`: writes a settings file that explains every setting.

use crate::failure::Result;
use crate::files::Staged;
use crate::output::Output;
use crate::settings::{self, Flags};
use serde_json::json;
use std::path::PathBuf;

/// The file, in which nothing is set.
const TEMPLATE: &str = include_str!("../../assets/radeon-cluster.toml");

/// Flags of `init`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster init\n\n\
    start reads the file in its data folder, or the one that --config names.")]
pub(crate) struct Args {
    /// Where to write it, instead of radeon-cluster.toml in the data folder
    file: Option<PathBuf>,
    /// Replace a file that is there; what it sets is lost
    #[arg(long)]
    force: bool,
    /// The data folder, instead of the usual one
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    data: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let path = match &args.file {
        Some(path) => path.clone(),
        None => {
            let flags = Flags { data: args.data.as_deref(), ..Flags::default() };
            let data = settings::data_folder(&flags, settings::environment)?;
            crate::folder::make(&data)?;
            data.join(settings::FILE_NAME)
        }
    };
    // Private, because users may write passwords into it.
    let staged = Staged::private(&path, TEMPLATE.as_bytes())?;
    match args.force {
        true => staged.place()?,
        false => staged.place_new("change it with an editor, or replace it with --force")?,
    }
    out.emit(&json!({ "file": path }), |_| {
        format!("{} explains every setting; none is set yet\n", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::resolve;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Interfaces that exist only where an address is set.
    const WITHOUT_DEFAULT: [&str; 3] = ["frigate.addr", "immich.addr", "otlp.endpoint"];

    fn settings(folder: &Path, text: &str) -> serde_json::Value {
        let path = folder.join("settings.toml");
        std::fs::write(&path, text).expect("ours");
        let flags = Flags { config: Some(&path), data: Some(folder), ..Flags::default() };
        serde_json::to_value(resolve(&flags, |_| None).expect(text)).expect("plain values")
    }

    fn keys(value: &serde_json::Value, place: &str, all: &mut BTreeSet<String>) {
        for (key, inner) in value.as_object().into_iter().flatten() {
            let name = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
            match inner.is_object() {
                true => keys(inner, &name, all),
                false => drop(all.insert(name)),
            }
        }
    }

    #[test]
    fn the_file_explains_every_setting_and_changes_none() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let untouched = settings(folder.path(), TEMPLATE);
        assert_eq!(untouched, settings(folder.path(), ""));
        let set: String = TEMPLATE
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => rest,
                _ => line,
            })
            .collect::<Vec<_>>()
            .join("\n");
        let parsed: toml::Value = toml::from_str(&set).expect("TOML");
        let parsed = serde_json::to_value(parsed).expect("plain values");
        let (mut named, mut known) = (BTreeSet::new(), BTreeSet::new());
        keys(&parsed, "", &mut named);
        keys(&untouched, "", &mut known);
        known.remove("data");
        assert_eq!(named, known);
        let mut all = settings(folder.path(), &set);
        for key in WITHOUT_DEFAULT {
            let (table, field) = key.split_once('.').expect("in a table");
            assert!(all[table][field].is_string() && untouched[table][field].is_null(), "{key}");
            all[table][field] = serde_json::Value::Null;
        }
        assert_eq!(all, untouched, "each line shows what holds without it");
    }
}
