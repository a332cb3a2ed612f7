//! etcd with users, and with certificates of a test authority.

use super::server::arguments;
use super::{depose, laws};
use crate::control::authority::Authority;
use crate::control::endpoints::Endpoints;
use crate::control::etcd::client::{Client, below, put};
use crate::control::etcd::{EtcdAuthority, Keys, look};
use crate::control::issuer::Issuers;
use crate::control::pair::Pair;
use crate::control::servers::{Server, find};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Not the default ports, which a member on this machine may use.
const CLIENTS: u16 = 23_791;
const PEERS: u16 = 23_801;
/// A user with a password, as in addresses.
pub(in crate::control) const USER: &str = "secret:pass%40w0rd";

/// One member.
pub(in crate::control) struct Secured(pub(in crate::control) Server);

impl Secured {
    /// A member with TLS, which requires client certificates if `certified`. It has the users
    /// [`USER`], who may change the keys below `radeon-cluster/`, and `other`, who may not.
    pub(in crate::control) fn start(issuers: &Issuers, certified: bool) -> Result<Self, String> {
        find("etcdctl")?;
        let mut member = Self::begin(issuers, "server", certified)?;
        let ready = ["endpoint", "health"];
        let server = &mut member.0;
        let ctl = control(server);
        server.wait(|| ctl(&ready));
        for args in [
            &["role", "add", "root"][..],
            &["user", "add", "root:r00t"],
            &["user", "grant-role", "root", "root"],
            &["role", "add", "coordinator"],
            &[
                "role",
                "grant-permission",
                "coordinator",
                "readwrite",
                "--prefix=true",
                "radeon-cluster/",
            ],
            &["user", "add", "secret:pass@w0rd"],
            &["user", "grant-role", "secret", "coordinator"],
            &["user", "add", "other:w0rd"],
            &["auth", "enable"],
        ] {
            assert!(ctl(args), "{args:?}");
        }
        Ok(member)
    }

    /// A member with the certificate `certificate`, or without one.
    fn begin(issuers: &Issuers, certificate: &str, certified: bool) -> Result<Self, String> {
        let mut server = Server::new("etcd")?;
        let host = server.host.to_string();
        issuers.issue(&host, "secret", &|name, text| server.put(name, text));
        let path = |name: &str| server.beside(name).display().to_string();
        let (clients, peers) =
            (format!("https://{host}:{CLIENTS}"), format!("http://{host}:{PEERS}"));
        let (data, ca) = (server.data(), path("ca.pem"));
        let all = format!("m0={peers}");
        let mut told = arguments(["m0", &data, &clients, &peers, &all]);
        let encrypted = [
            "--cert-file",
            &path(&format!("{certificate}.pem")),
            "--key-file",
            &path(&format!("{certificate}.key")),
            "--trusted-ca-file",
            // With a trusted authority etcd requires client certificates, whatever the other flags
            // say.
            if certified { &ca } else { "" },
            &format!("--client-cert-auth={certified}"),
            "--auth-token-ttl=1",
        ];
        told.extend(encrypted.map(str::to_owned));
        server.set_args(told);
        server.begin();
        Ok(Self(server))
    }

    pub(in crate::control) fn run(&mut self) {
        self.0.begin();
        let client =
            Client::new(&keys(self, USER, "any", &self.certified("client"))).expect("well formed");
        self.0.wait(|| client.look([below(b"radeon-cluster/any/".to_vec())]).is_ok());
    }

    /// The etcd part of an address.
    pub(in crate::control) fn address(&self, user: &str) -> String {
        let at = if user.is_empty() { "" } else { "@" };
        format!("etcd://{user}{at}{}:{CLIENTS}", self.0.host)
    }

    /// The parameters of an address for the right authority.
    pub(in crate::control) fn ca(&self) -> String {
        format!("?sslmode=verify-full{}", self.file("sslrootcert", "ca.pem"))
    }

    fn file(&self, parameter: &str, name: &str) -> String {
        format!("&{parameter}={}", self.0.beside(name).display())
    }

    /// The parameters of an address for the right authority and the certificate `name`.
    pub(in crate::control) fn certified(&self, name: &str) -> String {
        let certificate = self.file("sslcert", &format!("{name}.pem"));
        format!("{}{certificate}{}", self.ca(), self.file("sslkey", &format!("{name}.key")))
    }

    /// Deposes the leader of cluster `name`.
    pub(in crate::control) fn depose(&self, name: &str, tail: &str) {
        let keys = keys(self, USER, name, tail);
        depose(&Client::new(&keys).expect("well formed"), &keys);
    }
}

/// Runs `etcdctl` as the administrator, before or after logins are required.
fn control(server: &Server) -> impl Fn(&[&str]) -> bool + use<> {
    let endpoint = format!("https://{}:{CLIENTS}", server.host);
    let path = |name: &str| server.beside(name).display().to_string();
    let files = [path("ca.pem"), path("client.pem"), path("client.key")];
    move |args| {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &endpoint]);
        for (name, file) in ["--cacert", "--cert", "--key"].into_iter().zip(&files) {
            command.arg(name).arg(file);
        }
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

fn parsed(address: &str) -> Result<Endpoints, String> {
    Pair::new(address, "tls").map(|pair| pair.etcd)
}

fn keys(member: &Secured, user: &str, name: &str, tail: &str) -> Keys {
    let address = format!("{},nats://127.0.0.1:1{tail}", member.address(user));
    Keys::new(parsed(&address).expect(&address), name)
}

fn refused(keys: Keys) -> String {
    let error = EtcdAuthority::open(keys, "one").map(drop).expect_err("refused");
    let text = format!("{error} {error:?}");
    assert!(!text.contains("w0rd") && !text.contains("secret:"), "{text}");
    error.to_string()
}

/// Starts a member, or skips the test with the reason.
macro_rules! secured {
    ($issuers:expr, $certified:expr) => {
        match Secured::start($issuers, $certified) {
            Ok(member) => member,
            Err(reason) => return println!("skipped: etcd: {reason}"),
        }
    };
}

#[test]
fn the_laws_are_obeyed_by_a_user_over_encrypted_connections() {
    let issuers = Issuers::new();
    let mut member = secured!(&issuers, false);
    let tail = member.ca();
    let open = |member: &Secured, name: &str| {
        EtcdAuthority::open(keys(member, USER, name, &tail), "one").expect("reachable")
    };
    laws::check(&|| Box::new(open(&member, "authority")));
    laws::check_members(&|| Box::new(open(&member, "members")));
    let seen = look(&keys(&member, USER, "authority", &tail)).expect("readable");
    assert!(!format!("{seen:?}").contains("w0rd"), "{seen:?}");

    // An unused token expires after a second.
    let keys = keys(&member, USER, "renewed", &tail);
    let first = open(&member, "renewed");
    let epoch = first.lead(1).expect("free");
    let client = Client::new(&keys).expect("well formed");
    let ask = || client.look([below(keys.key(""))]).expect("readable");
    ask();
    let token = client.token().expect("it was given one");
    std::thread::sleep(Duration::from_secs(4));
    ask();
    let renewed = client.token().expect("it was given one");
    assert_ne!(token, renewed, "it has expired");
    member.0.kill();
    member.run();
    ask();
    assert!(first.holds(epoch));
    first.write(epoch, "a", b"after").expect("it leads still");
    assert_eq!(first.read("a").expect("readable").as_deref(), Some(&b"after"[..]));
    assert!(!format!("{client:?} {first:?}").contains("w0rd"));
}

#[test]
fn a_certificate_of_its_own_is_shown_where_etcd_wants_one() {
    let issuers = Issuers::new();
    let member = secured!(&issuers, true);
    let (client, stranger) = (member.certified("client"), member.certified("stranger"));
    let authority = EtcdAuthority::open(keys(&member, USER, "certified", &client), "one");
    let authority = authority.expect("its authority is known");
    let epoch = authority.lead(1).expect("free");
    authority.write(epoch, "a", b"x").expect("it leads");
    // Without a user, etcd takes the name in the certificate as the user.
    let named = EtcdAuthority::open(keys(&member, "", "named", &client), "one").expect("by name");
    assert!(named.lead(1).is_ok());
    for tail in [member.ca(), stranger] {
        let error = refused(keys(&member, USER, "refused", &tail));
        assert!(error.contains("a certificate, named with sslcert"), "{error}");
    }
}

#[test]
fn what_is_not_proved_is_refused_and_nothing_is_written() {
    let issuers = Issuers::new();
    let member = secured!(&issuers, false);
    let ca = member.ca();
    let other = ca.replace("ca.pem", "other.pem");
    let unknown = "?sslmode=verify-full".to_owned();
    for (user, tail, parts) in [
        (USER, &other, ["UnknownIssuer", "name the authority of its certificate"]),
        (USER, &unknown, ["sslrootcert", ""]),
        ("secret:wr0ng", &ca, ["authentication failed", "expected etcd://USER:PASSWORD@HOST"]),
        ("nobody:w0rd", &ca, ["authentication failed", "expected etcd://USER:PASSWORD@HOST"]),
        ("", &ca, ["user name is empty", "it wants a user"]),
        ("other:w0rd", &ca, ["permission denied", "grant a role"]),
    ] {
        if tail == &unknown && parsed(&format!("etcd://[::1],nats://[::1]{tail}")).is_err() {
            continue; // This system has no trusted authorities.
        }
        let error = refused(keys(&member, user, "refused", tail));
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    // The member expects TLS, but the client connects in plain text.
    let error = refused(keys(&member, "", "refused", ""));
    assert!(error.contains("?sslmode=verify-full"), "{error}");
    let client = Client::new(&keys(&member, USER, "refused", &ca)).expect("well formed");
    let [found] = client.look([below(b"radeon-cluster/refused/".to_vec())]).expect("allowed");
    assert!(found.is_empty(), "{found:?}");

    // The certificate has another name. Without users no password is required.
    let mut renamed = Secured::begin(&issuers, "elsewhere", false).expect("there");
    let error = loop {
        let error = refused(keys(&renamed, USER, "refused", &renamed.ca()));
        if !error.contains("refused (os error") {
            break error;
        }
    };
    assert!(error.contains("not valid for name") && error.contains("use a name"), "{error}");
    renamed.0.kill();
    let mut open = Secured::begin(&issuers, "server", false).expect("there");
    let client = Client::new(&keys(&open, "", "any", &open.ca())).expect("well formed");
    let write = || client.transact(vec![], vec![put(b"a".to_vec(), b"", 0)], vec![]);
    open.0.wait(|| write().is_ok());
    let error = refused(keys(&open, USER, "refused", &open.ca()));
    assert!(error.contains("authentication is not enabled: it asks nobody"), "{error}");
}

#[test]
fn a_member_without_encryption_is_not_told_the_password() {
    let etcd = match super::server::Etcd::start(1) {
        Ok(etcd) => etcd,
        Err(reason) => return println!("skipped: etcd: {reason}"),
    };
    Issuers::new().issue("any", "secret", &|name, text| etcd.0[0].put(name, text));
    let ca = etcd.0[0].beside("ca.pem").display().to_string();
    let host = &etcd.endpoints()[0];
    let tail = format!("?sslmode=verify-full&sslrootcert={ca}");
    let keys = Keys::new(
        parsed(&format!("etcd://{USER}@{host},nats://[::1]{tail}")).expect("good"),
        "refused",
    );
    let error = refused(keys);
    // The connection may end before its answer is read.
    let expected = ["have it encrypt", "or not encrypt"];
    assert!(expected.iter().any(|part| error.contains(part)), "{error}");
}
