//! Files in S3: on a server of Python's `moto`, behind a line that breaks, and what it may refuse.

mod line;
mod refusals;
pub(crate) mod server;

use super::laws::{Run, Site, obeys, run};
use crate::net::transfer::blobs::{BlobStore, BlobsAt, Unread};
use crate::{Error, Result};
use line::Line;
use server::Server;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Any keys will do: the server does not check them.
const KEYS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "someone"), ("AWS_SECRET_ACCESS_KEY", "swordfish")];
const PATIENCE: Duration = Duration::from_secs(3);

/// A place in a bucket behind an endpoint.
fn at(url: &str, endpoint: &str, more: &[(&str, &str)]) -> BlobsAt {
    let endpoint = ("AWS_ENDPOINT_URL", endpoint);
    let options = KEYS.into_iter().chain([endpoint]).chain(more.iter().copied());
    BlobsAt::new(url, options).unwrap().with_patience(PATIENCE)
}

async fn open(at: &BlobsAt) -> Result<Arc<BlobStore>> {
    let (at, runtime) = (at.clone(), Handle::current());
    let opening = tokio::task::spawn_blocking(move || {
        BlobStore::open_shared(&at, (1, &[]), std::iter::empty(), runtime)
    });
    opening.await.unwrap()
}

/// Why a place is refused.
async fn refusal(at: &BlobsAt) -> String {
    match open(at).await.err() {
        Some(Error::Blobs { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_in_s3_obey_the_laws() {
    let server = match Server::start(false).await {
        Ok(server) => server,
        Err(reason) => return println!("skipped: moto: {reason}"),
    };
    for url in ["s3://tensors", "s3://tensors/below/it"] {
        obeys(Site::Shared(at(url, &server.endpoint(), &[]))).await;
    }
    let absent = refusal(&at("s3://absent", &server.endpoint(), &[])).await;
    assert!(absent.contains("there is no such bucket: make it"), "{absent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_trusted_by_its_certificate() {
    let server = match Server::start(true).await {
        Ok(server) => server,
        Err(reason) => return println!("skipped: moto: {reason}"),
    };
    let (endpoint, authority) = (server.endpoint(), server.authority());
    let place = at("s3://tensors", &endpoint, &[("AWS_CA_BUNDLE", &authority)]);
    obeys(Site::Shared(place)).await;
    let unknown = refusal(&at("s3://tensors", &endpoint, &[])).await;
    assert!(unknown.contains("certificate"), "{unknown}");
    for (file, part) in
        [("/nowhere/a.pem", "AWS_CA_BUNDLE names"), ("/dev/null", "no certificates")]
    {
        let refused = refusal(&at("s3://tensors", &endpoint, &[("AWS_CA_BUNDLE", file)])).await;
        assert!(refused.contains(part), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_breaks_loses_nothing() {
    let server = match Server::start(false).await {
        Ok(server) => server,
        Err(reason) => return println!("skipped: moto: {reason}"),
    };
    let line = Line::to(server.port());
    let place = at("s3://tensors", &line.endpoint(), &[]);
    let store = open(&place).await.unwrap();
    for count in [10_000, (12 << 20) + 3] {
        let Run { tensors, apart, parts } = run(9, count);
        // Answers to the next requests are lost, of every kind in turn.
        line.lose(2);
        let claim = store.put(apart.blob, parts).await.unwrap();
        line.lose(2);
        assert!(store.load(apart.clone()).await.as_ref() == Ok(&tensors));
        line.cut(true);
        let began = Instant::now();
        let failed = store.load(apart.clone()).await.err();
        assert!(matches!(failed, Some(Unread::Failed(_))), "{failed:?}");
        assert!(began.elapsed() < PATIENCE * 8, "{:?}", began.elapsed());
        let Run { apart: other, parts, .. } = run(8, count);
        let refused = store.put(other.blob, parts).await.err();
        assert!(matches!(refused, Some(Error::NotSaved { .. })), "{refused:?}");
        line.cut(false);
        assert!(store.load(apart).await == Ok(tensors));
        line.lose(1);
        drop(claim);
        super::laws::swept(&store).await;
    }
    let files = Site::Shared(at("s3://tensors", &server.endpoint(), &[])).files().await;
    assert!(files.is_empty(), "{files:?}");
}
