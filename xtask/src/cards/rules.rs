//! The rules that kernels keep, and the exceptions that are accepted for now.

use super::figures::{Answer, Figures, Way};
use crate::kernels::Variant;

/// With fewer waves a SIMD waits for memory more than it calculates.
const HOT_WAVES_MIN: u32 = 4;
/// The local memory of a work-group on every card since Southern Islands, and its work-items.
const LDS_BYTES_MAX: u32 = 32 << 10;
const GROUP_MAX: u32 = 256;

/// What is asked of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Compiles,
    Scratch,
    Spills,
    Local,
    Group,
    /// Of hot kernels alone.
    Waves,
    /// Reads of local memory in the hottest loop are as wide as the hardware's. Of hot kernels alone.
    Reads,
}

/// A rule that variants of a kernel break, until somebody mends them.
pub(super) struct Accepted {
    way: Way,
    /// The entry point.
    kernel: &'static str,
    rule: Rule,
    /// The worst value that is accepted, of waves the least. A better one must be written here.
    worst: u32,
    why: &'static str,
}

/// The list must shrink: an entry that is broken no longer fails as a new violation does.
pub(super) const ACCEPTED: &[Accepted] = &[
    accept(Way::OpenCl, "attention", Rule::Waves, 3, TILES),
    accept(Way::Vulkan, "attention", Rule::Waves, 3, TILES),
    accept(Way::OpenCl, "conv", Rule::Waves, 3, TILES),
    accept(Way::Vulkan, "conv", Rule::Waves, 2, TILES),
    accept(Way::OpenCl, "gemm", Rule::Waves, 3, TILES),
    accept(Way::OpenCl, "winograd", Rule::Waves, 3, TILES),
    accept(Way::Vulkan, "winograd", Rule::Waves, 3, TILES),
];

const TILES: &str =
    "the largest tiles of a work-item take more than 64 registers; to be tried with smaller ones";

const fn accept(
    way: Way,
    kernel: &'static str,
    rule: Rule,
    worst: u32,
    why: &'static str,
) -> Accepted {
    Accepted { way, kernel, rule, worst, why }
}

/// A kernel that breaks a rule.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Violation {
    pub(super) way: Way,
    pub(super) name: String,
    kernel: String,
    rule: Rule,
    value: u32,
    what: String,
}

impl Violation {
    pub(super) fn text(&self) -> String {
        format!("{} by {}: {}", self.name, self.way.name(), self.what)
    }
}

/// The rules that a variant breaks.
pub(super) fn violations(way: Way, variant: &Variant, answer: &Answer) -> Vec<Violation> {
    let found = match answer {
        Ok(figures) => broken(figures, variant),
        Err(why) => vec![(Rule::Compiles, 0, why.clone())],
    };
    let violation = |(rule, value, what)| Violation {
        way,
        name: variant.name.clone(),
        kernel: variant.kernel.clone(),
        rule,
        value,
        what,
    };
    found.into_iter().map(violation).collect()
}

fn broken(figures: &Figures, variant: &Variant) -> Vec<(Rule, u32, String)> {
    let Figures { scratch_bytes, spills, lds_bytes, waves, code, .. } = *figures;
    let Variant { group, hot, .. } = *variant;
    let rules = [
        (
            scratch_bytes > 0,
            (
                Rule::Scratch,
                scratch_bytes,
                format!("{scratch_bytes} B of scratch a wave, none wanted"),
            ),
        ),
        (spills > 0, (Rule::Spills, spills, format!("{spills} registers spilled, none wanted"))),
        (
            lds_bytes > LDS_BYTES_MAX,
            (
                Rule::Local,
                lds_bytes,
                format!("{lds_bytes} B of local memory, at most {LDS_BYTES_MAX} wanted"),
            ),
        ),
        (
            group > GROUP_MAX,
            (
                Rule::Group,
                group,
                format!("{group} work-items in a group, at most {GROUP_MAX} wanted"),
            ),
        ),
        (
            hot && waves < HOT_WAVES_MIN,
            (Rule::Waves, waves, format!("{waves} waves, at least {HOT_WAVES_MIN} wanted")),
        ),
        (
            hot && code.narrow > 0,
            (
                Rule::Reads,
                code.narrow,
                format!("{} neighbouring reads of local memory, 16 B a read wanted", code.narrow),
            ),
        ),
    ];
    rules.into_iter().filter(|(broken, _)| *broken).map(|(_, what)| what).collect()
}

/// What fails: violations that no exception covers, and exceptions that are too generous.
pub(super) fn judge(violations: &[Violation], accepted: &[Accepted]) -> Vec<String> {
    let worse = |rule, value: u32, than: u32| match rule {
        Rule::Waves => value < than,
        _ => value > than,
    };
    let of = |entry: &Accepted, violation: &Violation| {
        (entry.way, entry.kernel, entry.rule) == (violation.way, &violation.kernel, violation.rule)
    };
    let covered = |violation: &Violation| {
        let entry = accepted.iter().find(|entry| of(entry, violation));
        entry.is_some_and(|entry| !worse(entry.rule, violation.value, entry.worst))
    };
    let mut failed: Vec<String> =
        violations.iter().filter(|v| !covered(v)).map(Violation::text).collect();
    for entry in accepted {
        let own = violations.iter().filter(|violation| of(entry, violation));
        let worst = own
            .map(|violation| violation.value)
            .reduce(|a, b| if worse(entry.rule, b, a) { b } else { a });
        let name = format!("{:?} of {} by {}", entry.rule, entry.kernel, entry.way.name());
        match worst {
            None => failed.push(format!("{name} is accepted and no longer broken: remove it")),
            Some(worst) if worse(entry.rule, entry.worst, worst) => {
                let Accepted { worst: old, .. } = entry;
                failed
                    .push(format!("{name} is accepted up to {old} and now at {worst}: write that"));
            }
            Some(_) => {}
        }
    }
    failed
}

/// The exceptions as lines of a table.
pub(super) fn exceptions(accepted: &[Accepted]) -> String {
    let rows = accepted.iter().map(|Accepted { way, kernel, rule, worst, why }| {
        format!("| {kernel} | {} | {} {worst} | {why} |\n", way.name(), rule.name())
    });
    let rows: String = rows.collect();
    if rows.is_empty() {
        return "None.\n".to_owned();
    }
    format!("| kernel | by | accepted | why |\n|---|---|---|---|\n{rows}")
}

impl Rule {
    fn name(self) -> &'static str {
        match self {
            Self::Compiles => "does not compile",
            Self::Scratch => "bytes of scratch:",
            Self::Spills => "registers spilled:",
            Self::Local => "bytes of local memory:",
            Self::Group => "work-items:",
            Self::Waves => "waves:",
            Self::Reads => "neighbouring reads:",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variant(hot: bool) -> Variant {
        let (name, kernel) = ("gemm_1".to_owned(), "gemm".to_owned());
        Variant { name, kernel, group: GROUP_MAX, hot, launches: Vec::new() }
    }

    fn fits() -> Figures {
        Figures { waves: 4, lds_bytes: LDS_BYTES_MAX, ..Figures::default() }
    }

    #[test]
    fn each_rule_complains() {
        let of = |figures, hot| violations(Way::OpenCl, &variant(hot), &figures);
        assert_eq!(of(Ok(fits()), true), []);
        type Case = (fn(&mut Figures), &'static str);
        let cases: &[Case] = &[
            (|f| f.scratch_bytes = 256, "256 B of scratch a wave"),
            (|f| f.spills = 2, "2 registers spilled"),
            (|f| f.lds_bytes += 4, "32772 B of local memory"),
            (|f| f.waves = 3, "3 waves, at least 4"),
            (|f| f.code.narrow = 6, "6 neighbouring reads"),
        ];
        for (break_it, wanted) in cases {
            let mut figures = fits();
            break_it(&mut figures);
            let found = of(Ok(figures), true);
            assert!(found.len() == 1 && found[0].what.starts_with(wanted), "{found:?}");
        }
        let cold = Figures { waves: 1, ..fits() };
        assert_eq!(of(Ok(cold), false), [], "which needs no waves");
        let wide = Variant { group: 257, ..variant(true) };
        assert_eq!(violations(Way::Vulkan, &wide, &Ok(fits()))[0].rule, Rule::Group);
        assert_eq!(of(Err("does not compile".to_owned()), true)[0].rule, Rule::Compiles);
    }

    #[test]
    fn exceptions_cover_what_they_name_and_no_more() {
        let waves =
            |waves| violations(Way::OpenCl, &variant(true), &Ok(Figures { waves, ..fits() }));
        let (way, kernel, why) = (Way::OpenCl, "gemm", "being mended");
        let accepted = [Accepted { way, kernel, rule: Rule::Waves, worst: 3, why }];
        assert_eq!(judge(&waves(3), &accepted), [""; 0]);
        assert_eq!(judge(&waves(3), &[]).len(), 1);
        assert!(judge(&waves(2), &accepted)[0].contains("2 waves"));
        assert!(judge(&[], &accepted)[0].contains("no longer broken"));
        let generous = [Accepted { way, kernel, rule: Rule::Waves, worst: 2, why }];
        assert!(judge(&waves(3), &generous)[0].contains("accepted up to 2 and now at 3"));
        let other = [Accepted { way: Way::Vulkan, kernel, rule: Rule::Waves, worst: 3, why }];
        assert_eq!(judge(&waves(3), &other).len(), 2);
        assert!(exceptions(&accepted).contains("| gemm | OpenCL | waves: 3 | being mended |"));
        assert_eq!(exceptions(&[]), "None.\n");
    }
}
