//! S3 and compatible stores. Requests go through our own client, with the TLS of the rest of the
//! program: each has a bounded time and a bounded answer, and goes to the given endpoint only.

use async_trait::async_trait;
use http_body_util::{BodyExt, Limited};
use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector as Connecting;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::aws::AmazonS3Builder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpService,
};
use object_store::path::Path as Key;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use std::time::Duration;

/// How long one request may take, of at most [`PIECE_BYTES`](super::upload::PIECE_BYTES).
const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
/// How often a request is sent again whose answer did not come, or says that the failure may pass.
const RETRIES: usize = 4;
/// Most bytes of an answer: more than is ever asked for.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A bucket, and how it is reached.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Bucket {
    name: String,
    prefix: String,
    endpoint: Option<String>,
    region: String,
    key: (String, String),
    session: Option<String>,
    /// A file of certificates to trust instead of those of the system.
    authorities: Option<String>,
    pub(super) patience: Duration,
}

impl Bucket {
    /// `BUCKET/PREFIX`, with options by their names.
    pub(super) fn new(place: &str, options: Vec<(String, String)>) -> Result<Self, String> {
        let (name, prefix) = place.split_once('/').unwrap_or((place, ""));
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if name.len() < 3 || name.len() > 63 || !name.chars().all(is_of_name) {
            return Err(format!(
                "{name:?} is no name of a bucket, expected 3 to 63 of a-z, 0-9, -._"
            ));
        }
        let prefix = prefix.trim_end_matches('/');
        if !Key::parse(prefix).is_ok_and(|key| key.as_ref() == prefix) {
            return Err(format!(
                "the prefix {prefix:?} has empty parts, or signs that none may have"
            ));
        }
        let option = |names: &[&str]| {
            let find = |name: &&str| options.iter().find(|(key, _)| key == name);
            let found = names.iter().find_map(find).map(|(_, value)| value.clone());
            found.filter(|value| !value.is_empty())
        };
        let needed = |name: &str| {
            option(&[name])
                .ok_or_else(|| format!("set {name}: keys of machines are not looked for"))
        };
        let endpoint = option(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        let allow_http = match option(&["AWS_ALLOW_HTTP"]).as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                return Err(format!("AWS_ALLOW_HTTP is {other:?}, expected true or false"));
            }
        };
        endpoint.as_deref().map_or(Ok(()), |endpoint| check(endpoint, allow_http))?;
        Ok(Self {
            name: name.to_owned(),
            prefix: prefix.to_owned(),
            endpoint,
            region: option(&["AWS_REGION", "AWS_DEFAULT_REGION"]).unwrap_or("us-east-1".into()),
            key: (needed("AWS_ACCESS_KEY_ID")?, needed("AWS_SECRET_ACCESS_KEY")?),
            session: option(&["AWS_SESSION_TOKEN"]),
            authorities: option(&["AWS_CA_BUNDLE"]),
            patience: PATIENCE,
        })
    }
}

/// Refuses an endpoint to which keys and tensors should not be sent.
fn check(endpoint: &str, allow_http: bool) -> Result<(), String> {
    let expected = |what| format!("the endpoint {what}, expected https://HOST[:PORT]");
    let uri: Uri = endpoint.parse().map_err(|_| expected("cannot be read"))?;
    let authority = uri.authority().ok_or_else(|| expected("names no host"))?;
    if authority.as_str().contains('@') {
        return Err(expected("has a name or a password in it"));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let is_own = host == "localhost"
        || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if is_own || allow_http => Ok(()),
        Some("http") => Err(format!(
            "{endpoint} is reached over the network, where whoever is on it reads along: use https://, \
             or set AWS_ALLOW_HTTP=true where the network is yours alone"
        )),
        _ => Err(expected("has another scheme")),
    }
}

/// The client of a bucket. It sends no request yet.
pub(super) fn connect(bucket: &Bucket) -> Result<Arc<dyn ObjectStore>, String> {
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&bucket.name)
        .with_region(&bucket.region)
        .with_access_key_id(&bucket.key.0)
        .with_secret_access_key(&bucket.key.1)
        // Some compatible stores cannot remove many objects at once.
        .with_disable_bulk_delete(true)
        .with_http_connector(Ours(Exchange::new(bucket)?))
        .with_retry(RetryConfig {
            backoff: BackoffConfig { max_backoff: CONNECT, ..BackoffConfig::default() },
            max_retries: RETRIES,
            retry_timeout: bucket.patience * 2,
        });
    if let Some(session) = &bucket.session {
        builder = builder.with_token(session);
    }
    if let Some(endpoint) = &bucket.endpoint {
        // The endpoint was checked before.
        builder = builder.with_endpoint(endpoint).with_allow_http(true);
    }
    let s3 = builder.build().map_err(|error| super::reason(&error))?;
    Ok(Arc::new(PrefixStore::new(s3, bucket.prefix.as_str())))
}

/// Gives every use of the bucket the same client.
#[derive(Debug)]
struct Ours(Exchange);

impl HttpConnector for Ours {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// Sends requests and reads their whole answers, within their time.
#[derive(Debug, Clone)]
struct Exchange {
    client: Client<HttpsConnector<Connecting>, HttpRequestBody>,
    patience: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("no whole answer within {0:?}")]
struct Late(Duration);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(Box<dyn std::error::Error + Send + Sync>);

impl Exchange {
    fn new(bucket: &Bucket) -> Result<Self, String> {
        let mut connecting = Connecting::new();
        connecting.enforce_http(false);
        connecting.set_nodelay(true);
        connecting.set_connect_timeout(Some(CONNECT.min(bucket.patience)));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(authorities(bucket)?)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connecting);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .build(connector);
        Ok(Self { client, patience: bucket.patience })
    }

    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.client.request(request).await.map_err(unsent)?;
        let (parts, body) = answer.into_parts();
        let whole = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        // The answer was cut short: the request may be repeated where that does no harm.
        let cut = |error| HttpError::new(HttpErrorKind::Interrupted, Broken(error));
        Ok(HttpResponse::from_parts(parts, whole.map_err(cut)?.to_bytes().into()))
    }
}

#[async_trait]
impl HttpService for Exchange {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let late = |_| Err(HttpError::new(HttpErrorKind::Timeout, Late(self.patience)));
        tokio::time::timeout(self.patience, self.answer(request)).await.unwrap_or_else(late)
    }
}

/// The error of a request that has no answer.
fn unsent(error: ClientError) -> HttpError {
    let kind = match error.is_connect() {
        true => HttpErrorKind::Connect,
        false => HttpErrorKind::Interrupted,
    };
    HttpError::new(kind, error)
}

/// The authorities to trust with an endpoint's name; none where nothing is encrypted.
fn authorities(bucket: &Bucket) -> Result<rustls::RootCertStore, String> {
    let mut roots = rustls::RootCertStore::empty();
    if bucket.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://")) {
        return Ok(roots);
    }
    let Some(path) = &bucket.authorities else {
        let (found, _) =
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return match found {
            0 => Err(
                "this system trusts no authorities: install ca-certificates, or set AWS_CA_BUNDLE"
                    .into(),
            ),
            _ => Ok(roots),
        };
    };
    let unreadable = |what: String| format!("AWS_CA_BUNDLE names {path}: {what}");
    let found = CertificateDer::pem_file_iter(path).map_err(|e| unreadable(e.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|e| unreadable(e.to_string()))?;
        roots.add(certificate).map_err(|e| unreadable(e.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(unreadable("it has no certificates".into())),
        false => Ok(roots),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_sent_in_the_clear_to_other_machines() {
        let cases = [
            ("https://minio.example:9000", false, None),
            ("http://127.0.0.1:9000", false, None),
            ("http://[::1]:9000", false, None),
            ("http://localhost", false, None),
            ("http://minio.example:9000", true, None),
            ("http://minio.example:9000", false, Some("over the network")),
            ("http://localhost.example", false, Some("over the network")),
            ("http://127.0.0.1@minio.example", true, Some("a name or a password")),
            ("minio.example", false, Some("another scheme")),
            ("ftp://minio.example", false, Some("another scheme")),
            ("/minio", false, Some("names no host")),
        ];
        for (endpoint, allow, wanted) in cases {
            let found = check(endpoint, allow);
            match wanted {
                None => assert_eq!(found, Ok(()), "{endpoint}"),
                Some(text) => assert!(found.is_err_and(|it| it.contains(text)), "{endpoint}"),
            }
        }
    }
}
