//! The page at `/docs`, which shows the API's description to people. Its files are in the binary, and it
//! loads nothing from elsewhere.

use crate::access::Right;
use crate::route::{Content, Route};
use axum::http::header;
use axum::response::{IntoResponse, Response};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// What the page may do: run its script, use its style, and read from its server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page and its files.
pub(crate) fn routes() -> [Route; 3] {
    let file = |route: Route, kind| route.answers_as(200, Content::Text(kind, "Page"));
    [
        file(Route::get("/docs", Right::Anybody, page, "This description, for people"), HTML),
        file(Route::get("/docs/page.js", Right::Anybody, script, "The page's script"), SCRIPT),
        file(Route::get("/docs/page.css", Right::Anybody, style, "The page's style"), STYLE),
    ]
}

async fn page() -> Response {
    answer(HTML, include_str!("docs/page.html"))
}

async fn script() -> Response {
    answer(SCRIPT, include_str!("docs/page.js"))
}

async fn style() -> Response {
    answer(STYLE, include_str!("docs/page.css"))
}

fn answer(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Another version of the server has another page.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}
