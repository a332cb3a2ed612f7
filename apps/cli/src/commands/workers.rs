//! `workers`: the workers and their load.

use crate::commands::token::role;
use crate::failure::Result;
use crate::output::{self, Output, Yes};
use crate::rest::{self, Patience, Target, named, segment};
use lgp_sdk::cluster::Role;
use serde_json::{Value, json};

/// Flags of `workers`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster workers --json")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show one worker with each of its devices
    Show(One),
    /// Show what changes while a worker works
    Metrics(One),
    /// Let a worker finish what it has and leave, and wait for that; what takes too long is ended
    Drain {
        #[command(flatten)]
        worker: One,
        #[command(flatten)]
        patience: Patience,
    },
    /// Let devices of a worker take tasks again that were taken out because runs on them did not stop
    Enable(One),
    /// Tell a worker to leave once it has finished, without waiting for that; a new one follows a local
    /// worker
    Shutdown(One),
    /// Revoke the certificates of a worker, or of another member, close its connections, and take back
    /// the tokens that it has made
    Revoke {
        /// The member's name; it may be one that is not connected
        #[arg(value_parser = named)]
        id: String,
        /// What the member is: worker, client or admin
        #[arg(long, value_name = "ROLE", default_value = "worker", value_parser = role)]
        role: Role,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        target: Target,
    },
    /// List the members whose certificates were revoked and could still be valid
    Revoked {
        #[command(flatten)]
        target: Target,
    },
}

#[derive(Debug, clap::Args)]
struct One {
    /// The worker, as workers lists it
    #[arg(value_parser = named)]
    id: String,
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let path = |id: &str| format!("workers/{}", segment(id));
    match &args.action {
        None => {
            let workers: Vec<Value> = args.target.connect()?.get("workers")?;
            out.emit(&workers, |workers| text(workers))
        }
        Some(Action::Show(One { id, target })) => {
            let worker: Value = target.connect()?.get(&path(id))?;
            out.emit(&worker, |worker| output::fields(worker, ""))
        }
        Some(Action::Metrics(One { id, target })) => {
            let metrics: Value = target.connect()?.get(&format!("{}/metrics", path(id)))?;
            out.emit(&metrics, |metrics| output::fields(metrics, ""))
        }
        Some(Action::Shutdown(One { id, target })) => {
            let leaving: Value =
                target.connect()?.post(&format!("{}/shutdown", path(id)), &json!({}))?;
            out.emit(&leaving, |_| format!("worker {id} leaves once it has finished\n"))
        }
        Some(Action::Revoke { id, role, yes, target }) => {
            let client = target.connect()?;
            out.confirm(
                format!("{role} {id} is sent away, and needs a new token to come back"),
                *yes,
            )?;
            let body = json!({ "name": id, "role": role });
            let revoked: Value = client.post("revocations", &body)?;
            out.emit(&revoked, |revoked| {
                let closed = match revoked["connections_closed"].as_u64().unwrap_or(0) {
                    0 => "none of this name was connected: look whether it is the right one"
                        .to_owned(),
                    1 => "1 connection was closed".to_owned(),
                    closed => format!("{closed} connections were closed"),
                };
                format!("the certificates of {role} {id} are revoked; {closed}\n")
            })
        }
        Some(Action::Revoked { target }) => {
            let revoked: Vec<Value> = target.connect()?.get("revocations")?;
            out.emit(&revoked, |revoked| {
                let row = |one: &Value| ["name", "role"].map(|key| output::cell(&one[key]));
                output::table(["name", "role"], revoked.iter().map(row))
            })
        }
        Some(Action::Drain { worker: One { id, target }, patience }) => {
            let client = target.connect()?;
            let _waiting = out.waiting(format!("worker {id} to finish what it runs, {patience}"));
            let left: Value = client.post(&format!("{}/drain", path(id)), &patience.body())?;
            out.emit(&left, |left| format!("worker {id} has left\n{}", rest::ended(left)))
        }
        Some(Action::Enable(One { id, target })) => {
            let enabled: Value =
                target.connect()?.post(&format!("{}/enable", path(id)), &json!({}))?;
            out.emit(&enabled, |enabled| {
                let devices = enabled["enabled"].as_array().map_or(0, Vec::len);
                let devices = output::counted(devices, "device");
                format!("{devices} of worker {id} may take tasks again\n")
            })
        }
    }
}

/// A table of workers, and of devices that take no tasks.
pub(crate) fn text(workers: &[Value]) -> String {
    if workers.is_empty() {
        return "no workers\n".to_owned();
    }
    let out = taken_out(workers).iter().map(out_line).collect::<String>();
    let gap = if out.is_empty() { "" } else { "\n" };
    let rows = workers.iter().map(|worker| {
        let models = output::array(&worker["models"]);
        let models = models.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
        let cell = |key: &str| output::cell(&worker[key]);
        let columns = ["id", "pid", "state", "device", "running", "queued"].map(cell);
        let [id, pid, state, device, running, queued] = columns;
        let state = match taken_out(std::slice::from_ref(worker)).len() {
            0 => state,
            count => format!("{state}, {} out", output::counted(count, "device")),
        };
        [id, pid, state, device, running, queued, models]
    });
    let heads = ["id", "pid", "state", "device", "running", "queued", "models"];
    output::table(heads, rows) + gap + &out
}

/// The devices that take no tasks until a user readmits them, with their workers and the reasons.
pub(crate) fn taken_out(workers: &[Value]) -> Vec<Value> {
    let devices = workers.iter().flat_map(|worker| {
        let devices = output::array(&worker["devices"]);
        let out = devices.iter().filter(|device| device["taken_out"].is_string());
        out.map(|device| {
            json!({ "worker": worker["id"], "device": device["device"], "why": device["taken_out"] })
        })
    });
    devices.collect()
}

/// One such device, and how to readmit it.
pub(crate) fn out_line(out: &Value) -> String {
    let [worker, device, why] = ["worker", "device", "why"].map(|key| output::cell(&out[key]));
    format!(
        "device {device} of worker {worker} takes no tasks: {why}\n  let it take tasks again with: \
         radeon-cluster workers enable {worker}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_taken_out_is_shown_with_the_way_back() {
        let device = |name: &str, why: Value| json!({ "device": name, "taken_out": why });
        let hung = "3 runs on it did not stop";
        let workers = [
            json!({ "id": "far", "state": "ready", "device": "opencl:0", "devices": [
                device("opencl:0", json!(null)), device("opencl:1", json!(hung)) ] }),
            json!({ "id": "near", "state": "ready", "device": "cpu", "devices": [
                device("cpu", json!(null)) ] }),
        ];
        let text = text(&workers);
        assert!(text.contains("ready, 1 device out") && text.contains(hung), "{text}");
        assert!(text.contains("device opencl:1 of worker far") && !text.contains("of worker near"));
        assert!(text.ends_with("radeon-cluster workers enable far\n"), "{text}");
        assert!(!self::text(&workers[1..]).contains("enable"));
    }
}
