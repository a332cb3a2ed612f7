//! Facts in members' certificates. Roles and names are DNS names in the certificates' SAN.

use crate::net::identity::role::Role;
use crate::worker_info::WorkerId;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use std::time::Duration;
use x509_parser::extensions::GeneralName;

/// A certificate is valid this long before it was made, for clocks that are behind.
pub(crate) const SKEW: Duration = Duration::from_secs(300);

/// The SAN of one member's certificate.
pub(crate) fn member_san(role: Role, name: &WorkerId) -> String {
    format!("{name}.{}", role.san())
}

/// Whether a certificate states the name of this worker.
pub(crate) fn names_worker(cert: &CertificateDer<'_>, name: &WorkerId) -> bool {
    states(cert, member_san(Role::Worker, name)).is_ok()
}

/// Whether a certificate gives its holder a role.
pub(crate) fn has_role(cert: &CertificateDer<'_>, role: Role) -> bool {
    states(cert, role.san().to_owned()).is_ok()
}

/// The member that a certificate names as its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) role: Role,
    pub(crate) name: WorkerId,
    /// When the certificate was made, in seconds since 1970.
    pub(crate) issued_s: u64,
    /// When it ceases to be valid.
    pub(crate) until_s: u64,
}

impl Member {
    /// The member that a certificate of this cluster names.
    pub(crate) fn of(cert: &CertificateDer<'_>) -> Option<Self> {
        let (_, cert) = x509_parser::parse_x509_certificate(cert).ok()?;
        let names = cert.subject_alternative_name().ok()??;
        let validity = cert.validity();
        let since = u64::try_from(validity.not_before.timestamp()).unwrap_or(0);
        let issued_s = since.saturating_add(SKEW.as_secs());
        let until_s = u64::try_from(validity.not_after.timestamp()).unwrap_or(0);
        let member = |role: Role, name: &GeneralName<'_>| {
            let GeneralName::DNSName(name) = name else { return None };
            let name = name.strip_suffix(role.san())?.strip_suffix('.')?.parse().ok()?;
            Some(Self { role, name, issued_s, until_s })
        };
        let names = &names.value.general_names;
        Role::ALL.iter().find_map(|role| names.iter().find_map(|name| member(*role, name)))
    }
}

/// The certificate that the peer showed in the handshake, with the chain that came along.
pub(crate) fn shown_by(connection: &quinn::Connection) -> Vec<CertificateDer<'static>> {
    let certificates = connection.peer_identity();
    certificates.and_then(|certs| certs.downcast().ok()).map_or_else(Vec::new, |certs| *certs)
}

fn states(cert: &CertificateDer<'_>, name: String) -> Result<(), rustls::Error> {
    let cert = ParsedCertificate::try_from(cert)?;
    let name = ServerName::try_from(name)
        .map_err(|e| rustls::Error::General(format!("not a server name: {e}")))?;
    verify_server_name(&cert, &name)
}
