//! Requests over HTTP/1.1; each lane keeps its own connection.

use super::answer::Answer;
use super::request::{Body, Input};
use super::{Load, LoadForm, Result, transport};
use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::path::PathBuf;

const JSON_BYTES: &str = "inference-header-content-length";

/// A connection, and the request that is sent on it.
pub(crate) struct Http {
    connection: SendRequest<Full<Bytes>>,
    uri: Uri,
    body: Body,
    key: Option<String>,
    /// Files in shared memory, deleted with the lane.
    files: Vec<PathBuf>,
}

impl Http {
    pub(crate) async fn open(run: &Load, input: &Input, lane: usize) -> Result<Self> {
        let uri: Uri = run.url.parse()?;
        let stream = transport::connect(run, &uri, b"http/1.1").await?;
        let (connection, driver) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        let own = format!("{}/v2/models/{}/infer", run.url.trim_end_matches('/'), run.model);
        let uri = if uri.path().len() > 1 { uri } else { own.parse()? };
        let key = match &run.key_file {
            Some(file) => Some(format!("Bearer {}", std::fs::read_to_string(file)?.trim())),
            None => None,
        };
        let body = Body::of(run, input, lane)?;
        let mut http = Self { connection, uri, body, key, files: Vec::new() };
        if run.form == LoadForm::Shared {
            http.share(&run.url, &format!("in{lane}"), &input.bytes()).await?;
            http.share(&run.url, &format!("out{lane}"), &vec![0; run.output_bytes]).await?;
        }
        Ok(http)
    }

    /// Writes bytes to a shared memory region and registers it.
    async fn share(&mut self, url: &str, region: &str, bytes: &[u8]) -> Result<()> {
        let key = format!("lgp-load-{}-{region}", std::process::id());
        let file = PathBuf::from("/dev/shm").join(&key);
        std::fs::write(&file, bytes)?;
        self.files.push(file);
        let at = format!("{url}/v2/systemsharedmemory/region/{region}");
        let forget = self.request(&format!("{at}/unregister").parse()?, Bytes::new());
        self.send(forget).await?;
        let size = bytes.len();
        let body = json!({"key": format!("/{key}"), "offset": 0, "byte_size": size}).to_string();
        let request = self.request(&format!("{at}/register").parse()?, body.into());
        match self.send(request).await? {
            Answer::Good { .. } => Ok(()),
            other => Err(format!("the region is not registered: {other:?}").into()),
        }
    }

    pub(crate) async fn ask(&mut self) -> Result<Answer> {
        let mut request = self.request(&self.uri, self.body.bytes.clone());
        if let Some(bytes) = self.body.json_bytes {
            request.headers_mut().insert(JSON_BYTES, bytes.into());
        }
        self.send(request).await
    }

    fn request(&self, uri: &Uri, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        let headers = request.headers_mut();
        let host = uri.authority().and_then(|host| host.as_str().parse().ok());
        headers.extend(host.map(|host| (header::HOST, host)));
        let key = self.key.as_ref().and_then(|key| key.parse().ok());
        headers.extend(key.map(|key| (header::AUTHORIZATION, key)));
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        let path = uri.path_and_query().map(|path| path.as_str()).unwrap_or("/");
        *request.uri_mut() = path.parse().unwrap_or_default();
        request
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Answer> {
        self.connection.ready().await?;
        let response = self.connection.send_request(request).await?;
        let status = response.status();
        let says_when = response.headers().contains_key(header::RETRY_AFTER);
        let model_us = response.headers().get("server-timing").and_then(model_us);
        let body = response.into_body().collect().await?.to_bytes();
        Ok(match status {
            status if status.is_success() => Answer::Good { model_us },
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                Answer::Refused { says_when }
            }
            status => Answer::Bad(format!("{status}: {}", String::from_utf8_lossy(&body))),
        })
    }
}

/// The time in the model, from the server's timing header.
fn model_us(times: &header::HeaderValue) -> Option<f64> {
    let mut times = times.to_str().ok()?.split(", ");
    let ms = times.find_map(|time| time.strip_prefix("model;dur="))?;
    Some(ms.parse::<f64>().ok()? * 1e3)
}

impl Drop for Http {
    fn drop(&mut self) {
        for file in &self.files {
            // The file may be gone already.
            let _ = std::fs::remove_file(file);
        }
    }
}
