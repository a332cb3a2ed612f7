//! Which vector instructions kernels may use: detected once, and possibly fewer than the machine
//! has.

/// Levels of vector instructions, each of which includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// The instructions that every machine of the architecture has.
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, VL, BW and DQ.
    Avx512,
}

impl Isa {
    /// Every level, the lowest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The level's name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

/// The vector instructions that kernels may use on this machine. A `Simd` proves that the machine
/// has the instructions of its level, because only [`Simd::detect`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Simd {
    isa: Isa,
    vnni: bool,
    bf16: bool,
}

impl Simd {
    /// The instructions of this machine, up to a limit.
    #[must_use]
    pub fn detect(limit: Option<Isa>) -> Self {
        let limit = limit.unwrap_or(Isa::Avx512);
        let all = Self::of_machine();
        let isa = all.isa.min(limit);
        let wide = isa == Isa::Avx512;
        Self { isa, vnni: all.vnni && wide, bf16: all.bf16 && wide }
    }

    #[cfg(target_arch = "x86_64")]
    fn of_machine() -> Self {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq");
        let isa = match (avx512, avx2) {
            (true, _) => Isa::Avx512,
            (_, true) => Isa::Avx2,
            _ => Isa::Scalar,
        };
        Self {
            isa,
            vnni: is_x86_feature_detected!("avx512vnni"),
            bf16: is_x86_feature_detected!("avx512bf16"),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of_machine() -> Self {
        Self { isa: Isa::Scalar, vnni: false, bf16: false }
    }

    /// The level.
    #[must_use]
    pub fn isa(self) -> Isa {
        self.isa
    }

    /// Whether a multiplication and an addition may be one instruction.
    pub(crate) fn fused(self) -> bool {
        self.isa >= Isa::Avx2
    }

    /// Whether 8-bit dot products (AVX-512 VNNI) may be used; implies [`Isa::Avx512`].
    #[must_use]
    pub fn vnni(self) -> bool {
        self.vnni
    }

    /// Whether bf16 dot products (AVX-512 BF16) may be used; implies [`Isa::Avx512`].
    #[must_use]
    pub fn bf16(self) -> bool {
        self.bf16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds() {
        for limit in Isa::ALL {
            let simd = Simd::detect(Some(limit));
            assert!(simd.isa() <= limit);
            assert!(simd.isa() == Isa::Avx512 || !(simd.vnni() || simd.bf16()));
        }
        assert_eq!(Simd::detect(None), Simd::detect(Some(Isa::Avx512)));
    }
}
