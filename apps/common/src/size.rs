//! Parses sizes of memory.

/// Parses a size as people write it: `8GiB`, `512 MB`, `8g`, `1000000`.
///
/// # Errors
/// A message with the text and what was expected.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size, expected one such as 8GiB, 512MiB or 4GB");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.,
        "k" | "kib" => 1024.,
        "m" | "mib" => 1_048_576.,
        "g" | "gib" => 1_073_741_824.,
        "t" | "tib" => 1_099_511_627_776.,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err(wrong()),
    };
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * factor;
    // Whole numbers are exact up to 2⁵³, which exceeds any memory.
    if (1. ..9e15).contains(&bytes) { Ok(bytes as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("8GiB", Some(8 << 30)),
            ("8g", Some(8 << 30)),
            ("512 MB", Some(512_000_000)),
            ("1.5k", Some(1536)),
            ("1000", Some(1000)),
            ("", None),
            ("GiB", None),
            ("8 parsecs", None),
            ("-1", None),
            ("0", None),
            ("1e30", None),
            ("99999999999TiB", None),
        ] {
            assert_eq!(parse_size(text).ok(), bytes, "{text}");
        }
    }
}
