//! Requests to NATS, each with a deadline. The client reconnects by itself, to any of the given
//! servers.

use super::connecting::{ANSWER, CONNECTING, options, unconnected};
use super::{Stream, Trouble};
use crate::control::aside::Aside;
use async_nats::{HeaderMap, RequestErrorKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

/// Messages that are requested at once.
pub(super) const READ_AT_ONCE: u64 = 64;

/// Codes of JetStream's errors.
const NO_MESSAGE: u64 = 10_037;
const NO_STREAM: u64 = 10_059;
const NOT_CLUSTERED: u64 = 10_074;
const NO_PEERS: u64 = 10_005;
const WRONG_LAST: u64 = 10_071;
/// No room: a limit of the account, the memory, the disk, or the stream.
const FULL: [u64; 6] = [10_002, 10_023, 10_028, 10_047, 10_054, 10_077];
/// The servers are electing a leader or shutting down.
const PASSING: [u64; 4] = [10_008, 10_009, 10_041, 10_076];

/// A connection, and the stream that it works on.
#[derive(Debug)]
pub(super) struct Client {
    aside: Aside,
    nats: async_nats::Client,
    pub(super) stream: Stream,
}

/// A stream's description of itself.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Info {
    pub(super) config: Config,
    pub(super) state: State,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct State {
    pub(super) bytes: u64,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
}

/// The settings that could make a stream lose messages.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    retention: String,
    discard: String,
    storage: String,
    num_replicas: u64,
    max_age: i64,
    max_msgs: i64,
    max_msgs_per_subject: i64,
}

impl Default for Config {
    fn default() -> Self {
        let text = |text: &str| text.to_owned();
        Self {
            retention: text("limits"),
            discard: text("new"),
            storage: text("file"),
            num_replicas: 1,
            max_age: 0,
            max_msgs: -1,
            max_msgs_per_subject: -1,
        }
    }
}

impl Client {
    pub(super) fn connect(stream: &Stream) -> Result<Self, Trouble> {
        let aside = Aside::start("nats").map_err(Trouble::Refused)?;
        let options = options(&stream.servers);
        let servers: Vec<String> =
            stream.servers.hosts.iter().map(|host| format!("nats://{host}")).collect();
        let limit = CONNECTING * u32::try_from(servers.len() + 1).unwrap_or(1);
        let connected = aside.ask(limit, async move { options.connect(servers).await });
        let nats = match connected {
            Some(Ok(nats)) => nats,
            Some(Err(error)) => return Err(unconnected(&error, &stream.servers)),
            None => return Err(Trouble::Away("it does not answer".to_owned())),
        };
        let info = nats.server_info();
        // In a cluster another server may run JetStream.
        if !info.jetstream && info.cluster.is_none() {
            let text = "the server runs without JetStream: start it with -js".to_owned();
            return Err(Trouble::Refused(text));
        }
        Ok(Self { aside, nats, stream: stream.clone() })
    }

    /// The most bytes of a message, headers included.
    pub(super) fn payload_bytes(&self) -> usize {
        self.nats.max_payload()
    }

    fn request(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Vec<u8>,
    ) -> Result<Value, Trouble> {
        let nats = self.nats.clone();
        let asked =
            self.aside.ask(ANSWER * 2, async move { ask(&nats, subject, headers, payload).await });
        asked.unwrap_or_else(|| Err(Trouble::Away("it does not answer".to_owned())))
    }

    fn api(&self, what: &str, body: &Value) -> Result<Value, Trouble> {
        let subject = format!("$JS.API.{what}");
        self.request(subject, HeaderMap::new(), body.to_string().into_bytes())
    }

    pub(super) fn info(&self) -> Result<Info, Trouble> {
        let info = self.api(&format!("STREAM.INFO.{}", self.stream.name), &json!({}))?;
        let odd = |error: serde_json::Error| Trouble::Refused(format!("what it is: {error}"));
        serde_json::from_value(info).map_err(odd)
    }

    /// Creates the stream, with three replicas if the server belongs to a cluster.
    pub(super) fn create(&self) -> Result<(), Trouble> {
        let create = |copies: u64| {
            let name = &self.stream.name;
            let config = json!({
                "name": name, "subjects": [name], "retention": "limits", "storage": "file",
                "discard": "new", "num_replicas": copies, "max_age": 0, "max_msgs": -1,
                "max_bytes": -1, "max_msgs_per_subject": -1, "max_msg_size": -1,
            });
            self.api(&format!("STREAM.CREATE.{name}"), &config).map(drop)
        };
        match create(3) {
            Err(Trouble::Refused(text)) if text.ends_with(&code(NOT_CLUSTERED)) => create(1),
            Err(Trouble::Refused(text)) if text.ends_with(&code(NO_PEERS)) => {
                Err(Trouble::Refused(format!(
                    "three servers of the cluster are to have a copy each, and so many do not answer: \
                     {text}"
                )))
            }
            created => created,
        }
    }

    /// Name and version of the server, and the number of replicas.
    pub(super) fn engine(&self, config: &Config) -> String {
        let version = self.nats.server_info().version;
        let copies = match config.num_replicas {
            0 | 1 => "1 copy".to_owned(),
            more => format!("{more} copies"),
        };
        format!("NATS {version}, {copies}")
    }

    /// Publishes a message after message `after`, and returns its sequence.
    pub(super) fn publish(&self, after: u64, payload: Vec<u8>) -> Result<u64, Trouble> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Stream", self.stream.name.as_str());
        headers.insert("Nats-Expected-Last-Sequence", after.to_string().as_str());
        let answer = self.request(self.stream.name.clone(), headers, payload)?;
        let odd = || Trouble::Away("an answer has no sequence".to_owned());
        answer.get("seq").and_then(Value::as_u64).ok_or_else(odd)
    }

    /// The messages of these sequences.
    pub(super) fn get(&self, from: u64, to: u64) -> Result<Vec<Vec<u8>>, Trouble> {
        let subject = format!("$JS.API.STREAM.MSG.GET.{}", self.stream.name);
        let nats = self.nats.clone();
        let all = async move {
            let tasks: Vec<_> = (from..=to)
                .map(|seq| {
                    let (nats, subject) = (nats.clone(), subject.clone());
                    let body = json!({ "seq": seq }).to_string().into_bytes();
                    tokio::spawn(async move {
                        let answer = ask(&nats, subject, HeaderMap::new(), body).await?;
                        let odd = || Trouble::Refused("an answer has no message".to_owned());
                        let data = answer.pointer("/message/data").and_then(Value::as_str);
                        STANDARD.decode(data.unwrap_or_default()).map_err(|_| odd())
                    })
                })
                .collect();
            let mut messages = Vec::with_capacity(tasks.len());
            for task in tasks {
                let ended = |error: tokio::task::JoinError| Trouble::Away(error.to_string());
                messages.push(task.await.map_err(ended)??);
            }
            Ok(messages)
        };
        let asked = self.aside.ask(ANSWER * 4, all);
        asked.unwrap_or_else(|| Err(Trouble::Away("it does not answer".to_owned())))
    }

    /// Purges the messages before `before`.
    pub(super) fn purge(&self, before: u64) -> Result<(), Trouble> {
        let body = json!({ "seq": before });
        self.api(&format!("STREAM.PURGE.{}", self.stream.name), &body).map(drop)
    }

    /// Makes one message unreadable.
    #[cfg(test)]
    pub(super) fn delete(&self, seq: u64) {
        let what = format!("STREAM.MSG.DELETE.{}", self.stream.name);
        self.api(&what, &json!({ "seq": seq })).expect("there");
    }

    /// The name of the server that leads the stream.
    #[cfg(test)]
    pub(super) fn leader(&self) -> String {
        let what = format!("STREAM.INFO.{}", self.stream.name);
        let info = self.api(&what, &json!({})).expect("there");
        info["cluster"]["leader"].as_str().expect("a cluster").to_owned()
    }

    /// Changes a part of the stream's configuration, as an administrator would.
    #[cfg(test)]
    pub(super) fn configure(&self, change: &Value) {
        let what = format!("STREAM.INFO.{}", self.stream.name);
        let mut config = self.api(&what, &json!({})).expect("there")["config"].clone();
        for (key, value) in change.as_object().expect("a part") {
            config[key] = value.clone();
        }
        self.api(&format!("STREAM.UPDATE.{}", self.stream.name), &config).expect("allowed");
    }
}

async fn ask(
    nats: &async_nats::Client,
    subject: String,
    headers: HeaderMap,
    payload: Vec<u8>,
) -> Result<Value, Trouble> {
    let answer = match headers.is_empty() {
        true => nats.request(subject, payload.into()).await,
        false => nats.request_with_headers(subject, headers, payload.into()).await,
    };
    let answer = answer.map_err(|error| match error.kind() {
        RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => {
            Trouble::Refused(error.to_string())
        }
        RequestErrorKind::NoResponders => {
            Trouble::Away("JetStream does not answer, or has no such stream".to_owned())
        }
        _ => Trouble::Away(error.to_string()),
    })?;
    let odd = |error: serde_json::Error| Trouble::Away(format!("an answer is no JSON: {error}"));
    let answer: Value = serde_json::from_slice(&answer.payload).map_err(odd)?;
    match answer.get("error") {
        Some(error) => Err(refusal(error)),
        None => Ok(answer),
    }
}

fn code(code: u64) -> String {
    format!(" ({code})")
}

/// Classifies an error in an answer.
fn refusal(error: &Value) -> Trouble {
    let number = error.get("err_code").and_then(Value::as_u64).unwrap_or_default();
    let said = error.get("description").and_then(Value::as_str).unwrap_or("no reason");
    let text = format!("{said}{}", code(number));
    match number {
        NO_MESSAGE | NO_STREAM => Trouble::Absent,
        WRONG_LAST => Trouble::Behind,
        number if FULL.contains(&number) => Trouble::Full(text),
        number if PASSING.contains(&number) => Trouble::Away(text),
        _ => Trouble::Refused(text),
    }
}

impl Config {
    /// The reason why a stream of this configuration could lose messages.
    pub(super) fn flaw(&self) -> Option<String> {
        let is = |what: &str, found: &str, expected: &str| {
            (found != expected).then(|| format!("its {what} is {found}, expected {expected}"))
        };
        let none = |what: &str, found: i64| {
            (found > 0).then(|| format!("its {what} is {found}, expected none"))
        };
        is("retention", &self.retention, "limits")
            .or_else(|| is("discard", &self.discard, "new"))
            .or_else(|| is("storage", &self.storage, "file"))
            .or_else(|| none("max_age", self.max_age))
            .or_else(|| none("max_msgs", self.max_msgs))
            .or_else(|| none("max_msgs_per_subject", self.max_msgs_per_subject))
    }
}
