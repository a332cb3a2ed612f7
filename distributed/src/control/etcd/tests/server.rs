//! Debian's etcd: one member, or three.

use super::super::Keys;
use super::super::client::{Client, range};
use crate::control::servers::Server;

/// Not the default ports, which a member on this machine may use.
const CLIENTS: u16 = 23_790;
const PEERS: u16 = 23_800;

/// Members that a test starts and kills.
pub(in crate::control) struct Etcd(pub(in crate::control) Vec<Server>);

impl Etcd {
    /// # Errors
    /// The reason why they cannot be started.
    pub(in crate::control) fn start(members: usize) -> Result<Self, String> {
        let servers = (0..members).map(|_| Server::new("etcd")).collect::<Result<Vec<_>, _>>()?;
        let hosts: Vec<_> = servers.iter().map(|server| server.host).collect();
        let all = hosts.iter().enumerate();
        let all: Vec<_> = all.map(|(at, host)| format!("m{at}=http://{host}:{PEERS}")).collect();
        let all = all.join(",");
        let mut etcd = Self(servers);
        for (at, server) in etcd.0.iter_mut().enumerate() {
            let (data, host) = (server.data(), server.host);
            let (clients, peers) =
                (format!("http://{host}:{CLIENTS}"), format!("http://{host}:{PEERS}"));
            let name = format!("m{at}");
            server.set_args(arguments([&name, &data, &clients, &peers, &all]));
            server.begin();
        }
        (0..members).for_each(|at| etcd.wait(at));
        Ok(etcd)
    }

    pub(in crate::control) fn run(&mut self, at: usize) {
        self.0[at].begin();
        self.wait(at);
    }

    fn wait(&mut self, at: usize) {
        let client =
            Client::new(&Keys::new(vec![self.endpoint(at)].into(), "")).expect("well formed");
        self.0[at].wait(|| client.look([range(b"any".to_vec())]).is_ok());
    }

    fn endpoint(&self, at: usize) -> String {
        format!("{}:{CLIENTS}", self.0[at].host)
    }

    /// The addresses of all members.
    pub(in crate::control) fn endpoints(&self) -> Vec<String> {
        (0..self.0.len()).map(|at| self.endpoint(at)).collect()
    }
}

/// A member's arguments: its name, its folder, its URLs for clients and for other members, and all
/// members.
pub(super) fn arguments([name, data, clients, peers, all]: [&str; 5]) -> Vec<String> {
    let told = [
        ("--name", name),
        ("--data-dir", data),
        ("--listen-client-urls", clients),
        ("--advertise-client-urls", clients),
        ("--listen-peer-urls", peers),
        ("--initial-advertise-peer-urls", peers),
        ("--initial-cluster", all),
    ];
    told.iter().flat_map(|(flag, value)| [(*flag).to_owned(), (*value).to_owned()]).collect()
}
