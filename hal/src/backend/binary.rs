//! The envelope of a driver's program binary: its maker and a checksum. Drivers refuse another
//! driver's binaries only sometimes, and crash on damaged ones.

use crate::error::{Error, Result};
use crate::id::DeviceId;

/// The beginning of every binary; its last digit changes with the format.
const MAGIC: &[u8; 8] = b"lgp-bin1";

/// The binary with `payload`, made by `maker`.
pub(crate) fn seal(maker: &str, payload: &[u8]) -> Vec<u8> {
    let sum = checksum(maker, payload).to_le_bytes();
    [MAGIC.as_slice(), &checksum(maker, &[]).to_le_bytes(), &sum, payload].concat()
}

/// The payload of a binary that `maker` made.
///
/// # Errors
/// [`Error::Binary`].
pub(crate) fn open<'a>(device: DeviceId, maker: &str, binary: &'a [u8]) -> Result<&'a [u8]> {
    let refuse = |reason: &str| Err(Error::Binary { device, reason: reason.to_owned() });
    let parts = binary.strip_prefix(MAGIC).and_then(|rest| {
        let (by, rest) = rest.split_first_chunk::<8>()?;
        let (sum, payload) = rest.split_first_chunk::<8>()?;
        Some((u64::from_le_bytes(*by), u64::from_le_bytes(*sum), payload))
    });
    match parts {
        None => refuse("it is no program binary of this version"),
        Some((by, ..)) if by != checksum(maker, &[]) => refuse("another device or driver made it"),
        Some((_, sum, payload)) if sum != checksum(maker, payload) => refuse("it is damaged"),
        Some((.., payload)) => Ok(payload),
    }
}

/// FNV-1a of 64 bits: enough to detect accidental damage; it does not detect forgeries.
fn checksum(maker: &str, payload: &[u8]) -> u64 {
    maker
        .bytes()
        .chain([0])
        .chain(payload.iter().copied())
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_maker_s_whole_binaries_are_opened() {
        let sealed = seal("driver 1", b"code");
        let open = |maker, binary: &[u8]| {
            open(DeviceId::NULL, maker, binary).map(<[u8]>::to_vec).map_err(|it| it.to_string())
        };
        assert_eq!(open("driver 1", &sealed), Ok(b"code".to_vec()));
        assert_eq!(open("", &seal("", b"")), Ok(vec![]));
        let damaged = |at: usize| {
            let mut binary = sealed.clone();
            binary[at] ^= 1;
            binary
        };
        let longer = [sealed.as_slice(), b"!"].concat();
        for (maker, binary, part) in [
            ("driver 2", sealed.as_slice(), "another device or driver"),
            ("driver 1", &damaged(0), "no program binary"),
            ("driver 1", &damaged(16), "damaged"),
            ("driver 1", &damaged(27), "damaged"),
            ("driver 1", &sealed[..27], "damaged"),
            ("driver 1", &longer, "damaged"),
            ("driver 1", &sealed[..23], "no program binary"),
            ("driver 1", b"", "no program binary"),
        ] {
            let error = open(maker, binary).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }
}
