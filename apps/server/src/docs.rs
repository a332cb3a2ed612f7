//! The page at `/docs`, which shows the API description.

use crate::access::Right;
use crate::page::{HTML, SCRIPT, STYLE, answer};
use crate::route::{Content, Route};
use axum::response::Response;

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
