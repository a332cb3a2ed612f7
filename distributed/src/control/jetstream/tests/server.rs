//! Debian's `nats-server`: one, or a cluster of three.

use super::super::client::Client;
use super::super::{Stream, Trouble};
use crate::control::servers::Server;

/// Not the default ports, which a server on this machine may use.
const CLIENTS: u16 = 24_222;
const ROUTES: u16 = 26_222;

/// Servers that a test starts and kills.
pub(super) struct Nats(pub(super) Vec<Server>);

impl Nats {
    /// # Errors
    /// The reason why they cannot be started.
    pub(super) fn start(servers: usize) -> Result<Self, String> {
        let found =
            (0..servers).map(|_| Server::new("nats-server")).collect::<Result<Vec<_>, _>>()?;
        let routes: Vec<_> =
            found.iter().map(|server| format!("nats://{}:{ROUTES}", server.host)).collect();
        let mut nats = Self(found);
        for (at, server) in nats.0.iter_mut().enumerate() {
            let mut config = format!(
                "listen: \"{}:{CLIENTS}\"\nserver_name: n{at}\njetstream {{ store_dir: {:?} }}\n",
                server.host,
                server.data(),
            );
            if servers > 1 {
                config += &format!(
                    "cluster {{ name: c, listen: \"{}:{ROUTES}\", routes: [{}] }}\n",
                    server.host,
                    routes.join(", ")
                );
            }
            let path = server.beside("config");
            std::fs::write(&path, config).expect("ours");
            server.set_args(["-c", &path.display().to_string()]);
            server.begin();
        }
        (0..servers).for_each(|at| nats.wait(at));
        Ok(nats)
    }

    pub(super) fn run(&mut self, at: usize) {
        self.0[at].begin();
        self.wait(at);
    }

    fn wait(&mut self, at: usize) {
        let stream = Stream::new(vec![self.address(at)].into(), "none");
        self.0[at].wait(|| {
            let info = Client::connect(&stream).and_then(|client| client.info());
            matches!(info, Ok(_) | Err(Trouble::Absent))
        });
    }

    fn address(&self, at: usize) -> String {
        format!("{}:{CLIENTS}", self.0[at].host)
    }

    /// The addresses of all servers.
    pub(super) fn addresses(&self) -> Vec<String> {
        (0..self.0.len()).map(|at| self.address(at)).collect()
    }
}
