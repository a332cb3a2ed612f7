//! The cluster API's client: finds the coordinator and turns its refusals into failures.

mod suggest;
mod watch;

use crate::failure::{Failure, Result};
use crate::folder;
use crate::listener;
use crate::output;
use crate::secret;
use crate::settings::{self, Flags};
use crate::tls::Trust;
use indicatif::ProgressBar;
use lgp_distributed::CaHash;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Cursor, Read};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};
use ureq::SendBody;
use ureq::http::{HeaderValue, Request, Uri, header};
use ureq::middleware::MiddlewareNext;
use ureq::tls::TlsConfig;
use ureq::unversioned::multipart::{Form, Part};
use watch::Watch;

pub(crate) use watch::NOT_ANSWERING;

/// How long an order to leave waits for what runs.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Patience {
    /// How long runs may still take; after that they are ended, and tasks with attempts left run again
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout_s: u64,
}

impl Patience {
    /// The timeout as the body of a request.
    pub(crate) fn body(self) -> Value {
        serde_json::json!({ "timeout_s": self.timeout_s })
    }
}

impl fmt::Display for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for {} s at most", self.timeout_s)
    }
}

/// One more sentence for `done` where attempts at tasks were ended.
pub(crate) fn ended(done: &Value) -> String {
    match done["ended"].as_array().map_or(0, Vec::len) {
        0 => String::new(),
        count => format!("{} ended that took too long\n", output::counted(count, "attempt")),
    }
}

/// Which coordinator a command talks to. Global, so that what is said before a subcommand holds for
/// it as well: ignored, it would have the subcommand act upon another cluster.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Target {
    /// The data folder of the coordinator [default: $RADEON_DATA, or
    /// ~/.local/share/radeon-cluster]
    #[arg(long, global = true, value_name = "DIR", conflicts_with = "server")]
    pub(crate) data: Option<PathBuf>,
    /// The settings file [default: radeon-cluster.toml in the data folder]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "server")]
    pub(crate) config: Option<PathBuf>,
    /// The coordinator's address, as in http://127.0.0.1:8000
    #[arg(short, long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The file that holds the key to use, or - for stdin; RADEON_KEY may hold the key itself [default:
    /// local.key in the data folder]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// The certificates to trust, PEM, for a coordinator at https:// [default: public authorities]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "fingerprint")]
    pub(crate) ca: Option<PathBuf>,
    /// The fingerprint of the cluster's authority, as start prints it, for one at https://
    #[arg(long, global = true, value_name = "HEX")]
    pub(crate) fingerprint: Option<CaHash>,
}

impl Target {
    /// The coordinator's data folder.
    pub(crate) fn data_folder(&self) -> Result<PathBuf> {
        let flags = Flags {
            config: self.config.as_deref(),
            data: self.data.as_deref(),
            ..Flags::default()
        };
        settings::data_folder(&flags, settings::environment)
    }

    /// The flags that name the same coordinator, for hints; each with a space before it.
    pub(crate) fn words(&self) -> String {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let given = [
            ("data", path(&self.data)),
            ("config", path(&self.config)),
            ("server", self.server.clone()),
            ("key-file", path(&self.key_file)),
            ("ca", path(&self.ca)),
            ("fingerprint", self.fingerprint.map(|it| it.to_string())),
        ];
        let given = given.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
        given.fold(String::new(), |words, (flag, value)| match value.contains([' ', '\'', '"']) {
            true => words + &format!(" --{flag} {value:?}"),
            false => words + &format!(" --{flag} {value}"),
        })
    }

    /// Whether the coordinator is named by its address.
    pub(crate) fn is_server(&self) -> bool {
        self.server.is_some()
    }

    /// A client of the coordinator.
    ///
    /// # Errors
    /// `not_running` when no coordinator owns the data folder.
    pub(crate) fn connect(&self) -> Result<Client> {
        if let Some(url) = &self.server {
            // clap does not check flags before a subcommand against flags after it.
            if self.data.is_some() || self.config.is_some() {
                return Err(Failure::usage("--server cannot be used with --data or --config"));
            }
            let trust = match (&self.ca, self.fingerprint) {
                (Some(path), _) => Trust::File(path.clone()),
                (None, Some(fingerprint)) => Trust::Fingerprint(fingerprint),
                (None, None) => Trust::Public,
            };
            return Client::new(url, None, self.key(None)?.as_deref(), &trust);
        }
        let data = self.data_folder()?;
        let endpoint = folder::running(&data)?;
        let key = self.key(Some(&data))?;
        let url = endpoint.local.as_ref().unwrap_or(&endpoint.http);
        listener::check(url, &data)?;
        Client::new(url, Some(data), key.as_deref(), &Trust::Public)
    }

    /// The key: from the named file, else the environment, else the data folder.
    fn key(&self, data: Option<&Path>) -> Result<Option<String>> {
        let own = data.map(folder::local_key);
        let path = match (&self.key_file, settings::environment(KEY)) {
            (Some(path), _) => path.clone(),
            (None, Some(key)) => return checked_key(&key, "the environment variable RADEON_KEY"),
            (None, None) => match own {
                Some(path) => path,
                None => return Ok(None),
            },
        };
        if path == Path::new("-") {
            return checked_key(&secret::from_stdin()?, "stdin");
        }
        let hint = "only the owner of a coordinator can read its local.key; others have one made \
                    by radeon-cluster keys create, and name its file with --key-file";
        let text = secret::from_file("read the key in", &path);
        let text = text.map_err(|failure| match &*failure.code {
            "file_too_long" | "bad_secret" => failure,
            _ => failure.hint(hint),
        })?;
        checked_key(&text, &path.display().to_string())
    }
}

/// The environment variable that may hold a key.
const KEY: &str = "RADEON_KEY";
/// The longest text that is taken for a key.
const KEY_BYTES_MAX: usize = 256;

/// Checks that a key can be sent; the error names the key's place.
fn checked_key(text: &str, place: &str) -> Result<Option<String>> {
    let key = text.trim();
    let is_key = !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    if is_key && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(Some(key.to_owned()));
    }
    let message = format!("{place} holds no key, expected one line such as lgp_ID_SECRET");
    Err(Failure::new("bad_key", message))
}

/// A client of one coordinator.
pub(crate) struct Client {
    base: String,
    /// The folder in which the address was found.
    data: Option<PathBuf>,
    agent: ureq::Agent,
    watch: Watch,
}

/// How long a coordinator may be silent, and how long a request that waits for nothing may stay unanswered. It is long
/// enough for a busy machine, and for writing gigabytes of outputs as JSON.
const PATIENCE: Duration = Duration::from_secs(60);

/// Paths whose answers wait for workers to come or go, or for files of any size to be read.
const SLOW: [&str; 4] = ["models", "journal", "restart", "scale"];
/// The end of such a path for one worker.
const SLOW_OF_ONE: &str = "/drain";

impl Client {
    fn new(url: &str, data: Option<PathBuf>, key: Option<&str>, trust: &Trust) -> Result<Self> {
        Self::within(PATIENCE, url, data, key, trust)
    }

    fn within(
        patience: Duration,
        url: &str,
        data: Option<PathBuf>,
        key: Option<&str>,
        trust: &Trust,
    ) -> Result<Self> {
        let base = url.trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().unwrap_or_default();
        let tls = match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(_)) => TlsConfig::default(),
            (Some("https"), Some(host)) => {
                let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
                trust.config(host, uri.port_u16().unwrap_or(443))?
            }
            _ => {
                let message = format!("{url:?} is not an address, expected http(s)://HOST:PORT");
                return Err(Failure::usage(message));
            }
        };
        let credential = key.map(|key| HeaderValue::from_str(&format!("Bearer {key}"))).transpose();
        let credential = credential.map_err(Failure::internal)?;
        let config = || {
            ureq::Agent::config_builder()
                .http_status_as_error(false)
                .tls_config(tls.clone())
                // Redirects are off, so that a key goes only to the named server.
                .max_redirects(0)
                .user_agent(concat!("radeon-cluster/", env!("CARGO_PKG_VERSION")))
        };
        let probe = config().build().new_agent();
        let agent = config()
            .timeout_connect(Some(Duration::from_secs(5)))
            .middleware(move |mut request: Request<SendBody<'_>>, next: MiddlewareNext<'_>| {
                if let Some(credential) = &credential {
                    request.headers_mut().insert(header::AUTHORIZATION, credential.clone());
                }
                next.handle(request)
            })
            .build()
            .new_agent();
        let watch = Watch::new(agent.clone(), probe, &base, patience);
        Ok(Self { base, data, agent, watch })
    }

    /// The address that the client talks to.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The data folder, where the coordinator was found by it.
    pub(crate) fn data(&self) -> Option<&std::path::Path> {
        self.data.as_deref()
    }

    /// `GET /api/v1/cluster/…`
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let request = self.bounded(self.agent.get(self.url(path)), path);
        self.answer(|| request.call()).map_err(|failure| self.suggest(failure, path))
    }

    /// `GET` whose body counts whatever its status: health answers 503 with a body worth showing.
    pub(crate) fn get_any(&self, path: &str) -> Result<Value> {
        let request = self.bounded(self.agent.get(self.url(path)), path);
        self.watch.over(|| {
            let mut response = request.call().map_err(|error| self.unreachable(&error))?;
            response.body_mut().read_json().map_err(|error| self.unreachable(&error))
        })
    }

    /// The coordinator's clock, in whole seconds; `None` where the answer has no date.
    pub(crate) fn clock(&self) -> Result<Option<SystemTime>> {
        let request = self.bounded(self.agent.get(self.url("health")), "health");
        self.watch.over(|| {
            let response = request.call().map_err(|error| self.unreachable(&error))?;
            let date = response.headers().get(header::DATE).and_then(|date| date.to_str().ok());
            Ok(date.and_then(|date| httpdate::parse_http_date(date).ok()))
        })
    }

    /// `GET /metrics`, as Prometheus reads it.
    pub(crate) fn metrics(&self) -> Result<String> {
        let request = self.agent.get(format!("{}/metrics", self.base));
        let request = self.bounded(request, "metrics");
        self.watch.over(|| {
            let mut response = request.call().map_err(|error| self.unreachable(&error))?;
            let status = response.status();
            let text = response.body_mut().read_to_string();
            let text = text.map_err(|error| self.unreachable(&error))?;
            if status.is_success() { Ok(text) } else { Err(refusal(status.as_u16(), &text)) }
        })
    }

    /// `POST /api/v1/cluster/…` with a JSON body.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T> {
        let request = self.bounded(self.agent.post(self.url(path)), path);
        self.answer(|| request.send_json(body)).map_err(|failure| self.suggest(failure, path))
    }

    /// `POST /api/v1/cluster/…` with a JSON body whose tensors follow as raw bytes.
    pub(crate) fn post_binary<'a, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        tensors: impl Iterator<Item = Cow<'a, [u8]>>,
    ) -> Result<T> {
        let json = serde_json::to_vec(body).map_err(Failure::internal)?;
        // May wait for room for tensors, and for the journal's disk.
        let request = self
            .agent
            .post(self.url(path))
            .content_type("application/octet-stream")
            .header("Inference-Header-Content-Length", json.len().to_string());
        let mut all: Box<dyn Read + 'a> = Box::new(Cursor::new(json));
        for tensor in tensors {
            all = Box::new(all.chain(Cursor::new(tensor)));
        }
        self.answer(|| request.send(SendBody::from_reader(&mut all)))
    }

    /// `PUT /api/v1/cluster/…` with a JSON body.
    pub(crate) fn put<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T> {
        let request = self.bounded(self.agent.put(self.url(path)), path);
        self.answer(|| request.send_json(body))
    }

    /// `PATCH /api/v1/cluster/…` with a JSON body.
    pub(crate) fn patch<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T> {
        let request = self.bounded(self.agent.patch(self.url(path)), path);
        self.answer(|| request.send_json(body)).map_err(|failure| self.suggest(failure, path))
    }

    /// `POST /api/v1/cluster/…` with a model, and the files that hold its weights under the names
    /// that it gives them.
    pub(crate) fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        model: &Path,
        weights: &BTreeMap<PathBuf, PathBuf>,
        bar: &ProgressBar,
    ) -> Result<T> {
        let request = self.bounded(self.agent.post(self.url(path)), path);
        if weights.is_empty() {
            let file = std::fs::File::open(model).map_err(unreadable(model))?;
            let length = file.metadata().map_err(unreadable(model))?.len();
            bar.set_length(length);
            let request = request
                .content_type("application/octet-stream")
                .header(header::CONTENT_LENGTH, length.to_string());
            let mut read = bar.wrap_read(file);
            return self.answer(|| request.send(SendBody::from_reader(&mut read)));
        }
        let mut form = Form::new().part("model", Part::file(model).map_err(unreadable(model))?);
        for (name, file) in weights {
            // `./weights.bin` is the same file as `weights.bin`.
            let name: PathBuf =
                name.components().filter(|part| *part != Component::CurDir).collect();
            let part = Part::file(file).map_err(unreadable(file))?;
            form = form.part("data", part.file_name(&name.display().to_string()));
        }
        self.answer(|| request.send(form))
    }

    /// `DELETE /api/v1/cluster/…`
    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let request = self.bounded(self.agent.delete(self.url(path)), path);
        self.answer(|| request.call()).map_err(|failure| self.suggest(failure, path))
    }

    /// Gives a request a time limit, unless its path may wait.
    fn bounded<Any>(
        &self,
        request: ureq::RequestBuilder<Any>,
        path: &str,
    ) -> ureq::RequestBuilder<Any> {
        let first = path.split('/').next();
        let slow = first.is_some_and(|first| SLOW.contains(&first)) || path.ends_with(SLOW_OF_ONE);
        let most = (!slow).then_some(self.watch.patience);
        request.config().timeout_recv_response(most).build()
    }

    fn url(&self, path: &str) -> String {
        format!("{}/api/v1/cluster/{path}", self.base)
    }

    /// The coordinator's answer to a request, awaited for as long as the coordinator lives.
    fn answer<T: DeserializeOwned>(
        &self,
        request: impl FnOnce() -> Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<T> {
        self.watch.over(|| {
            let response = request().map_err(|error| self.unreachable(&error))?;
            self.read(response)
        })
    }

    fn read<T: DeserializeOwned>(
        &self,
        mut response: ureq::http::Response<ureq::Body>,
    ) -> Result<T> {
        let status = response.status();
        let body = response.body_mut().with_config().limit(BODY_BYTES_MAX);
        if status.is_success() {
            return body.read_json().map_err(|error| {
                let message = format!("the answer of {} is not understood: {error}", self.base);
                Failure::new("bad_answer", message)
                    .hint("look whether a coordinator of this program's version answers there")
            });
        }
        let text = body.read_to_string().unwrap_or_default();
        Err(refusal(status.as_u16(), &text))
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        match (&self.data, error) {
            (Some(data), ureq::Error::Io(io))
                if io.kind() == std::io::ErrorKind::ConnectionRefused =>
            {
                folder::not_running(data)
            }
            (_, ureq::Error::Timeout(ureq::Timeout::RecvResponse)) => self.watch.silence(),
            _ => {
                let may_speak_tls =
                    matches!(error, ureq::Error::Protocol(_)) && self.base.starts_with("http://");
                let hint = match (is_distrust(error), &self.data) {
                    (true, _) => TRUST_HINT,
                    (false, None) if may_speak_tls => TLS_HINT,
                    (false, Some(_)) => "start a coordinator with: radeon-cluster start",
                    (false, None) => {
                        "check the address; on the machine that it names a coordinator is started with: \
                         radeon-cluster start"
                    }
                };
                Failure::new("unreachable", format!("cannot reach {}: {error}", self.base))
                    .hint(hint)
            }
        }
    }
}

/// Whether the server's certificate was not trusted.
fn is_distrust(error: &ureq::Error) -> bool {
    let ureq::Error::Io(io) = error else { return false };
    let cause = io.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
}

fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::file("read", path, &error)
}

/// Outputs of a task can be large; they are the user's own.
const BODY_BYTES_MAX: u64 = 4 << 30;

const KEY_HINT: &str = "on the coordinator's machine name its folder with --data, where its owner's key \
                        is; elsewhere the file of a key with --key-file. An administrator makes keys \
                        with: radeon-cluster keys create --role submit";

const TLS_HINT: &str = "it may speak TLS: use https:// and --fingerprint HEX, as radeon-cluster start has \
                        printed it there";

const TRUST_HINT: &str = "give --fingerprint HEX, as radeon-cluster start has printed it there, for a \
                          coordinator with --tls self-signed; or --ca FILE with the authority that has \
                          signed its certificate";

/// A refusal in the cluster API's shape: `{"error":{"code","message","hint"}}`.
fn refusal(status: u16, body: &str) -> Failure {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let text = |key: &str| body["error"][key].as_str().map(str::to_owned);
    let code = text("code").unwrap_or_else(|| "refused".to_owned());
    let message = text("message")
        .unwrap_or_else(|| format!("the coordinator answered {status} without a reason"));
    // The server's hint is for programs.
    let hint = match status {
        401 => Some(KEY_HINT.to_owned()),
        _ => text("hint"),
    };
    Failure { hint, ..Failure::new(code, message) }
}

/// A name as one path segment: percent-encoding keeps special characters part of the name.
pub(crate) fn segment(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    name.bytes().fold(String::new(), |text, byte| match plain(byte) {
        true => text + &char::from(byte).to_string(),
        false => text + &format!("%{byte:02X}"),
    })
}

/// A name or an id as an argument. An empty one would address the path above it.
pub(crate) fn named(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it is empty, expected a name or an id".to_owned()),
        name => Ok(name.to_owned()),
    }
}

#[cfg(test)]
mod tests;
