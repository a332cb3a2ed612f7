//! Bytes as lowercase hexadecimal digits, and back.

/// Two digits a byte.
pub(super) fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Exactly `N` bytes; digits may be of either case.
pub(super) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_chunks::<2>().0) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = u8::try_from(high? * 16 + low?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_and_other_texts_are_refused() {
        assert_eq!(encode(&[0, 1, 0xab]), "0001ab");
        assert_eq!(decode("0001Ab"), Some([0, 1, 0xab]));
        for text in ["", "0001a", "0001ab0", "0001ag", "00 1ab", "+001ab", "00ä0b"] {
            assert_eq!(decode::<3>(text), None, "{text:?}");
        }
    }
}
