//! Sources of settings: defaults < file < environment < flags of the last `start` < flags.

use super::{Flags, Settings};
use crate::failure::{Failure, Result};
use crate::files;
use crate::near::near;
use config::builder::DefaultState;
use config::{Config, ConfigBuilder, File, FileFormat, FileSourceString, Value};
use etcetera::BaseStrategy;
use lgp_common::plainly;
use std::path::{Path, PathBuf};

/// The longest settings file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The environment variables that are read, and the settings that they stand for.
///
/// Other variables with this prefix belong to graphics drivers, so unknown ones are no error.
const VARIABLES: [(&str, &str); 39] = [
    ("RADEON_DATA", "data"),
    ("RADEON_DEVICE", "device"),
    ("RADEON_SIMD", "simd"),
    ("RADEON_WORKERS", "workers"),
    ("RADEON_WORKERS_MAX", "workers_max"),
    ("RADEON_MODEL_MEMORY_BYTES", "model_memory_bytes"),
    ("RADEON_BATCH_MAX", "batch_max"),
    ("RADEON_BATCH_DELAY_MS", "batch_delay_ms"),
    ("RADEON_INPUT_BYTES_MAX", "input_bytes_max"),
    ("RADEON_RUN_LIMIT_S", "run_limit_s"),
    ("RADEON_MODELS_POLL_MS", "models_poll_ms"),
    ("RADEON_PENDING_MAX", "pending_max"),
    ("RADEON_SEQUENCES_MAX", "sequences_max"),
    ("RADEON_SEQUENCES_BYTES_MAX", "sequences_bytes_max"),
    ("RADEON_LOG_FORMAT", "log_format"),
    ("RADEON_RESULTS_KEPT_FOR_S", "results_kept_for_s"),
    ("RADEON_RESULTS_DISK_SHARE", "results_disk_share"),
    ("RADEON_KEYS_KEPT_FOR_S", "keys_kept_for_s"),
    ("RADEON_CONTROL", "control"),
    ("RADEON_CONTROL_NAME", "control_name"),
    ("RADEON_BLOBS", "blobs"),
    ("RADEON_HTTP__ADDR", "http.addr"),
    ("RADEON_HTTP__TLS", "http.tls"),
    ("RADEON_HTTP__ORIGINS", ORIGINS),
    ("RADEON_HTTP__OPEN", "http.open"),
    ("RADEON_HTTP__BODY_BYTES_MAX", "http.body_bytes_max"),
    ("RADEON_HTTP__BODIES_BYTES_MAX", "http.bodies_bytes_max"),
    ("RADEON_GRPC__ADDR", "grpc.addr"),
    ("RADEON_QUIC__ADDR", "quic.addr"),
    ("RADEON_QUIC__REACHED_AT", "quic.reached_at"),
    ("RADEON_QUIC__ADVERTISE", "quic.advertise"),
    ("RADEON_QUIC__CERTIFICATE_LIFE_S", "quic.certificate_life_s"),
    ("RADEON_QUIC__ABSENCE_MAX_S", "quic.absence_max_s"),
    ("RADEON_FRIGATE__ADDR", "frigate.addr"),
    ("RADEON_FRIGATE__TIMEOUT_MS", "frigate.timeout_ms"),
    ("RADEON_OTLP__ENDPOINT", "otlp.endpoint"),
    ("RADEON_OTLP__NODES", "otlp.nodes"),
    ("RADEON_OTLP__RATIO", "otlp.ratio"),
    ("RADEON_IMMICH__ADDR", "immich.addr"),
];

/// A setting of several values; the environment separates them by commas.
const ORIGINS: &str = "http.origins";

/// The name of the settings file in the data folder.
pub(crate) const FILE_NAME: &str = "radeon-cluster.toml";

/// Reads the process's environment, for [`resolve`].
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Resolves all settings once.
///
/// # Errors
/// `settings_invalid`, naming the key, for an unknown key or a value of the wrong kind;
/// `file_not_found` for a `--config` file that is not there.
pub(crate) fn resolve(
    flags: &Flags<'_>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Settings> {
    let given = named_folder(flags, &variable);
    let data = match &given {
        Some(path) => path.clone(),
        None => default_data_folder()?,
    };
    let file = match flags.config {
        Some(path) => Some(path.to_owned()),
        None => Some(data.join(FILE_NAME)).filter(|path| path.exists()),
    };
    let defaults = Config::try_from(&Settings::defaults(data)).map_err(Failure::internal)?;
    let defaults = Config::builder().add_source(defaults);
    let mut builder = defaults.clone();
    if let Some(path) = file {
        let source = read_file(&path, builder.clone())?;
        builder = builder.add_source(source);
    }
    builder = with_variables(builder, &defaults, &variable)?;
    let given_before = flags.last.settings();
    let given_now = flags.given()?.into_iter().map(|(_, key, value)| (key, value));
    for (key, value) in given_before.chain(given_now) {
        builder = builder.set_override(key, value).map_err(Failure::internal)?;
    }
    let mut settings =
        builder.build().and_then(Config::try_deserialize::<Settings>).map_err(|error| {
            Failure::new("settings_invalid", format!("settings: {}", plainly(&error.to_string())))
                .hint(known())
        })?;
    settings.check()?;
    if let Some(path) = given {
        // Set apart, because a path need not be text.
        settings.data = path;
    }
    settings.data = absolute(&settings.data)?;
    settings.http.tls = std::mem::take(&mut settings.http.tls).absolute()?;
    Ok(settings)
}

/// Adds the settings of the environment.
///
/// # Errors
/// `settings_invalid`, naming the variable, for a value of the wrong kind.
fn with_variables(
    mut builder: ConfigBuilder<DefaultState>,
    defaults: &ConfigBuilder<DefaultState>,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<ConfigBuilder<DefaultState>> {
    for (name, key) in VARIABLES {
        let Some(value) = variable(name) else { continue };
        let value = match key {
            ORIGINS => Value::from(value.split(',').map(str::to_owned).collect::<Vec<_>>()),
            _ => Value::from(value),
        };
        // Each is checked alone, because an error of all together would not name the variable.
        defaults
            .clone()
            .set_override(key, value.clone())
            .and_then(ConfigBuilder::<DefaultState>::build)
            .and_then(Config::try_deserialize::<Settings>)
            .map_err(|error| {
                let what = format!("environment variable {name}: {}", plainly(&error.to_string()));
                Failure::new("settings_invalid", what).hint(known())
            })?;
        builder = builder.set_override(key, value).map_err(Failure::internal)?;
    }
    Ok(builder)
}

/// Resolves the data folder alone. A named folder is used whatever the other settings are, so that
/// a cluster can be reached and stopped even where its settings have become invalid.
///
/// # Errors
/// As [`resolve`], where the folder is not named or a settings file is.
pub(crate) fn data_folder(
    flags: &Flags<'_>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<PathBuf> {
    match named_folder(flags, &variable) {
        Some(path) if flags.config.is_none() => absolute(&path),
        _ => Ok(resolve(flags, variable)?.data),
    }
}

fn named_folder(flags: &Flags<'_>, variable: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    flags.data.map(Path::to_owned).or_else(|| variable("RADEON_DATA").map(Into::into))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Failure::file("resolve", path, &error))
}

/// Reads a settings file and checks it before other sources can hide a wrong value in it.
fn read_file(
    path: &Path,
    defaults: ConfigBuilder<DefaultState>,
) -> Result<File<FileSourceString, FileFormat>> {
    let what = "read the settings file";
    let text = String::from_utf8(files::read_for(what, path, FILE_BYTES_MAX)?).map_err(|_| {
        let error = std::io::Error::other("it is not text in UTF-8");
        Failure::file(what, path, &error)
    })?;
    let source = File::from_str(&text, FileFormat::Toml);
    defaults
        .add_source(source.clone())
        .build()
        .and_then(Config::try_deserialize::<Settings>)
        .map_err(|error| {
            // The text came from memory, so the message does not name the file.
            let told = plainly(&error.to_string());
            let unknown = told.strip_prefix("unknown field `");
            let wrong = unknown.and_then(|rest| rest.split('`').next());
            let meant = wrong.and_then(|wrong| {
                let keys = VARIABLES.iter().flat_map(|(_, key)| key.split('.'));
                near(wrong, keys).filter(|meant| *meant != wrong)
            });
            // The hint has all names.
            let place = told.rfind(" for key `").map_or("", |at| &told[at..]);
            let told = match wrong {
                Some(wrong) => format!("unknown field `{wrong}`{place}"),
                None => told.clone(),
            };
            let message = format!("settings file {}: {told}", path.display());
            let hint = meant.map(|meant| format!("did you mean {meant}? ")).unwrap_or_default();
            Failure::new("settings_invalid", message).hint(hint + &known())
        })?;
    Ok(source)
}

/// Environment variables that are unknown but written almost like one of ours.
pub(crate) fn misspelt(names: impl Iterator<Item = String>) -> Vec<(String, &'static str)> {
    let ours = || VARIABLES.iter().map(|(name, _)| *name).chain(OTHERS);
    let strange = names.filter(|name| name.starts_with(PREFIX) && !ours().any(|it| it == name));
    // Compare without the common prefix, which would make all names look alike.
    let meant = |name: &str| {
        let rests = ours().filter_map(|name| name.strip_prefix(PREFIX));
        let rest = near(name.strip_prefix(PREFIX)?, rests)?;
        ours().find(|name| name.strip_prefix(PREFIX) == Some(rest))
    };
    strange.filter_map(|name| meant(&name).map(|meant| (name.clone(), meant))).collect()
}

/// The prefix of the variables.
const PREFIX: &str = "RADEON_";

/// Variables that are read elsewhere.
const OTHERS: [&str; 3] = ["RADEON_KEY", "RADEON_JOIN_TOKEN", "RADEON_CONTROL_TO"];

fn known() -> String {
    let keys: Vec<&str> = VARIABLES.iter().map(|(_, key)| *key).collect();
    format!(
        "the settings are {}; simd is auto, scalar, avx2 or avx512, log_format text or json, and quic.advertise auto, always or never",
        keys.join(", ")
    )
}

/// The platform's folder for the data of programs.
fn default_data_folder() -> Result<PathBuf> {
    match etcetera::choose_base_strategy() {
        Ok(strategy) => Ok(strategy.data_dir().join("radeon-cluster")),
        Err(error) => Err(Failure::new("no_data_folder", format!("no data folder: {error}"))
            .hint("name one with --data DIR")),
    }
}
