//! Parses and formats times.

const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// A time as a person writes it: `90s`, `30m`, `1h`, `7d`.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a time, expected one such as 90s, 30m, 1h or 7d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let number = text.strip_suffix(unit).and_then(|n| n.parse::<u32>().ok()).ok_or_else(wrong)?;
    u64::from(number).checked_mul(*factor).filter(|s| *s > 0).ok_or_else(wrong)
}

/// A time in its largest full unit.
pub(crate) fn duration(seconds: u64) -> String {
    let unit = UNITS.iter().find(|(_, factor)| seconds >= *factor);
    unit.map_or_else(|| "-".to_owned(), |(name, factor)| format!("{}{name}", seconds / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_write_them() {
        for (text, expected) in [("90s", 90), ("30m", 1800), ("1h", 3600), ("7d", 604_800)] {
            assert_eq!(seconds(text), Ok(expected));
        }
        for text in ["", "h", "1", "1.5h", "-1h", "1w", "0s", "1 h", "99999999999h", "1ä"] {
            assert!(seconds(text).is_err(), "{text:?}");
        }
        assert_eq!([0, 59, 60, 7199, 700_000].map(duration), ["-", "59s", "1m", "1h", "8d"]);
    }
}
