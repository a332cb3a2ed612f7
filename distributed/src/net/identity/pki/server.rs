//! Certificates of the authority for servers that programs outside of the cluster talk to.

use super::{Pki, SKEW, params, pki_error};
use crate::error::Result;
use rcgen::{ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A server's certificate, issued by a cluster's authority.
pub struct ServerIdentity {
    /// The server's certificate and the authority's, PEM.
    pub chain_pem: String,
    /// The key, PEM.
    pub key_pem: String,
}

impl Pki {
    /// Issues the certificate of a server that is reached by these names and addresses, valid from
    /// now for `life`. It is good for no connection within the cluster.
    ///
    /// # Errors
    /// [`Error::Pki`](crate::Error::Pki) when a name is not valid.
    pub fn issue_server(&self, names: &[String], life: Duration) -> Result<ServerIdentity> {
        let mut params = params(names, "cluster front end")?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(pki_error)?;
        let epoch = date_time_ymd(1970, 1, 1);
        params.not_before = epoch + since.saturating_sub(SKEW);
        params.not_after = epoch + since.saturating_add(life);
        let key = KeyPair::generate().map_err(pki_error)?;
        let cert = params.signed_by(&key, &self.authority.issuer).map_err(pki_error)?;
        let chain_pem = format!("{}{}", cert.pem(), self.ca_pem());
        Ok(ServerIdentity { chain_pem, key_pem: key.serialize_pem() })
    }
}

impl std::fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerIdentity")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::net::identity::role::Role;
    use crate::net::identity::tls::{Members, chain, provider, roots};
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::server::danger::ClientCertVerifier;

    #[test]
    fn a_servers_certificate_is_good_for_its_names_and_for_no_member() {
        let pki = Pki::generate().expect("random numbers");
        let names = ["gpu-box".to_owned(), "10.1.2.3".to_owned()];
        let identity = pki.issue_server(&names, Duration::from_secs(60)).expect("good names");
        let (certs, _) = chain(&identity.chain_pem, &identity.key_pem).expect("its own");
        let roots = roots(pki.ca_pem()).expect("its own");
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider());
        let verifier = verifier.build().expect("an authority");
        let good = |name: &str, now| {
            let name = ServerName::try_from(name.to_owned()).expect("a name");
            verifier.verify_server_cert(&certs[0], &[], &name, &[], now).is_ok()
        };
        let now = UnixTime::now();
        assert!(good("gpu-box", now) && good("10.1.2.3", now));
        assert!(!good("localhost", now) && !good("10.1.2.4", now));
        assert!(!good(crate::net::identity::role::COORDINATOR_SAN, now));
        let later = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + 61));
        assert!(!good("gpu-box", later));
        let members = Members::new(pki.ca_pem(), &Role::ALL, true, Duration::ZERO);
        let members = members.expect("an authority");
        assert!(members.verify_client_cert(&certs[0], &[], now).is_err());
        let wrong = pki.issue_server(&["ä".to_owned()], Duration::from_secs(60));
        assert!(matches!(wrong, Err(Error::Pki { .. })));
    }
}
