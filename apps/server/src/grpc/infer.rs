//! Inference over gRPC: single requests and streams of requests.

use super::body::{Answered, Held};
use super::proto::infer_parameter::ParameterChoice;
use super::proto::model_infer_response::InferOutputTensor;
use super::proto::{
    InferParameter, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse,
};
use super::request;
use super::service::{Answers, Service};
use crate::access::Caller;
use crate::answers::Waiting;
use crate::call::Call;
use crate::catalog::ModelEntry;
use crate::fault::Fault;
use crate::oip::{self, Answer, Form, InferRequest};
use crate::place::{Place, Ran};
use crate::sequences::{Line, Ticket};
use crate::serve::UnderWay;
use crate::shared_memory::Shared;
use crate::state::ServerState;
use axum::body::Bytes;
use futures_util::{StreamExt, stream};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use tonic::{Status, Streaming};
use tracing::Instrument;

/// The most concurrent requests of one stream; their answers keep their order.
const UNDER_WAY_MAX: usize = 64;

impl Service {
    /// The ticket of a message in its sequence, if any. Taken before any wait, so that the sequence keeps the order
    /// of messages.
    pub(super) fn ticket(&self, caller: &Caller, message: &ModelInferRequest) -> Option<Ticket> {
        // Errors are reported when the message is decoded.
        let asked = request::sequence(message).ok()??;
        let version = message.model_version.parse().ok();
        Some(Line::of(self.state(), caller, &message.model_name, version).ticket(asked))
    }

    /// Runs one inference, with its ticket in its sequence.
    pub(super) async fn infer(
        &self,
        call: &Call,
        caller: &Caller,
        (message, ticket): (ModelInferRequest, Option<Ticket>),
    ) -> Result<ModelInferResponse, Fault> {
        let named = self.named(caller, &message.model_name, &message.model_version).await?;
        let shared = Shared::new(self.state(), caller);
        let elsewhere = shared.bytes_of(|| request::places(&message));
        let bytes = oip::weight(0, elsewhere.saturating_add(message.encoded_len()));
        let decode = move |entry: &ModelEntry| {
            let read = request::read(message, Some(&shared), entry.inputs(), entry.outputs())?;
            Ok(InferRequest { ticket, ..read })
        };
        oip::serve(self.state(), (call, &named), (bytes, decode), encode).await
    }

    /// Runs each request of a stream as it arrives. A failed request gets an error answer; the stream goes on.
    pub(super) fn infer_each(
        &self,
        call: Call,
        caller: Caller,
        (held, answered, stream): (Held, Answered, Option<Arc<UnderWay>>),
        requests: Streaming<ModelInferRequest>,
    ) -> Answers {
        let service = self.clone();
        // Requests beyond the key's limit wait in the stream.
        let together = caller.concurrent_max().unwrap_or(UNDER_WAY_MAX).min(UNDER_WAY_MAX);
        let requests = stream::unfold(Some(requests), |requests| async {
            let mut requests = requests?;
            match requests.message().await {
                Ok(Some(message)) => Some((Ok(message), Some(requests))),
                Ok(None) => None,
                Err(status) => Some((Err(status), None)),
            }
        });
        let answers = requests.map(move |message| {
            let (service, caller, room) = (service.clone(), caller.clone(), held.take());
            let under_way = stream.as_deref().map(UnderWay::part);
            let call = call.message();
            let span = call.span();
            let ticket = message.as_ref().ok().and_then(|it| service.ticket(&caller, it));
            let answer = async move {
                let message = message?;
                let id = message.id.clone();
                let answer = match caller.clone().placed(service.limits()) {
                    Ok(caller) => service.infer(&call, &caller, (message, ticket)).await,
                    Err(fault) => Err(fault),
                };
                let answer = answer.map(|answer| ModelStreamInferResponse {
                    error_message: String::new(),
                    infer_response: Some(answer),
                });
                // The answer waits for room like the others.
                let answer = answer.and_then(|answer| {
                    let waiting = service.state().answers().wait(answer.encoded_len())?;
                    Ok((answer, Some(waiting)))
                });
                let (answer, waiting) = answer.unwrap_or_else(|fault| (refused(id, fault), None));
                Ok((last(answer), caller, waiting, (room, under_way)))
            };
            answer.instrument(span)
        });
        // Answers get room in their order. Until then they hold the room of their requests.
        let state = self.state().clone();
        let answers = answers.buffered(together).then(move |answer: Result<_, Status>| {
            let (state, answered) = (state.clone(), answered.clone());
            async move {
                let (answer, caller, waiting, _held) = answer?;
                Ok(in_room(&state, &caller, (answer, waiting), &answered).await)
            }
        });
        Box::pin(answers)
    }
}

/// Takes room for a stream's answer; an answer that reports missing room needs none.
async fn in_room(
    state: &ServerState,
    caller: &Caller,
    (answer, waiting): (ModelStreamInferResponse, Option<Waiting>),
    answered: &Answered,
) -> ModelStreamInferResponse {
    let Some(waiting) = waiting else { return answer };
    match state.answers().room(caller.id(), waiting).await {
        Ok(room) => {
            answered.add(room);
            answer
        }
        Err(fault) => last(refused(answer.infer_response.unwrap_or_default().id, fault)),
    }
}

/// Marks an answer as the only one of its request, as Triton's clients expect.
fn last(mut answer: ModelStreamInferResponse) -> ModelStreamInferResponse {
    let is_last = InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(true)) };
    let response = answer.infer_response.get_or_insert_default();
    response.parameters.insert("triton_final_response".to_owned(), is_last);
    answer
}

/// An error answer. Its id tells the client which request failed.
fn refused(id: String, fault: Fault) -> ModelStreamInferResponse {
    let parameters = fault.place.as_deref().map(parameters).unwrap_or_default();
    let infer_response =
        Some(ModelInferResponse { id, parameters, ..ModelInferResponse::default() });
    ModelStreamInferResponse { error_message: fault.told().into_owned(), infer_response }
}

/// A place as parameters of an answer, with underscores for hyphens, as this protocol has them.
fn parameters(place: &Place) -> HashMap<String, InferParameter> {
    let parameter = |(name, value): (&str, &str)| {
        let choice = ParameterChoice::StringParam(value.to_owned());
        (name.replace('-', "_"), InferParameter { parameter_choice: Some(choice) })
    };
    place.parts().map(parameter).collect()
}

/// A run as parameters: its place, and its times in microseconds.
fn run(ran: &Ran) -> HashMap<String, InferParameter> {
    let mut all = parameters(&ran.place);
    all.extend(ran.times().map(|(name, time)| {
        let us = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let choice = Some(ParameterChoice::Int64Param(us));
        (format!("lgp_{name}_us"), InferParameter { parameter_choice: choice })
    }));
    all
}

fn encode(answer: Answer) -> Result<ModelInferResponse, Fault> {
    let Answer { entry, id, choice, outputs, ran } = &answer;
    let chosen = choice.select(entry, outputs)?;
    let mut response = ModelInferResponse {
        model_name: entry.name().to_owned(),
        model_version: entry.version().to_string(),
        id: id.clone(),
        parameters: ran.as_ref().map(run).unwrap_or_default(),
        ..ModelInferResponse::default()
    };
    for (output, form) in chosen {
        let shape = output.tensor.shape().dims().iter();
        response.outputs.push(InferOutputTensor {
            name: output.name.clone(),
            datatype: oip::datatype_name(output.tensor.dtype()).to_owned(),
            shape: shape.map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect(),
            ..InferOutputTensor::default()
        });
        // Each output has an entry, because clients match them by order.
        response.raw_output_contents.push(match form {
            Form::Json | Form::Binary => output.tensor.packed().into_owned().into(),
            Form::Region(slot) => {
                slot.write(&output.name, &output.tensor.packed())?;
                Bytes::new()
            }
        });
    }
    Ok(response)
}
