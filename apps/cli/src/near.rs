//! Finds the known name that a wrong name probably means.

/// The least similarity of names.
const ALIKE_MIN: f64 = 0.85;
/// The number of characters from which a prefix identifies an id.
const BEGINNING: usize = 3;

/// The known name nearest to a wrong one: one that begins with it, or one that is similar.
pub(crate) fn near<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let alike = |name: &'a str| {
        let begins = wrong.len() >= BEGINNING && name.starts_with(wrong);
        let alike = strsim::jaro_winkler(&wrong.to_lowercase(), &name.to_lowercase());
        (name, if begins { 1.0 } else { alike })
    };
    let found = known.into_iter().map(alike).filter(|(_, alike)| *alike >= ALIKE_MIN);
    found.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_known() {
        let known = ["digits", "resnet50", "18f3c2a1-7", "RADEON_WORKERS", "http.addr"];
        for (wrong, expected) in [
            ("digit", Some("digits")),
            ("digtis", Some("digits")),
            ("Resnet50", Some("resnet50")),
            ("18f3", Some("18f3c2a1-7")),
            ("RADEON_WORKRES", Some("RADEON_WORKERS")),
            ("http.adr", Some("http.addr")),
            ("bert", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(near(wrong, known), expected, "{wrong}");
        }
    }
}
