//! JetStream with one message per commit, which is durable once a server acknowledged it.

use crate::{Engine, Load, Result, Times, drive};
use async_nats::Client;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

const STREAM: &str = "bare";
/// How long new servers may take to elect a leader.
const PATIENCE: Duration = Duration::from_secs(10);

struct Messages {
    runtime: Arc<Runtime>,
    client: Client,
}

impl Messages {
    fn ask(&self, subject: &str, payload: Vec<u8>) -> Result<Value> {
        let answer = self.client.request(subject.to_owned(), payload.into());
        let answer = self.runtime.block_on(answer)?;
        Ok(serde_json::from_slice(&answer.payload)?)
    }
}

impl Engine for Messages {
    fn commit(&mut self, numbers: &[i64], bytes: &[u8], _is_end: bool) -> Result<()> {
        let answer = self.ask(STREAM, bytes.repeat(numbers.len()))?;
        match answer["seq"].is_u64() {
            true => Ok(()),
            false => Err(answer.to_string().into()),
        }
    }
}

pub(crate) fn run(host: &str, load: Load) -> Result<(Times, Duration)> {
    let runtime = Arc::new(Builder::new_multi_thread().worker_threads(1).enable_all().build()?);
    let options = async_nats::ConnectOptions::new().request_timeout(Some(PATIENCE));
    let client = runtime.block_on(options.connect(format!("nats://{host}")))?;
    let one = Messages { runtime: Arc::clone(&runtime), client: client.clone() };
    // The stream of an earlier run.
    one.ask(&format!("$JS.API.STREAM.DELETE.{STREAM}"), Vec::new())?;
    // The same configuration as the log's stream.
    let config = json!({
        "name": STREAM, "subjects": [STREAM], "retention": "limits", "storage": "file",
        "discard": "new", "num_replicas": 3,
    });
    let create = format!("$JS.API.STREAM.CREATE.{STREAM}");
    let created = one.ask(&create, config.to_string().into_bytes())?;
    if created.get("error").is_some() {
        return Err(created.to_string().into());
    }
    let times =
        drive(load, || Ok(Messages { runtime: Arc::clone(&runtime), client: client.clone() }));
    one.ask(&format!("$JS.API.STREAM.DELETE.{STREAM}"), Vec::new())?;
    times
}
