//! The vector instructions that kernels may use: a flag, else `RADEON_SIMD`, else all that there are.

use crate::failure::{Failure, Result};
use clap::ValueEnum;
use lgp_inference::Isa;
use serde::{Deserialize, Serialize};

/// Levels of vector instructions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Simd {
    /// All that the machine has
    #[default]
    Auto,
    /// What every machine has
    Scalar,
    /// AVX2 and FMA
    Avx2,
    /// AVX-512
    Avx512,
}

impl Simd {
    /// The level of the flag, else of the environment.
    ///
    /// # Errors
    /// `settings_invalid` for a variable that names no level.
    pub(crate) fn resolve(
        flag: Option<Self>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        match (flag, variable("RADEON_SIMD")) {
            (Some(level), _) => Ok(level),
            (None, Some(name)) => Self::from_str(&name, false).map_err(|_| {
                let message = format!(
                    "environment variable RADEON_SIMD is {name:?}, expected auto, scalar, avx2 or \
                     avx512"
                );
                Failure::new("settings_invalid", message)
            }),
            (None, None) => Ok(Self::Auto),
        }
    }

    /// The level in the form of session options.
    pub(crate) fn isa(self) -> Option<Isa> {
        match self {
            Self::Auto => None,
            Self::Scalar => Some(Isa::Scalar),
            Self::Avx2 => Some(Isa::Avx2),
            Self::Avx512 => Some(Isa::Avx512),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_beats_the_environment() {
        let variable = |value: &'static str| move |_: &str| Some(value.to_owned());
        assert_eq!(Simd::resolve(None, |_| None).ok(), Some(Simd::Auto));
        assert_eq!(Simd::resolve(None, variable("avx2")).ok(), Some(Simd::Avx2));
        let both = Simd::resolve(Some(Simd::Scalar), variable("avx512")).ok();
        assert_eq!(both, Some(Simd::Scalar));
        let wrong = Simd::resolve(None, variable("neon")).expect_err("no such level");
        assert_eq!(wrong.code, "settings_invalid");
    }
}
