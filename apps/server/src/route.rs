//! The description of a route. The router, the callers' rights and the API description are made from it.

use crate::access::Right;
use crate::state::ServerState;
use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};

/// One method of one path.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    /// The pattern, with parameters as `{name}`.
    pub(crate) path: String,
    pub(crate) right: Right,
    pub(crate) about: &'static str,
    /// Parameters besides those of the path.
    pub(crate) parameters: Vec<Parameter>,
    /// The accepted forms of the body; empty for no body.
    pub(crate) takes: Vec<Content>,
    /// Each successful answer.
    pub(crate) answers: Vec<(u16, Content)>,
    /// Statuses of refusals besides those of every such route.
    pub(crate) refusals: &'static [u16],
    handler: MethodRouter<ServerState>,
}

/// A parameter of the query or a header.
#[derive(Debug)]
pub(crate) struct Parameter {
    /// `query` or `header`.
    pub(crate) place: &'static str,
    pub(crate) name: &'static str,
    /// The name of a schema in the API description.
    pub(crate) schema: &'static str,
    pub(crate) about: &'static str,
}

/// A form of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    /// JSON of a schema in the API description.
    Json(&'static str),
    /// Text of a media type and a schema in the API description.
    Text(&'static str, &'static str),
    /// Bytes of a media type.
    Bytes(&'static str),
}

impl Route {
    fn new<H: Handler<T, ServerState>, T: 'static>(
        (method, filter): (Method, MethodFilter),
        path: impl Into<String>,
        right: impl Into<Right>,
        handler: H,
        about: &'static str,
    ) -> Self {
        Self {
            method,
            path: path.into(),
            right: right.into(),
            about,
            parameters: Vec::new(),
            takes: Vec::new(),
            answers: Vec::new(),
            refusals: &[],
            handler: on(filter, handler),
        }
    }

    pub(crate) fn get<H: Handler<T, ServerState>, T: 'static>(
        path: impl Into<String>,
        right: impl Into<Right>,
        handler: H,
        about: &'static str,
    ) -> Self {
        Self::new((Method::GET, MethodFilter::GET), path, right, handler, about)
    }

    pub(crate) fn post<H: Handler<T, ServerState>, T: 'static>(
        path: impl Into<String>,
        right: impl Into<Right>,
        handler: H,
        about: &'static str,
    ) -> Self {
        Self::new((Method::POST, MethodFilter::POST), path, right, handler, about)
    }

    pub(crate) fn put<H: Handler<T, ServerState>, T: 'static>(
        path: impl Into<String>,
        right: impl Into<Right>,
        handler: H,
        about: &'static str,
    ) -> Self {
        Self::new((Method::PUT, MethodFilter::PUT), path, right, handler, about)
    }

    pub(crate) fn patch<H: Handler<T, ServerState>, T: 'static>(
        path: impl Into<String>,
        right: impl Into<Right>,
        handler: H,
        about: &'static str,
    ) -> Self {
        Self::new((Method::PATCH, MethodFilter::PATCH), path, right, handler, about)
    }

    pub(crate) fn delete<H: Handler<T, ServerState>, T: 'static>(
        path: impl Into<String>,
        right: impl Into<Right>,
        handler: H,
        about: &'static str,
    ) -> Self {
        Self::new((Method::DELETE, MethodFilter::DELETE), path, right, handler, about)
    }

    /// Adds an optional query parameter.
    pub(crate) fn query(
        self,
        name: &'static str,
        schema: &'static str,
        about: &'static str,
    ) -> Self {
        self.parameter(Parameter { place: "query", name, schema, about })
    }

    /// Adds an optional header.
    pub(crate) fn header(
        self,
        name: &'static str,
        schema: &'static str,
        about: &'static str,
    ) -> Self {
        self.parameter(Parameter { place: "header", name, schema, about })
    }

    fn parameter(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// Accepts a body with tensors after the JSON.
    pub(crate) fn tensors(self) -> Self {
        let name = "Inference-Header-Content-Length";
        let about = "Where the JSON ends, and tensors begin whose inputs have binary_data_size";
        self.header(name, "Length", about).takes_as(Content::Bytes("application/octet-stream"))
    }

    /// Accepts a JSON body of a schema.
    pub(crate) fn takes(self, schema: &'static str) -> Self {
        self.takes_as(Content::Json(schema))
    }

    pub(crate) fn takes_as(mut self, content: Content) -> Self {
        self.takes.push(content);
        self
    }

    /// Adds a JSON answer of a schema.
    pub(crate) fn answers(self, status: u16, schema: &'static str) -> Self {
        self.answers_as(status, Content::Json(schema))
    }

    pub(crate) fn answers_as(mut self, status: u16, content: Content) -> Self {
        self.answers.push((status, content));
        self
    }

    /// Adds statuses of refusals.
    pub(crate) fn refuses(mut self, statuses: &'static [u16]) -> Self {
        self.refusals = statuses;
        self
    }

    /// Adds the route to a router.
    pub(crate) fn serve(self, router: Router<ServerState>) -> Router<ServerState> {
        router.route(&self.path, self.handler)
    }
}
