//! The error for the end of a connection to a coordinator.

use super::{Close, alert, is_untrusted};
use crate::error::Error;
use crate::net::identity::enrol::JoinRefusal;
use quinn::ConnectionError;
use std::net::SocketAddr;
use std::time::SystemTime;

/// Whether the other side found that the certificate is not valid yet, or expired longer ago than
/// that side accepts.
fn is_out_of_time(error: &ConnectionError) -> bool {
    // RFC 8446, section 6: alert 45.
    alert(error) == Some(45)
}

/// The error for the end of a connection to a coordinator, where trying again is no use. The
/// certificate that was shown is valid until `until`.
pub(crate) fn final_error(
    addr: SocketAddr,
    error: &ConnectionError,
    until: SystemTime,
) -> Option<Error> {
    let refused = |refusal| Some(Error::JoinRefused { addr, refusal });
    if is_out_of_time(error) {
        // The coordinator's clock decides; where this clock disagrees, one of the two is wrong.
        return refused(match SystemTime::now() < until {
            true => JoinRefusal::ClocksDiffer,
            false => JoinRefusal::CertificateLapsed,
        });
    }
    let reason = match Close::given_by_peer(error) {
        Some(Close::Revoked) => return refused(JoinRefusal::CertificateRevoked),
        Some(close) if close.is_final() => close.reason().to_owned(),
        _ if is_untrusted(error) => error.to_string(),
        _ => return None,
    };
    Some(Error::Refused { addr, reason })
}
