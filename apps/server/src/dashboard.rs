//! The dashboard at `/`: a page of plain modules that uses the public API. Its paths are relative, so that it works
//! behind a proxy's prefix.

use crate::access::Right;
use crate::extract::Params;
use crate::fault::{ClusterError, Fault};
use crate::page::{HTML, PICTURE, SCRIPT, STYLE, answer};
use crate::route::{Content, Route};
use axum::response::Response;

macro_rules! files {
    ($($name:literal $kind:ident $path:literal)*) => {
        /// The files of the page, each with its media type and its text.
        const FILES: &[(&str, &str, &str)] =
            &[$(($name, $kind, include_str!(concat!("dashboard/", $path)))),*];
    };
}

files! {
    "style.css" STYLE "style.css"
    "icon.svg" PICTURE "icon.svg"
    "app.js" SCRIPT "app.js"
    "api.js" SCRIPT "api.js"
    "dom.js" SCRIPT "dom.js"
    "format.js" SCRIPT "format.js"
    "chart.js" SCRIPT "chart.js"
    "sign_in.js" SCRIPT "sign_in.js"
    "overview.js" SCRIPT "overview.js"
    "machines.js" SCRIPT "machines.js"
    "tasks.js" SCRIPT "tasks.js"
    "models.js" SCRIPT "models.js"
    "insight.js" SCRIPT "insight.js"
    "try.js" SCRIPT "try.js"
    "tensors.js" SCRIPT "tensors.js"
    "logs.js" SCRIPT "logs.js"
    "access.js" SCRIPT "access.js"
    "uplot.js" SCRIPT "vendor/uplot.js"
    "uplot.css" STYLE "vendor/uplot.css"
}

/// The page and its files.
pub(crate) fn routes() -> [Route; 2] {
    let page = Route::get("/", Right::Anybody, page, "The dashboard");
    let file = Route::get("/dashboard/{file}", Right::Anybody, file, "A file of the dashboard");
    let kinds = [SCRIPT, STYLE, PICTURE].into_iter();
    [
        page.answers_as(200, Content::Text(HTML, "Page")),
        kinds
            .fold(file, |route, kind| route.answers_as(200, Content::Text(kind, "Page")))
            .refuses(&[404]),
    ]
}

async fn page() -> Response {
    answer(HTML, include_str!("dashboard/page.html"))
}

async fn file(params: Params) -> Result<Response, ClusterError> {
    let asked = params.get("file");
    let found = FILES.iter().find(|(name, ..)| *name == asked);
    let (_, kind, text) = found.ok_or_else(|| {
        let shown: String = asked.chars().take(64).collect();
        Fault::not_found("unknown_path", format!("the dashboard has no file '{shown}'"))
    })?;
    Ok(answer(kind, text))
}
