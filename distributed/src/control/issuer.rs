//! Certificate authorities for tests, and the certificates that they issue.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// A certificate authority.
struct Issuer(CertifiedIssuer<'static, KeyPair>);

impl Issuer {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("random numbers");
        Self(CertifiedIssuer::self_signed(params, key).expect("signed"))
    }

    /// Issues a certificate for a name or an address; returns the certificate and its key.
    fn certify(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("random numbers");
        let made = params.signed_by(&key, &self.0).expect("signed");
        (made.pem(), key.serialize_pem())
    }
}

/// The authority that a server and its clients trust, and an untrusted one.
pub(super) struct Issuers(Issuer, Issuer);

impl Issuers {
    pub(super) fn new() -> Self {
        Self(Issuer::new("authority"), Issuer::new("another"))
    }

    /// Writes the PEM files of a server `host` and of a client `client`: `ca.pem` and `other.pem`
    /// of the two authorities; then `server`, `elsewhere` (for another host), `client`, and
    /// `stranger` (not certified by the first authority), each with `.pem` and `.key`.
    pub(super) fn issue(&self, host: &str, client: &str, put: &dyn Fn(&str, &str)) {
        let Self(ours, others) = self;
        put("ca.pem", &ours.0.pem());
        put("other.pem", &others.0.pem());
        let (server, user) =
            (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
        for (file, issuer, name, usage) in [
            ("server", ours, host, server.clone()),
            ("elsewhere", ours, "elsewhere.example", server),
            ("client", ours, client, user.clone()),
            ("stranger", others, client, user),
        ] {
            let (certificate, key) = issuer.certify(name, usage);
            put(&format!("{file}.pem"), &certificate);
            put(&format!("{file}.key"), &key);
        }
    }
}
