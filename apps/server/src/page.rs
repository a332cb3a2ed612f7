//! HTML pages, built into the binary. They load nothing from other servers and run only their own scripts.

use axum::http::header;
use axum::response::{IntoResponse, Response};

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const SCRIPT: &str = "text/javascript; charset=utf-8";
pub(crate) const STYLE: &str = "text/css; charset=utf-8";
pub(crate) const PICTURE: &str = "image/svg+xml";

/// The permissions of a page: its scripts and styles, images from the server or made by the page, and requests to
/// its server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of a page.
pub(crate) fn answer(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Another version of the server has another page, so browsers must revalidate.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}
