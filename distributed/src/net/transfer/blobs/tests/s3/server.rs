//! A server of S3 for a test, which keeps everything in its memory.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) struct Server {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
    tls: bool,
}

impl Server {
    /// Starts a server that has a bucket `tensors`.
    ///
    /// # Errors
    /// Why none can be started.
    pub(crate) async fn start(tls: bool) -> Result<Self, String> {
        tokio::task::spawn_blocking(move || Self::start_now(tls)).await.expect("no panic")
    }

    fn start_now(tls: bool) -> Result<Self, String> {
        let program = program().ok_or("no moto_server in the path or in target/venv-s3")?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let free =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
        let port = free.local_addr().map_err(|error| error.to_string())?.port();
        drop(free);
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).current_dir(folder.path());
        if tls {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
            let made = made.expect("random numbers");
            std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).expect("room");
            let key = made.signing_key.serialize_pem();
            std::fs::write(folder.path().join("key.pem"), key).expect("room");
            command.args(["-s", "-c", "cert.pem", "-k", "key.pem"]);
        }
        let child = command.spawn().map_err(|error| error.to_string())?;
        let server = Self { child, port, folder, tls };
        server.make_bucket();
        Ok(server)
    }

    /// Makes the bucket, once the server answers.
    fn make_bucket(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            assert!(Instant::now() < end, "it does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        let request = "PUT /tensors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\
            Authorization: AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, \
            SignedHeaders=host, Signature=0\r\nConnection: close\r\n\r\n";
        let answer = match self.tls {
            true => self.ask_by_tls(request),
            false => {
                let stream =
                    TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it is up");
                ask(stream, request)
            }
        };
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    fn ask_by_tls(&self, request: &str) -> String {
        use rustls::pki_types::pem::PemObject;
        let mut roots = rustls::RootCertStore::empty();
        let certificate = rustls::pki_types::CertificateDer::from_pem_file(self.authority());
        roots.add(certificate.expect("just made")).expect("a certificate");
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        let tls = rustls::ClientConnection::new(config.into(), name).expect("a connection");
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it is up");
        ask(rustls::StreamOwned::new(tls, stream), request)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn endpoint(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://localhost:{}", self.port)
    }

    /// The certificate that it shows.
    pub(crate) fn authority(&self) -> String {
        self.folder.path().join("cert.pem").display().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut answer = Vec::new();
    // The server may end the connection without a farewell.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Where `cargo xtask test` installs it, or anywhere else.
fn program() -> Option<PathBuf> {
    let installed = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/venv-s3/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(installed.into()).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join("moto_server")).find(|program| program.exists())
}
