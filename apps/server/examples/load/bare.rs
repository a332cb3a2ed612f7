//! A server that reads each request to its end and answers a fixed number of bytes.

use crate::Result;
use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use tokio::net::TcpListener;

/// Serves on a free port, which it prints, until it is killed.
pub(crate) async fn serve(answer_bytes: usize) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/", listener.local_addr()?);
    let answer = Bytes::from(vec![0; answer_bytes]);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answer = answer.clone();
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let answer = answer.clone();
            async move {
                // An incomplete request has no reader for the answer.
                let _ = request.into_body().collect().await;
                Ok::<_, Infallible>(Response::new(Full::new(answer)))
            }
        });
        let builder = hyper::server::conn::http1::Builder::new();
        tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
    }
}
