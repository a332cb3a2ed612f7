//! Authorities that are made for a test, and what they certify.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// An authority that certifies what is to be certified.
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

    /// A certificate for a name or an address, and its key.
    fn certify(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("random numbers");
        let made = params.signed_by(&key, &self.0).expect("signed");
        (made.pem(), key.serialize_pem())
    }
}

/// The one that a server and its clients trust, and another.
pub(super) struct Issuers(Issuer, Issuer);

impl Issuers {
    pub(super) fn new() -> Self {
        Self(Issuer::new("authority"), Issuer::new("another"))
    }

    /// Writes what a server of this name, and a client of that one, have: `ca.pem` and `other.pem` of
    /// the two; `server`, `elsewhere`, which is of another name, `client`, and `stranger`, which is not
    /// certified by the first, each with `.pem` and `.key`.
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
