//! Ranges of versions, as packages and drivers write them.

/// A version; only its first three numbers count.
pub(crate) type Version = [u32; 3];

/// Versions from a first one on, and below another if the range has an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Versions {
    /// The first version.
    pub(crate) from: Version,
    /// The first version after the range.
    pub(crate) below: Option<Version>,
}

impl Versions {
    /// Every version.
    pub(crate) const ALL: Self = Self { from: [0; 3], below: None };

    /// Whether the range contains a version; `None` for a text that is not a version.
    pub(crate) fn has(self, text: &str) -> Option<bool> {
        let version = parse(text)?;
        Some(version >= self.from && self.below.is_none_or(|below| version < below))
    }
}

/// The first three numbers of `1:25.0.7-2ubuntu1`.
fn parse(text: &str) -> Option<Version> {
    let upstream = text.split_once(':').map_or(text, |(_, rest)| rest);
    let mut numbers = upstream.split(|c: char| !c.is_ascii_digit()).map_while(|it| it.parse().ok());
    let first = numbers.next()?;
    Some([first, numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)])
}

/// Versions of a driver with a known fault.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) versions: Versions,
    /// The behaviour of the driver, with the report's address.
    pub(crate) what: &'static str,
    /// What a person can do.
    pub(crate) fix: &'static str,
}

/// Mesa's Vulkan driver for AMD cards, which its name and its package tell.
pub(crate) const RADV_DAMAGES_MEMORY: Faulty = Faulty {
    versions: Versions { from: [25, 0, 7], below: Some([26, 0, 5]) },
    what: "Mesa 25.0.7 was reported to damage the memory of programs that make many pipelines, and \
           26.0.5 no longer (https://github.com/ggml-org/llama.cpp/issues/22128)",
    fix: "install Mesa 26.0.5 or later, or choose the card through OpenCL: --device opencl:0",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        for (text, version) in [
            ("25.0.7-2", Some([25, 0, 7])),
            ("1:22.3~rc1-1", Some([22, 3, 0])),
            ("580.159.04", Some([580, 159, 4])),
            ("2545.0 (HSA1.1,LC)", Some([2545, 0, 0])),
            ("7", Some([7, 0, 0])),
            ("git", None),
            ("", None),
        ] {
            assert_eq!(parse(text), version, "{text}");
        }
    }

    #[test]
    fn a_range_ends_before_its_end() {
        let some = Versions { from: [22, 3, 0], below: Some([25, 2, 0]) };
        for (text, within) in [
            ("22.2.9", Some(false)),
            ("22.3", Some(true)),
            ("25.1.9", Some(true)),
            ("25.2.0", Some(false)),
            ("git", None),
        ] {
            assert_eq!(some.has(text), within, "{text}");
            assert_eq!(Versions::ALL.has(text), within.map(|_| true), "{text}");
        }
    }
}
