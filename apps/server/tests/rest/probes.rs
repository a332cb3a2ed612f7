//! Kubernetes probes, and the page that shows the API description.

use crate::rig::{Rig, request};
use axum::body::Body;

/// A request without the owner's credential.
fn open(path: &str) -> axum::http::Request<Body> {
    request("GET", path).body(Body::empty()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_need_no_key_and_say_it_with_the_status() {
    let rig = Rig::start().await;
    for path in ["/healthz", "/readyz"] {
        let answer = rig.without_key(open(path)).await;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, "ok\n"), "{path}");
    }
    assert_eq!(rig.post("/api/v1/cluster/workers/w1/shutdown", "").await.status, 202);
    let answer = rig.until("/readyz", |answer| answer.status == 503).await;
    assert_eq!(answer.text(), "no worker is ready\n");
    assert_eq!(rig.without_key(open("/healthz")).await.status, 200);
    assert_eq!(rig.without_key(open("/api/v1/cluster/stats")).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_needs_nothing_but_its_server() {
    let rig = Rig::start().await;
    let page = rig.without_key(open("/docs")).await;
    let html = page.text();
    let mut files = vec![page];
    for (tag, attribute) in [("<script", "src=\""), ("<link", "href=\"")] {
        for (at, _) in html.match_indices(tag) {
            let (_, rest) = html[at..].split_once(attribute).expect("nothing inline");
            let (file, rest) = rest.split_once('"').unwrap();
            assert!(rest.starts_with('>') && (tag == "<link" || rest.starts_with("></script>")));
            files.push(rig.without_key(open(file)).await);
        }
    }
    assert_eq!(files.len(), 3, "{html}");
    for file in files {
        assert_eq!(file.status, 200, "{}", file.text());
        let policy = file.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(file.headers["x-content-type-options"], "nosniff");
        let text = file.text();
        for elsewhere in ["http:", "https:", "//cdn", "innerHTML", "<style", " style=", " onload="]
        {
            assert!(!text.contains(elsewhere), "{elsewhere}");
        }
    }
}
