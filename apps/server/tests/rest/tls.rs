//! TLS of live listeners, with a certificate from files.

use crate::grpc::request;
use crate::rig::{PATIENCE, Rig};
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lgp_sdk::cluster::Pki;
use lgp_server::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use lgp_server::{Tls, serve, serve_grpc};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::{Code, Request};

const GET: &[u8] = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

fn paths(folder: &Path) -> (PathBuf, PathBuf) {
    (folder.join("cert.pem"), folder.join("key.pem"))
}

/// Writes a new certificate and its key; returns the certificate.
fn issue(pki: &Pki, folder: &Path) -> CertificateDer<'static> {
    let made = pki.issue_server(&["localhost".to_owned()], Duration::from_secs(3600)).unwrap();
    let (cert, key) = paths(folder);
    std::fs::write(cert, &made.chain_pem).unwrap();
    std::fs::write(key, &made.key_pem).unwrap();
    CertificateDer::from_pem_slice(made.chain_pem.as_bytes()).unwrap()
}

async fn connect(
    addr: SocketAddr,
    trusted: &Pki,
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(addr).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// The certificate that the server showed on a connection.
fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_is_served_over_tls() {
    let rig = Rig::start().await;
    let (folder, pki) = (tempfile::tempdir().unwrap(), Pki::generate().unwrap());
    issue(&pki, folder.path());
    let (cert, key) = paths(folder.path());
    let tls = Tls::files(cert, key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve_grpc(listener, Some(tls), rig.state.clone(), std::future::pending()));

    assert!(connect(addr, &Pki::generate().unwrap(), b"h2").await.is_err(), "another authority");
    assert!(connect(addr, &pki, b"http/1.1").await.is_err(), "another protocol");
    let stream = connect(addr, &pki, b"h2").await.unwrap();
    let (sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let service = tower::service_fn(move |request: axum::http::Request<tonic::body::Body>| {
        let mut sender = sender.clone();
        async move { sender.send_request(request).await }
    });
    let origin = "https://localhost".parse().unwrap();
    let mut client = GrpcInferenceServiceClient::with_origin(service, origin);
    let mut asked = Request::new(request("relu", [-1.0, 2.0]));
    asked.metadata_mut().insert("authorization", rig.bearer.parse().unwrap());
    let answer = client.model_infer(asked).await.unwrap().into_inner();
    assert_eq!(answer.outputs.len(), 2);
    let mut wrong = Request::new(request("relu", [-1.0, 2.0]));
    wrong.metadata_mut().insert("authorization", "Bearer lgp_x_y".parse().unwrap());
    assert_eq!(client.model_infer(wrong).await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_listener_shows_a_renewed_certificate() {
    let rig = Rig::start().await;
    let (folder, pki) = (tempfile::tempdir().unwrap(), Pki::generate().unwrap());
    let first = issue(&pki, folder.path());
    let (cert, key) = paths(folder.path());
    let tls = Tls::files(cert, key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Some(tls), rig.state.clone(), std::future::pending()));
    let mut open = connect(addr, &pki, b"http/1.1").await.unwrap();
    assert_eq!(shown(&open), first);

    let second = issue(&pki, folder.path());
    let began = Instant::now();
    while shown(&connect(addr, &pki, b"http/1.1").await.unwrap()) != second {
        assert!(began.elapsed() < PATIENCE, "the earlier one is shown");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // An open connection continues with the earlier certificate.
    open.write_all(GET).await.unwrap();
    let mut answer = String::new();
    let read = open.read_to_string(&mut answer);
    tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}
