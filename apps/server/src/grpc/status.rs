//! Refusals as gRPC statuses.

use crate::fault::Fault;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

/// When to retry, in milliseconds, as clients' retry policies expect it (gRFC A6).
const PUSHBACK: &str = "grpc-retry-pushback-ms";
/// The stable error code, as in the REST interfaces.
pub(crate) const CODE: &str = "lgp-code";

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let code = match fault.status {
            StatusCode::BAD_REQUEST => Code::InvalidArgument,
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            StatusCode::FORBIDDEN => Code::PermissionDenied,
            StatusCode::NOT_FOUND | StatusCode::GONE => Code::NotFound,
            StatusCode::CONFLICT => Code::FailedPrecondition,
            StatusCode::NOT_IMPLEMENTED => Code::Unimplemented,
            StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
            StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
            StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::INSUFFICIENT_STORAGE => Code::ResourceExhausted,
            _ => Code::Internal,
        };
        let mut headers = HeaderMap::new();
        headers.insert(CODE, HeaderValue::from_static(fault.code));
        if let Some(delay) = fault.retry_after {
            let ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            headers.insert(PUSHBACK, HeaderValue::from(ms.max(1)));
        }
        if let Some(place) = &fault.place {
            place.add_to(&mut headers);
        }
        Self::with_metadata(code, fault.told(), MetadataMap::from_headers(headers))
    }
}

/// Whether a path belongs to this protocol.
pub(crate) fn is_path(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| rest.starts_with("inference."))
}

/// A refusal before a call has begun.
pub(crate) fn respond(fault: Fault) -> Response {
    let mut response = Status::from(fault).into_http::<axum::body::Body>();
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

/// The status of an answer of any protocol. A failed gRPC call has HTTP status 200 and a header with its status. A
/// stream's status comes at its end, which is not awaited here.
pub(crate) fn status_of(response: &Response) -> StatusCode {
    let Some(status) = Status::from_header_map(response.headers()) else {
        return response.status();
    };
    match status.code() {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::FailedPrecondition | Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::DeadlineExceeded | Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_fault_keeps_its_meaning_its_name_and_its_time() {
        let fault = Fault::unavailable("overloaded", "full").retry_after(Duration::from_millis(7));
        let status = Status::from(fault);
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "full"));
        let text = |name: &str| status.metadata().get(name).expect("set").to_str().expect("text");
        assert_eq!((text(CODE), text(PUSHBACK)), ("overloaded", "7"));
        for status in [400, 401, 403, 404, 409, 429, 500, 501, 503] {
            let status = StatusCode::from_u16(status).expect("one of HTTP");
            assert_eq!(status_of(&respond(Fault::new(status, "x", "x"))), status);
        }
        assert_eq!(status_of(&Response::default()), 200);
        let response = respond(Fault::bad_input("ä\n"));
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["grpc-status"], "3");
        assert_eq!(response.headers()["content-type"], "application/grpc");
    }
}
