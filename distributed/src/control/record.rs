//! The stored form of a record: a CRC-32 over key and value, the value's length, the value.

/// Names a record: the epoch of the coordinator that accepted the task, and the task's number.
pub type Key = (u64, u64);

/// Bytes before the value.
const HEAD_BYTES: usize = 8;

/// The largest value, in bytes: twice what a frame of the wire can carry.
pub(crate) const VALUE_BYTES_MAX: usize = 128 << 20;

/// A durable task's record. The caller defines its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The coordinator's epoch when the task was accepted.
    pub epoch: u64,
    /// The task's number in that epoch.
    pub seq: u64,
    /// The value.
    pub bytes: Vec<u8>,
}

/// Writes the stored form of `value` into `out`, replacing its contents.
pub fn encode(key: Key, value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&crc(key, value).to_le_bytes());
    // Longer values are refused earlier; if one came here, reading would detect it.
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(value);
}

/// The value in `stored`, or a description of the defect.
pub fn decode(key: Key, stored: &[u8]) -> Result<&[u8], String> {
    let (epoch, seq) = key;
    let (crc_stored, length, value) =
        split(stored).ok_or_else(|| format!("record {epoch:x}-{seq:x} is cut short"))?;
    if usize::try_from(length).ok() != Some(value.len()) {
        let has = value.len();
        return Err(format!("record {epoch:x}-{seq:x} has {has} bytes, expected {length}"));
    }
    let computed = crc(key, value);
    if crc_stored != computed {
        return Err(format!(
            "record {epoch:x}-{seq:x} has checksum {computed:08x}, expected {crc_stored:08x}"
        ));
    }
    Ok(value)
}

/// A number for a stored record. The wrapping sum of these over all records does not depend on
/// their order, and changes when a record vanishes, reappears or differs.
pub(super) fn fingerprint(key: Key, stored: &[u8]) -> u64 {
    let (crc, length, _) = split(stored).unwrap_or_default();
    [key.0, key.1, u64::from(crc) << 32 | u64::from(length)].into_iter().fold(0, |hash, word| {
        // The finalizer of SplitMix64: each input bit changes half of the output bits.
        let mut x = (hash ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    })
}

fn split(stored: &[u8]) -> Option<(u32, u32, &[u8])> {
    let (head, value) = stored.split_first_chunk::<HEAD_BYTES>()?;
    let [a, b, c, d, e, f, g, h] = *head;
    Some((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]), value))
}

fn crc((epoch, seq): Key, value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&epoch.to_le_bytes());
    hasher.update(&seq.to_le_bytes());
    hasher.update(value);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_other_key_is_noticed() {
        let mut stored = Vec::new();
        encode((3, 4), b"some value", &mut stored);
        assert_eq!(decode((3, 4), &stored), Ok(b"some value".as_slice()));
        assert!(decode((4, 3), &stored).is_err());
        for cut in 0..stored.len() {
            assert!(decode((3, 4), &stored[..cut]).is_err(), "{cut}");
        }
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode((3, 4), &flipped).is_err(), "{bit}");
        }
    }

    #[test]
    fn fingerprints_tell_keys_and_values_apart() {
        let mut seen = std::collections::BTreeSet::new();
        let mut stored = Vec::new();
        for key in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            for value in [b"".as_slice(), b"a", b"b"] {
                encode(key, value, &mut stored);
                assert!(seen.insert(fingerprint(key, &stored)), "{key:?} {value:?}");
            }
        }
    }
}
