//! Encrypted connections to a server with certificates of a test authority.

use super::server::Server;
use super::{Database, LEASE, PostgresAuthority, sql};
use crate::control::authority::Authority;
use crate::control::issuer::Issuers;
use crate::{Control, Error};
const PASSWORD: &str = "pass%40w0rd";

/// A server that accepts encrypted connections with a password, and one account by its certificate.
struct Secured {
    server: Server,
    port: u16,
}

impl Secured {
    fn start() -> Result<Self, String> {
        let mut server = Server::start()?;
        Issuers::new().issue("localhost", "byname", &|name, text| server.put(name, text));
        server.put(
            "data/pg_hba.conf",
            "local all postgres trust\nhostssl all byname all cert\n\
             hostssl all all all scram-sha-256\n",
        );
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let port = port.expect("a free port").port();
        let path = |name: &str| server.beside(name).display().to_string();
        let settings = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", path("server.pem")),
            format!("ssl_key_file={}", path("server.key")),
            format!("ssl_ca_file={}", path("ca.pem")),
        ];
        server.kill();
        server.configure(port, settings);
        server.run();
        sql(
            &server,
            "CREATE ROLE secret LOGIN SUPERUSER PASSWORD 'pass@w0rd';
             CREATE ROLE byname LOGIN SUPERUSER",
        );
        Ok(Self { server, port })
    }

    fn address(&self, user: &str, host: &str, tail: &str) -> String {
        format!("postgres://{user}@{host}:{}/postgres?sslmode=verify-full{tail}", self.port)
    }

    fn file(&self, parameter: &str, name: &str) -> String {
        format!("&{parameter}={}", self.server.beside(name).display())
    }
}

fn open(address: &str) -> Result<PostgresAuthority, String> {
    let database = Database::new(address, "tls", LEASE)?;
    let shown = format!("{database:?} {:?}", Control::new(address, "tls"));
    assert!(!shown.contains("w0rd"), "{shown}");
    PostgresAuthority::open(database, "one").map_err(|error: Error| {
        let text = format!("{error} {error:?}");
        assert!(!text.contains("w0rd"), "{text}");
        error.to_string()
    })
}

#[test]
fn only_a_server_that_proves_its_name_is_spoken_to() {
    let secured = match Secured::start() {
        Ok(secured) => secured,
        Err(reason) => return println!("skipped: postgresql: {reason}"),
    };
    let user = format!("secret:{PASSWORD}");
    let ca = secured.file("sslrootcert", "ca.pem");
    let bound = format!("{ca}&channel_binding=require");
    for tail in [&ca, &bound] {
        let authority = open(&secured.address(&user, "localhost", tail)).expect("all is right");
        let encrypted = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
             WHERE usename = 'secret' AND NOT ssl";
        let epoch = authority.lead(1).expect("free");
        authority.write(epoch, "a.json", b"x").expect("it leads");
        let mut client = postgres::Client::connect(&secured.server.address(), postgres::NoTls)
            .expect("its socket");
        assert!(client.query(encrypted, &[]).expect("allowed").is_empty());
    }
    let wrong = secured.file("sslrootcert", "other.pem");
    let client = |name: &str| {
        let certificate = secured.file("sslcert", &format!("{name}.pem"));
        format!("{ca}{certificate}{}", secured.file("sslkey", &format!("{name}.key")))
    };
    open(&secured.address("byname", "localhost", &client("client"))).expect("by its certificate");
    for (user, host, tail, parts) in [
        (&*user, "localhost", wrong, ["UnknownIssuer", "name the authority of its certificate"]),
        (&user, "127.0.0.1", ca.clone(), ["not valid for name", "use a name that its certificate"]),
        ("secret:s3w0rd", "localhost", ca.clone(), ["password authentication failed", "28P01"]),
        ("byname", "localhost", ca.clone(), ["client certificate", "sslcert and sslkey"]),
        ("byname", "localhost", client("stranger"), ["", "does not know who signed"]),
    ] {
        let error = open(&secured.address(user, host, &tail)).expect_err(parts[1]);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let plain = secured.address(&user, "localhost", "").replace("verify-full", "disable");
    let error = open(&plain).expect_err("hostssl only");
    assert!(error.contains("no pg_hba.conf entry"), "{error}");
    // This system does not trust the authority.
    let error = open(&secured.address(&user, "localhost", "")).expect_err("unknown");
    assert!(error.contains("sslrootcert"), "{error}");
}

#[test]
fn a_server_without_encryption_is_not_told_the_password() {
    let mut server = match Server::start() {
        Ok(server) => server,
        Err(reason) => return println!("skipped: postgresql: {reason}"),
    };
    Issuers::new().issue("localhost", "byname", &|name, text| server.put(name, text));
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let port = port.expect("a free port").port();
    server.kill();
    let settings = ["listen_addresses=127.0.0.1".to_owned(), format!("port={port}")];
    server.configure(port, settings);
    server.run();
    let secured = Secured { server, port };
    let ca = secured.file("sslrootcert", "ca.pem");
    let error = open(&secured.address(&format!("postgres:{PASSWORD}"), "localhost", &ca));
    let error = error.expect_err("not encrypted");
    assert!(error.contains("does not support TLS: have it encrypt (ssl = on"), "{error}");
}
