//! Checks that this machine reaches itself at 127.0.0.1, as a coordinator and its workers must.

use crate::failure::{Failure, Result};
use lgp_hal::{Finding, Status as FindingStatus};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// The command that enables the interface.
const REMEDY: &str = "sudo ip link set lo up";
/// The code of a machine that cannot reach itself.
pub(crate) const NO_LOOPBACK: &str = "no_loopback";
/// How long a packet to this machine itself may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sends a packet to this machine itself.
fn reach() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(socket.local_addr()?)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(&[1])?;
    socket.recv(&mut [0])?;
    Ok(())
}

fn message(error: &io::Error) -> String {
    format!("this machine cannot reach itself at 127.0.0.1: {error}")
}

/// Refuses commands that need the loopback interface where it is down.
///
/// # Errors
/// `no_loopback`.
pub(crate) fn check() -> Result<()> {
    reach().map_err(|error| Failure::new(NO_LOOPBACK, message(&error)).hint(REMEDY))
}

/// The doctor's finding.
pub(crate) fn finding() -> Finding {
    told(reach())
}

fn told(reached: io::Result<()>) -> Finding {
    let finding = |status, message: String| Finding::new("loopback", status, message);
    match reached {
        Ok(()) => finding(FindingStatus::Ok, "this machine reaches itself at 127.0.0.1".to_owned()),
        Err(error) => finding(FindingStatus::Fail, message(&error)).fix(REMEDY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_cannot_reach_itself_is_told_what_to_type() {
        let down = told(Err(io::ErrorKind::NetworkUnreachable.into()));
        assert_eq!((down.status, down.fix.as_deref()), (FindingStatus::Fail, Some(REMEDY)));
        assert!(down.message.contains("127.0.0.1: "), "{}", down.message);
        // Tests of clusters need it all the same.
        check().expect("the interface is up");
        assert_eq!(finding().status, FindingStatus::Ok);
    }
}
