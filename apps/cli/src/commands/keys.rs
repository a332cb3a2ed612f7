//! `keys`: keys with which programs use the cluster over HTTP and gRPC.

use crate::failure::Result;
use crate::folder::{self, Ownership};
use crate::output::{self, Output, Yes};
use crate::rest::{Client, Target, named, segment};
use crate::settings::{self, Flags};
use crate::times::{duration, seconds};
use lgp_sdk::cluster::Pki;
use lgp_server::{Access, KeyRole, NewKey};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Flags of `keys`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  radeon-cluster keys create --role infer --ttl 30d --model digits\n\n\
    A key is shown once. Programs send it as Authorization: Bearer KEY. The role infer is for health,\n\
    metadata and inference, submit for tasks and looking at the cluster besides, admin for everything.\n\
    On the coordinator's machine its owner needs none: the commands use local.key in the data folder."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a key and print it
    Create {
        /// What its owner may do: infer, submit or admin
        #[arg(long, value_name = "ROLE")]
        role: KeyRole,
        /// How long it is good: 90s, 30m, 1h, 7d [default: until it is revoked]
        #[arg(long, value_name = "T", value_parser = seconds)]
        ttl: Option<u64>,
        /// A model that it is for; may be given several times [default: all models]
        #[arg(short, long = "model", value_name = "NAME", value_parser = named)]
        models: Vec<String>,
        /// Requests a second, on average [default: as many as come]
        #[arg(long, value_name = "N")]
        rate: Option<u32>,
        /// Requests at the same time [default: as many as come]
        #[arg(long, value_name = "N")]
        concurrent: Option<u32>,
        /// Whom or what it is for
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
        #[command(flatten)]
        target: Target,
    },
    /// List the keys, without their secrets
    Ls {
        #[command(flatten)]
        target: Target,
    },
    /// Take a key back, at once
    Revoke {
        /// The key, as ls names it
        #[arg(value_parser = named)]
        id: String,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        target: Target,
    },
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    match &args.action {
        Action::Create { role, ttl, models, rate, concurrent, note, target } => {
            let new = NewKey {
                role: *role,
                ttl_s: *ttl,
                models: Some(models.clone()).filter(|models| !models.is_empty()),
                rate_per_s: *rate,
                concurrent_max: *concurrent,
                note: note.clone(),
            };
            let made = match Place::of(target)? {
                Place::Running(client) => client.post("keys", &json!(new))?,
                Place::Folder(access, _) => {
                    let (info, text) = access.create_offline(new)?;
                    let mut made = json!(info);
                    made["key"] = json!(text);
                    made
                }
            };
            out.emit(&made, |made| format!("{}\n", made["key"].as_str().unwrap_or_default()))
        }
        Action::Ls { target } => {
            let keys: Vec<Value> = match Place::of(target)? {
                Place::Running(client) => client.get("keys")?,
                Place::Folder(access, _) => {
                    access.keys().list().iter().map(|key| json!(key)).collect()
                }
            };
            out.emit(&keys, |keys| table(keys))
        }
        Action::Revoke { id, yes, target } => {
            out.confirm(
                format!("key {id} is taken back, and programs that use it are refused at once"),
                *yes,
            )?;
            let gone = match Place::of(target)? {
                Place::Running(client) => client.delete(&format!("keys/{}", segment(id)))?,
                Place::Folder(access, _) => {
                    access.revoke_offline(id)?;
                    json!({ "id": id, "revoked": true })
                }
            };
            out.emit(&gone, |_| format!("key {id} lets nobody in any more\n"))
        }
    }
}

/// The place of the keys: a running coordinator, or a data folder without one.
enum Place {
    Running(Client),
    Folder(Access, #[allow(dead_code, reason = "held, not read")] Ownership),
}

impl Place {
    fn of(target: &Target) -> Result<Self> {
        match target.connect() {
            Ok(client) => Ok(Self::Running(client)),
            Err(failure) if failure.code == "not_running" => {
                let data = target.data_folder()?;
                let owner = Ownership::take(&data)?;
                let flags = Flags { data: Some(&data), ..Flags::default() };
                let control = settings::resolve(&flags, settings::environment)?.control()?;
                let pki = Pki::open_on(&folder::pki(&data), control.as_ref())?;
                let access = Access::open(&pki)?;
                Ok(Self::Folder(access.with_audit(&folder::audit_log(&data))?, owner))
            }
            Err(failure) => Err(failure),
        }
    }
}

fn table(keys: &[Value]) -> String {
    if keys.is_empty() {
        return "no keys\n".to_owned();
    }
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let rows = keys.iter().map(|key| {
        let [id, role, rate, concurrent, note] =
            ["id", "role", "rate_per_s", "concurrent_max", "note"]
                .map(|name| output::cell(&key[name]));
        let ends = match key["expires_s"].as_u64() {
            None => "never".to_owned(),
            Some(expires_s) if expires_s <= now_s => "expired".to_owned(),
            Some(expires_s) => duration(expires_s - now_s),
        };
        let models = key["models"].as_array().map_or_else(
            || "all".to_owned(),
            |models| models.iter().map(output::cell).collect::<Vec<_>>().join(", "),
        );
        [id, role, ends, models, rate, concurrent, note]
    });
    let heads = ["id", "role", "expires in", "models", "a second", "at once", "for"];
    output::table(heads, rows)
}
