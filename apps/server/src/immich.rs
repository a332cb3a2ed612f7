//! Immich's machine learning service, with models of this server's repository: embeddings of images and texts,
//! faces, and text in images.

mod align;
mod beside;
mod clip;
mod ctc;
mod faces;
mod languages;
mod models;
mod ocr;
mod pictures;
mod regions;
mod request;
mod tasks;
mod tokens;
mod warp;

use crate::call::{self, Call};
use crate::extract::{refuse_encoded, room_of, take};
use crate::fault::Fault;
use crate::state::ServerState;
use crate::{drain, guard};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use models::Models;
use pictures::Picture;
#[cfg(feature = "planted")]
pub(crate) use request::can_read;
use request::{Predict, Sent};
use serde_json::{Map, Value, json};
use tasks::Task;

/// The routes of [`serve_immich`](crate::serve_immich).
pub(crate) fn router(state: ServerState) -> Router {
    Router::new()
        .route("/", get(root))
        .route("/ping", get("pong"))
        .route("/predict", post(predict))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_verb)
        // Bodies are limited where they are read.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn(drain::drained))
        .layer(from_fn_with_state(state.clone(), guard::known_hosts_only))
        .layer(from_fn_with_state(state.clone(), call::observed))
        .with_state(Models::new(state))
}

async fn root() -> Response {
    axum::Json(json!({ "message": "Immich ML" })).into_response()
}

/// `POST /predict`.
async fn predict(
    State(models): State<Models>,
    call: Call,
    request: Request,
) -> Result<Response, Refused> {
    let models = models.used_by(call);
    let answer = answer(&models, request).await.inspect_err(|fault| {
        let (error, hint) = (&fault.message, fault.hint.as_deref().unwrap_or_default());
        // Immich's own log only has the status.
        tracing::warn!(error, hint, "a request of Immich is refused");
    })?;
    Ok(axum::Json(Value::Object(answer)).into_response())
}

async fn answer(models: &Models, request: Request) -> Result<Map<String, Value>, Fault> {
    refuse_encoded(&request)?;
    let room = room_of(&request, models.state());
    let (parts, body) = request.into_parts();
    let (bytes, room) = take(body, (models.state(), room)).await?;
    let Predict { tasks, sent } = request::read(parts, bytes).await?;
    let mut answer = Map::new();
    match sent {
        Sent::Text(text) => {
            for task in tasks {
                answer.insert(task.name().to_owned(), of_text(models, task, &text).await?);
            }
        }
        Sent::Image(bytes) => {
            let needs = |size| tasks.iter().map(|task| task.room(size)).sum();
            let picture = Picture::decode(models.state(), bytes, room, needs).await?;
            for task in tasks {
                let found = of_picture(models, task, &picture).await?;
                answer.insert(found.0.to_owned(), found.1);
            }
            answer.insert("imageHeight".to_owned(), picture.height().into());
            answer.insert("imageWidth".to_owned(), picture.width().into());
        }
    }
    Ok(answer)
}

async fn of_text(models: &Models, task: Task, text: &str) -> Result<Value, Fault> {
    match task {
        Task::Textual(asked) => clip::textual(models, &asked, text).await,
        other => Err(unfit(&other, "a text", "an image")),
    }
}

async fn of_picture(
    models: &Models,
    task: Task,
    picture: &Picture,
) -> Result<(&'static str, Value), Fault> {
    let name = task.name();
    let value = match task {
        Task::Visual(model) => clip::visual(models, &model, picture).await?,
        Task::Faces(faces) => faces::find(models, &faces, picture).await?,
        Task::Ocr(ocr) => ocr::read(models, &ocr, picture).await?,
        other => return Err(unfit(&other, "an image", "a text")),
    };
    Ok((name, value))
}

fn unfit(task: &Task, given: &str, expected: &str) -> Fault {
    Fault::bad_input(format!("{} was sent with {given}, expected {expected}", task.describe()))
}

/// A refusal in the form of Immich's own service: `{"detail":"message"}`.
struct Refused(Fault);

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let detail = match &self.0.hint {
            Some(hint) => format!("{}; {hint}", self.0.message),
            None => self.0.message.clone(),
        };
        self.0.respond(&json!({ "detail": detail }))
    }
}

async fn unknown_path(request: Request) -> Refused {
    let message = format!("nothing is served at {}", request.uri().path());
    Refused(Fault::not_found("unknown_path", message).hint("expected /, /ping or /predict"))
}

async fn wrong_verb(request: Request) -> Refused {
    let message = format!("{} is not offered at {}", request.method(), request.uri().path());
    Refused(Fault::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_verb", message))
}
