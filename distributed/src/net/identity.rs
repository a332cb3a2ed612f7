//! Who is who: the authority and its certificates, roles, join tokens, enrolment and renewal, and the
//! members that are connected.

pub(crate) mod certificate;
pub(crate) mod enrol;
pub(crate) mod members;
pub(crate) mod pki;
pub(crate) mod renew;
pub(crate) mod role;
pub(crate) mod tls;
pub(crate) mod token;
