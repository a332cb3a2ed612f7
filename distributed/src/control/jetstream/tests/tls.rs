//! NATS with users, and with certificates of a test authority; and coordinators on two machines
//! whose engines both use them.

use super::conformance::{self, open};
use super::{JetStreamLog, Stream};
use crate::control::etcd::tests::tls as etcd;
use crate::control::issuer::Issuers;
use crate::control::jetstream::Trouble;
use crate::control::jetstream::client::Client;
use crate::control::machines::{self, Engine, NAME};
use crate::control::pair::Pair;
use crate::control::servers::Server;
use crate::control::shared::authority;
use crate::error::JournalError;
use crate::{Control, Error};
use std::net::TcpStream;

/// Not the default port, which a server on this machine may use.
const CLIENTS: u16 = 24_223;
/// A user with a password, as in addresses.
const USER: &str = "secret:pass%40w0rd";
const USERS: &str = "authorization { users: [{ user: secret, password: \"pass@w0rd\" }] }";

/// One server.
struct Secured(Server);

impl Secured {
    /// A server with the certificate `certificate`, or without one, and further configuration.
    fn start(issuers: &Issuers, certificate: &str, more: &str) -> Result<Self, String> {
        let mut server = Server::new("nats-server")?;
        let host = server.host.to_string();
        issuers.issue(&host, "secret", &|name, text| server.put(name, text));
        let path = |name: &str| server.beside(name).display().to_string();
        let encrypted = format!(
            "cert_file: {:?}, key_file: {:?}, ca_file: {:?}",
            path(&format!("{certificate}.pem")),
            path(&format!("{certificate}.key")),
            path("ca.pem")
        );
        let more = more.replace("FILES", &encrypted);
        let data = server.data();
        server.put(
            "config",
            &format!("listen: \"{host}:{CLIENTS}\"\njetstream {{ store_dir: {data:?} }}\n{more}\n"),
        );
        server.set_args(["-c", &path("config")]);
        let mut secured = Self(server);
        secured.run();
        Ok(secured)
    }

    fn run(&mut self) {
        self.0.begin();
        let host = self.0.host;
        self.0.wait(|| TcpStream::connect((host, CLIENTS)).is_ok());
    }

    fn address(&self, user: &str) -> String {
        let at = if user.is_empty() { "" } else { "@" };
        format!("nats://{user}{at}{}:{CLIENTS}", self.0.host)
    }

    /// The parameters of an address for the right authority, and `more`.
    fn ca(&self, more: &[(&str, &str)]) -> String {
        let all = [("sslrootcert", "ca.pem")].iter().chain(more);
        let all = all.map(|(name, file)| format!("&{name}={}", self.0.beside(file).display()));
        format!("?sslmode=verify-full{}", all.collect::<String>())
    }

    fn stream(&self, user: &str, name: &str, tail: &str) -> Stream {
        let address = format!("etcd://127.0.0.1:1,{}{tail}", self.address(user));
        Stream::new(Pair::new(&address, "tls").expect(&address).nats, name)
    }

    fn log(&self, user: &str, name: &str, tail: &str) -> JetStreamLog {
        let remembered = self.0.beside(&format!("{name}.last"));
        JetStreamLog::new(self.stream(user, name, tail), remembered)
    }
}

fn refused(log: &JetStreamLog) -> String {
    let error = open(log, 1).err().expect("refused");
    assert!(matches!(error, JournalError::Io { .. }), "{error}");
    let text = format!("{error} {error:?} {log:?}");
    assert!(!text.contains("w0rd") && !text.contains("secret:"), "{text}");
    error.to_string()
}

/// Starts a server, or skips the test with the reason.
macro_rules! secured {
    ($issuers:expr, $certificate:expr, $more:expr) => {
        match Secured::start($issuers, $certificate, $more) {
            Ok(server) => server,
            Err(reason) => return println!("skipped: nats-server: {reason}"),
        }
    };
}

#[test]
fn the_laws_are_obeyed_by_a_user_over_encrypted_connections() {
    let issuers = Issuers::new();
    let server = secured!(&issuers, "server", &format!("tls {{ FILES }}\n{USERS}"));
    let tail = server.ca(&[]);
    conformance::check_shared(&|at| Box::new(server.log(USER, &format!("log_{at}"), &tail)));
}

#[test]
fn what_is_not_proved_is_refused_and_nothing_is_written() {
    let issuers = Issuers::new();
    let server = secured!(&issuers, "server", &format!("tls {{ FILES }}\n{USERS}"));
    let (ca, other) = (server.ca(&[]), server.ca(&[]).replace("ca.pem", "other.pem"));
    for (user, tail, parts) in [
        (USER, &other, ["UnknownIssuer", "name the authority of its certificate"]),
        ("secret:wr0ng", &ca, ["authorization violation", "expected nats://USER:PASSWORD@HOST"]),
        ("", &ca, ["authorization violation", "it wants a user"]),
        // The server expects TLS, but the client connects in plain text.
        (USER, &String::new(), ["", "?sslmode=verify-full"]),
    ] {
        let error = refused(&server.log(user, "refused", tail));
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let client = Client::connect(&server.stream(USER, "refused", &ca)).expect("reachable");
    assert!(matches!(client.info(), Err(Trouble::Absent)), "nothing was made");

    let renamed = secured!(&issuers, "elsewhere", &format!("tls {{ FILES }}\n{USERS}"));
    let error = refused(&renamed.log(USER, "refused", &renamed.ca(&[])));
    assert!(error.contains("not valid for name") && error.contains("use a name"), "{error}");
    let plain = secured!(&issuers, "server", USERS);
    let error = refused(&plain.log(USER, "refused", &plain.ca(&[])));
    assert!(error.contains("have it encrypt"), "{error}");
}

#[test]
fn a_certificate_of_its_own_is_shown_where_nats_wants_one() {
    let issuers = Issuers::new();
    let server = secured!(&issuers, "server", "tls { FILES, verify: true }");
    let of = |name: &str| {
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        server.ca(&[("sslcert", &certificate), ("sslkey", &key)])
    };
    assert!(open(&server.log("", "certified", &of("client")), 1).expect("known").found.is_empty());
    for (tail, part) in [(server.ca(&[]), "want"), (of("stranger"), "who signed")] {
        let error = refused(&server.log("", "refused", &tail));
        assert!(error.contains(part) && error.contains("sslcert"), "{error}");
    }
}

/// A server of each engine. The files of NATS lie beside those of etcd.
struct Both(etcd::Secured, Secured);

impl Engine for Both {
    fn address(&self) -> String {
        let tail = self.0.certified("client");
        format!("{},{}{tail}", self.0.address(etcd::USER), self.1.address(USER))
    }

    fn depose(&self) {
        self.0.depose(NAME, &self.0.certified("client"));
    }

    fn kill(&mut self) {
        self.0.0.kill();
        self.1.0.kill();
    }

    fn run(&mut self) {
        self.0.run();
        self.1.run();
    }
}

/// Starts the servers, or skips the test with the reason.
async fn engines() -> Option<Both> {
    let start = || {
        let issuers = Issuers::new();
        // The least permissions that are needed.
        let may = format!(
            "permissions: {{ publish: [\"radeon_cluster_{NAME}\", \"$JS.API.>\"], \
             subscribe: [\"_INBOX.>\"] }}"
        );
        let users = USERS.replace("\" }", &format!("\", {may} }}"));
        let config = format!("tls {{ FILES, verify: true }}\n{users}");
        let etcd = etcd::Secured::start(&issuers, true)?;
        Ok::<_, String>(Both(etcd, Secured::start(&issuers, "server", &config)?))
    };
    let started = tokio::task::spawn_blocking(start).await.expect("no panic");
    started.inspect_err(|reason| println!("skipped: etcd: {reason}")).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_goes_on_with_the_tasks() {
    let Some(engines) = engines().await else { return };
    machines::another_machine_goes_on_with_the_tasks(&engines, "etcd 3.").await;
    let address = engines.address();
    tokio::task::block_in_place(|| {
        let view = Control::new(&address, NAME).expect("good").look().expect("readable");
        let shown = format!("{view:?}");
        assert!(
            view.records > 0 && !shown.contains("w0rd") && !shown.contains("secret"),
            "{shown}"
        );
        let wrong = address.replace("nats://secret:pass", "nats://secret:wr0ng");
        let error = Control::new(&wrong, NAME).expect("well formed").look().expect_err("refused");
        assert!(matches!(error, Error::Journal(_)), "{error}");
        // Nothing is written to etcd either.
        let control = Control::new(&wrong, "untouched").expect("well formed");
        let error = authority(Some(&control), &engines.1.0.beside("pki"), "one").err();
        assert!(matches!(error, Some(Error::Journal(_))), "{error:?}");
        let seen = Control::new(&address, "untouched").expect("well formed").look();
        assert!(matches!(seen, Err(Error::Control { .. })), "{seen:?}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_goes_on_while_the_engines_are_away() {
    let Some(mut engines) = engines().await else { return };
    machines::what_runs_goes_on_while_it_is_away(&mut engines).await;
}
