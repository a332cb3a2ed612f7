//! Requests over gRPC: single calls, or messages of one stream.

use super::answer::Answer;
use super::request::{Input, message};
use super::{Load, Result, transport};
use crate::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use crate::inference::infer_parameter::ParameterChoice;
use crate::inference::{ModelInferRequest, ModelInferResponse, ModelStreamInferResponse};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::body::Body;
use tower::Service;

/// The flow-control window of both ends, so that large messages do not wait for updates.
const WINDOW_BYTES: u32 = 8 << 20;

/// A connection in the form that the generated client needs.
#[derive(Clone)]
pub(crate) struct Channel(SendRequest<Body>);

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

type Client = GrpcInferenceServiceClient<Channel>;

/// Opens the one connection.
pub(crate) async fn connect(run: &Load) -> Result<Client> {
    let uri: Uri = run.url.parse()?;
    let stream = transport::connect(run, &uri, b"h2").await?;
    let mut builder = Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new());
    builder.initial_stream_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    let (connection, driver) = builder.handshake(TokioIo::new(stream)).await?;
    tokio::spawn(driver);
    Ok(GrpcInferenceServiceClient::with_origin(Channel(connection), uri))
}

fn with_key<T>(run: &Load, message: T) -> Result<tonic::Request<T>> {
    let mut request = tonic::Request::new(message);
    if let Some(file) = &run.key_file {
        let key = std::fs::read_to_string(file)?;
        request.metadata_mut().insert("authorization", format!("Bearer {}", key.trim()).parse()?);
    }
    Ok(request)
}

/// A lane with a call for each request.
pub(crate) struct Unary {
    client: Client,
    message: ModelInferRequest,
    metadata: tonic::metadata::MetadataMap,
}

impl Unary {
    pub(crate) fn new(run: &Load, client: Client, input: &Input) -> Result<Self> {
        let metadata = with_key(run, ())?.metadata().clone();
        Ok(Self { client, message: message(run, input), metadata })
    }

    pub(crate) async fn ask(&mut self) -> Result<Answer> {
        let mut request = tonic::Request::new(self.message.clone());
        *request.metadata_mut() = self.metadata.clone();
        Ok(match self.client.model_infer(request).await {
            Ok(answer) => Answer::Good { model_us: model_us(answer.get_ref()) },
            Err(status) if status.code() == Code::Unavailable => {
                Answer::Refused { says_when: says_when(&status) }
            }
            Err(status) => Answer::Bad(status.to_string()),
        })
    }
}

/// Whether a refusal says when to retry, as this server's do.
fn says_when(status: &tonic::Status) -> bool {
    let pause = status.metadata().get("grpc-retry-pushback-ms");
    pause.and_then(|ms| ms.to_str().ok()?.parse::<u64>().ok()).is_some()
}

/// The waiting lanes, in the order of their requests.
type Waiters = Arc<Mutex<VecDeque<oneshot::Sender<Answer>>>>;

/// A lane on a stream that many lanes share.
#[derive(Clone)]
pub(crate) struct Streamed {
    requests: mpsc::Sender<ModelInferRequest>,
    waiters: Waiters,
    message: ModelInferRequest,
}

impl Streamed {
    /// Opens the stream, and starts reading its answers.
    pub(crate) async fn open(run: &Load, mut client: Client, input: &Input) -> Result<Self> {
        let (requests, receiver) = mpsc::channel(run.in_flight);
        let waiters = Waiters::default();
        let message = message(run, input);
        // The stream's head arrives with the first answer, so the call must not block here.
        let call = with_key(run, ReceiverStream::new(receiver))?;
        let readers = Arc::clone(&waiters);
        tokio::spawn(async move {
            let Ok(answers) = client.model_stream_infer(call).await else { return };
            let mut answers = answers.into_inner();
            while let Ok(Some(answer)) = answers.message().await {
                let next = readers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(waiter) = next else { return };
                // The lane may have ended with the run.
                let _ = waiter.send(judged(answer));
            }
            // Lanes that still wait get an error, because their channels close.
            readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        });
        Ok(Self { requests, waiters, message })
    }

    pub(crate) async fn ask(&mut self) -> Result<Answer> {
        let permit = self.requests.reserve().await?;
        let (waiter, answer) = oneshot::channel();
        {
            let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            waiters.push_back(waiter);
            permit.send(self.message.clone());
        }
        Ok(answer.await?)
    }
}

/// The time in the model, if the server reports it.
fn model_us(answer: &ModelInferResponse) -> Option<f64> {
    match answer.parameters.get("lgp_model_us")?.parameter_choice.as_ref()? {
        ParameterChoice::Int64Param(us) => Some(*us as f64),
        _ => None,
    }
}

fn judged(answer: ModelStreamInferResponse) -> Answer {
    match answer.error_message {
        message if message.is_empty() => {
            Answer::Good { model_us: answer.infer_response.as_ref().and_then(model_us) }
        }
        message => Answer::Bad(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_when_to_come_again_in_grpcs_own_way() {
        let mut status = tonic::Status::unavailable("busy");
        assert!(!says_when(&status));
        status.metadata_mut().insert("retry-after", "1".parse().unwrap());
        assert!(!says_when(&status));
        status.metadata_mut().insert("grpc-retry-pushback-ms", "1000".parse().unwrap());
        assert!(says_when(&status));
    }
}
