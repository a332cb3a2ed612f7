//! `token`: tokens with which other machines join the cluster.

use crate::failure::Result;
use crate::output::{self, Output, Yes};
use crate::rest::{Target, named, segment};
use crate::times::{duration, seconds};
use lgp_sdk::cluster::{Error as ClusterError, Role};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Flags of `token`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster token create --uses 3 --ttl 30m\n\n\
    A token is shown once. It says by which authority the cluster is recognised, so a machine that\n\
    joins with it gives its secret to no other. One for clients or administrators is exchanged by a\n\
    program, with lgp_sdk::cluster::enrol; join takes those for workers. Such a program renews its\n\
    certificate itself, with Client::renew; workers need not think of it. Revoking an administrator\n\
    takes back the tokens that he has made.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a token and print it, with the command to run on the other machine
    Create {
        /// How many machines may join with it
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        uses: u32,
        /// What it makes of who joins with it: worker, client or admin
        #[arg(long, value_name = "ROLE", default_value = "worker", value_parser = role)]
        role: Role,
        /// How long it works: 90s, 30m, 1h, 7d
        #[arg(long, value_name = "T", default_value = "1h", value_parser = life)]
        ttl: u64,
        #[command(flatten)]
        target: Target,
    },
    /// List the tokens, without their secrets
    Ls {
        #[command(flatten)]
        target: Target,
    },
    /// Take a token back; who joined with it stays
    Revoke {
        /// The token, as ls names it
        #[arg(value_parser = named)]
        id: String,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        target: Target,
    },
}

/// The longest life of a token; no setting changes it.
const LIFE_MAX_S: u64 = 365 * 24 * 3600;

/// Parses a token's life.
fn life(text: &str) -> Result<u64, String> {
    match seconds(text)? {
        given if given <= LIFE_MAX_S => Ok(given),
        _ => Err(format!("'{text}' is too long, expected 1s to {}", duration(LIFE_MAX_S))),
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    match &args.action {
        Action::Create { uses, role, ttl, target } => {
            let body = json!({ "uses": uses, "ttl_s": ttl, "role": role });
            let made: Value = target.connect()?.post("tokens", &body)?;
            out.emit(&made, created)
        }
        Action::Ls { target } => {
            let tokens: Vec<Value> = target.connect()?.get("tokens")?;
            out.emit(&tokens, |tokens| table(tokens))
        }
        Action::Revoke { id, yes, target } => {
            out.confirm(format!("token {id} is taken back; who joined with it stays"), *yes)?;
            let gone: Value = target.connect()?.delete(&format!("tokens/{}", segment(id)))?;
            out.emit(&gone, |_| format!("token {id} lets nobody in any more\n"))
        }
    }
}

fn created(made: &Value) -> String {
    let token = made["token"].as_str().unwrap_or_default();
    let quic: Option<SocketAddr> = made["quic"].as_str().and_then(|addr| addr.parse().ok());
    let addresses = output::array(&made["addresses"]);
    let addresses: Vec<&str> = addresses.iter().filter_map(Value::as_str).collect();
    let place = match quic {
        // The coordinator listens on all addresses of its machine; this is the first.
        Some(addr) if addr.ip().is_unspecified() && !addresses.is_empty() => {
            addresses[0].to_owned()
        }
        Some(addr) if addr.ip().is_unspecified() && addr.port() == 8443 => "HOST".to_owned(),
        Some(addr) if addr.ip().is_unspecified() => format!("HOST:{}", addr.port()),
        Some(addr) => addr.to_string(),
        None => "HOST".to_owned(),
    };
    let note = match quic {
        Some(addr) if addr.ip().is_loopback() => {
            "the cluster listens on this machine only; for others stop it, and start it with: \
             radeon-cluster start --quic 0.0.0.0:8443\n"
        }
        Some(addr) if addr.ip().is_unspecified() && addresses.is_empty() => {
            "HOST is a name or address of this machine\n"
        }
        Some(_) if addresses.len() > 1 => {
            &format!("this machine is also {}\n", addresses[1..].join(", "))
        }
        _ => "",
    };
    match made["role"].as_str() {
        Some(role @ ("client" | "admin")) => format!(
            "{token}\nfor a program with the role {role}: lgp_sdk::cluster::enrol at {place} gives it \
             its identity, with which Client::connect calls the cluster\n{note}"
        ),
        _ => format!(
            "{token}\njoin with: radeon-cluster join {place} {token}\nor, where other accounts see command \
             lines, with radeon-cluster join {place} - and the token on stdin\n{note}"
        ),
    }
}

fn table(tokens: &[Value]) -> String {
    if tokens.is_empty() {
        return "no tokens\n".to_owned();
    }
    let rows = tokens.iter().map(|token| {
        let [id, state, left, uses] =
            ["id", "state", "uses_left", "uses"].map(|key| output::cell(&token[key]));
        let ends = duration(token["expires_in_s"].as_u64().unwrap_or(0));
        // A token without a name was made by the coordinator's owner.
        let made_by = output::cell(&token["made_by"]["name"]);
        [id, output::cell(&token["role"]), state, format!("{left} of {uses}"), ends, made_by]
    });
    output::table(["id", "role", "state", "uses left", "expires in", "made by"], rows)
}

/// A role by its name.
pub(crate) fn role(text: &str) -> Result<Role, String> {
    text.parse().map_err(|error: ClusterError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_lives_for_ever() {
        assert_eq!(life("365d"), Ok(LIFE_MAX_S));
        let told = Err("'366d' is too long, expected 1s to 365d".to_owned());
        assert_eq!(life("366d"), told);
    }

    #[test]
    fn the_command_to_run_elsewhere_is_shown() {
        for (quic, part) in [
            ("0.0.0.0:8443", "radeon-cluster join HOST LGP1.x"),
            ("0.0.0.0:9000", "radeon-cluster join HOST:9000 LGP1.x"),
            ("10.0.0.1:8443", "radeon-cluster join 10.0.0.1:8443 LGP1.x"),
            ("127.0.0.1:8443", "listens on this machine only"),
        ] {
            let text = created(&json!({ "token": "LGP1.x", "quic": quic }));
            assert!(text.starts_with("LGP1.x\n") && text.contains(part), "{text}");
        }
        let addresses = ["192.168.1.5:8443", "10.0.0.2:8443"];
        let made = json!({ "token": "LGP1.x", "quic": "0.0.0.0:8443", "addresses": addresses });
        let text = created(&made);
        assert!(text.contains("join 192.168.1.5:8443 LGP1.x"), "{text}");
        assert!(text.contains("this machine is also 10.0.0.2:8443"), "{text}");
        let made = json!({ "token": "LGP1.x", "quic": "10.0.0.1:8443", "role": "admin" });
        let text = created(&made);
        assert!(text.contains("enrol at 10.0.0.1:8443") && !text.contains(" join "), "{text}");
    }
}
