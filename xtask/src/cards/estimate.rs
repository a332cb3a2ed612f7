//! An estimate of networks' times on an RX 580, from the machine code of each kernel and its launches. No measurement.
//!
//! A launch's operations tell how often its waves go through the hottest loop. The busiest compute unit determines its
//! time. Each time has two ends: `fast` has the busiest unit of each compute unit work without a pause and memory at its
//! full rate, `slow` has one unit work after the other and memory at half its rate.

use super::code::{Code, busiest, in_turn};
use super::figures::Answer;
use crate::kernels::{Launches, Variant};
use std::collections::BTreeMap;

const COMPUTE_UNITS: f64 = 36.;
const SIMDS: f64 = 4.;
const LANES: f64 = 64.;
const CYCLES_PER_S: f64 = 1.34e9;
/// A SIMD gives a wave one turn in so many cycles.
const CYCLES_A_TURN: f64 = 4.;
/// A multiply-add of each lane a cycle; 16 lanes of a SIMD work at once.
pub(super) const FLOPS_PER_S: f64 = COMPUTE_UNITS * LANES * 2. * CYCLES_PER_S;
pub(super) const BYTES_PER_S: f64 = 256e9;
/// The share of that rate, in the slow end. Products of vectors in llama.cpp reach 37 to 56 % on an RX 480.
const SLOW_MEMORY: f64 = 0.5;
/// What one launch costs beside its work, at both ends: an assumption.
pub(super) const LAUNCH_S: Range = Range { fast: 5e-6, slow: 10e-6 };

/// The two ends of a time.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Range {
    pub(super) fast: f64,
    pub(super) slow: f64,
}

impl std::ops::Add for Range {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { fast: self.fast + other.fast, slow: self.slow + other.slow }
    }
}

impl std::ops::Mul<f64> for Range {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self { fast: self.fast * times, slow: self.slow * times }
    }
}

/// All launches of one variant in a network.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) kernel: String,
    pub(super) launches: f64,
    pub(super) seconds: Range,
    /// Of the seconds, those of arithmetic alone.
    pub(super) compute: Range,
    pub(super) flops: f64,
    pub(super) bytes: f64,
    /// Whether arithmetic takes longer than memory at the fast end.
    pub(super) computes: bool,
    /// The share of the card that has work, by time.
    pub(super) filled: f64,
}

/// The parts of each network, the slowest first.
pub(super) fn networks(variants: &[Variant], answers: &[Answer]) -> BTreeMap<String, Vec<Part>> {
    let mut networks: BTreeMap<String, Vec<Part>> = BTreeMap::new();
    for (variant, answer) in variants.iter().zip(answers) {
        let Ok(figures) = answer else { continue };
        for launches in variant.launches.chunk_by(|a, b| a.network == b.network) {
            let part = part(variant, &figures.code, launches);
            networks.entry(launches[0].network.clone()).or_default().push(part);
        }
    }
    for parts in networks.values_mut() {
        parts.sort_by(|a, b| b.seconds.slow.total_cmp(&a.seconds.slow));
    }
    networks
}

fn part(variant: &Variant, code: &Code, launches: &[Launches]) -> Part {
    let (mut seconds, mut compute) = (Range::default(), Range::default());
    let (mut times, mut flops, mut memory, mut filled) = (0., 0., 0., 0.);
    for of in launches {
        let (own, fill) = arithmetic(variant.group, code, of);
        let bytes = of.bytes / BYTES_PER_S;
        let longer = Range { fast: own.fast.max(bytes), slow: own.slow.max(bytes / SLOW_MEMORY) };
        seconds = seconds + (longer + LAUNCH_S) * of.times;
        compute = compute + own * of.times;
        filled += fill * own.fast * of.times;
        memory += bytes * of.times;
        times += of.times;
        flops += of.flops * of.times;
    }
    Part {
        name: variant.name.clone(),
        kernel: variant.kernel.clone(),
        launches: times,
        seconds,
        compute,
        flops,
        bytes: memory * BYTES_PER_S,
        computes: compute.fast > memory,
        filled: if compute.fast > 0. { filled / compute.fast } else { 0. },
    }
}

/// Seconds of a launch's instructions, and the share of the card that has work.
fn arithmetic(group: u32, code: &Code, launch: &Launches) -> (Range, f64) {
    let items = launch.groups * f64::from(group);
    // Only multiply-adds count where there are any: the rest may be done for each of them, or once.
    let (wanted, of_trip) = match code.trip.macs > 0. {
        true => (launch.flops / 2., code.trip.macs),
        false => (launch.flops, code.trip.operations),
    };
    let trips = if of_trip > 0. { (wanted / items / of_trip).max(1.) } else { 1. };
    let wave = code.once + code.trip * trips;
    let waves = f64::from(group.div_ceil(64)) * (launch.groups / COMPUTE_UNITS).ceil();
    let cycles = CYCLES_A_TURN * (waves / SIMDS).ceil();
    let seconds = |turns: f64| turns * cycles / CYCLES_PER_S;
    let range = Range { fast: seconds(busiest(&wave)), slow: seconds(in_turn(&wave)) };
    let all = f64::from(group.div_ceil(64)) * launch.groups;
    (range, all / (COMPUTE_UNITS * SIMDS * (waves / SIMDS).ceil()))
}

/// All parts together.
pub(super) fn total(parts: &[Part]) -> Range {
    parts.iter().fold(Range::default(), |sum, part| sum + part.seconds)
}

/// The launches of one kernel in all networks.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Class {
    pub(super) flops: f64,
    pub(super) bytes: f64,
    /// Seconds at the hottest loops' own rates, as if the card were always full; none without multiply-adds.
    pub(super) loops: Option<Range>,
    pub(super) seconds: Range,
}

impl Class {
    /// Shares of the peak by these seconds, the higher first.
    pub(super) fn of_peak(&self, seconds: Range) -> Range {
        share(self.flops / FLOPS_PER_S, seconds)
    }

    /// Shares of the memory's rate, the higher first.
    pub(super) fn of_memory(&self) -> Range {
        share(self.bytes / BYTES_PER_S, self.seconds)
    }
}

fn share(least: f64, of: Range) -> Range {
    Range { fast: least / of.fast, slow: least / of.slow }
}

/// What kernels reach in all networks together, by entry point.
pub(super) fn classes(variants: &[Variant], answers: &[Answer]) -> BTreeMap<String, Class> {
    let mut classes: BTreeMap<String, Class> = BTreeMap::new();
    for (variant, answer) in variants.iter().zip(answers) {
        let Ok(figures) = answer else { continue };
        let rates = figures.code.ceiling().zip(figures.code.in_turn());
        for launches in variant.launches.iter().map(std::slice::from_ref) {
            let part = part(variant, &figures.code, launches);
            // As others count: the operations of a plain convolution, of which Winograd's algorithm needs 4 of 9.
            let flops =
                if variant.kernel == "winograd" { part.flops * 9. / 4. } else { part.flops };
            let class = classes.entry(variant.kernel.clone()).or_default();
            class.flops += flops;
            class.bytes += part.bytes;
            if let Some((ceiling, turns)) = rates {
                let peak = flops / FLOPS_PER_S;
                let own = Range { fast: peak / ceiling, slow: peak / turns };
                class.loops = Some(class.loops.unwrap_or_default() + own);
            }
            class.seconds = class.seconds + part.seconds;
        }
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::super::figures::Figures;
    use super::super::instructions::Work;
    use super::*;

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-9 * wanted.abs(), "{found}, expected {wanted}");
    }

    /// A trip of 64 multiply-adds that takes 128 turns, and 192 if nothing overlaps.
    fn code() -> Code {
        let trip = Work {
            macs: 64.,
            operations: 128.,
            vector_turns: 128.,
            lds_cycles: 64.,
            ..Work::default()
        };
        Code { trip, ..Code::default() }
    }

    fn launch(groups: f64, flops: f64, bytes: f64) -> Launches {
        Launches { network: "bert".into(), times: 2., flops, bytes, groups }
    }

    fn variant(launches: Vec<Launches>) -> Variant {
        let name = "gemm_1".into();
        Variant { name, kernel: "gemm".into(), group: 256, hot: true, launches }
    }

    #[test]
    fn a_full_card_reaches_what_the_loop_leaves() {
        let full = launch(360., FLOPS_PER_S, 0.);
        let (range, filled) = arithmetic(256, &code(), &full);
        near(range.fast, 2.);
        near(range.slow, 3.);
        near(filled, 1.);
        near(code().ceiling().unwrap(), 0.5);
        near(code().in_turn().unwrap(), 1. / 3.);
    }

    #[test]
    fn a_tail_and_empty_processors_count() {
        // 37 groups take the time of 72, and one group of a single wave leaves three SIMDs idle.
        let (range, filled) = arithmetic(256, &code(), &launch(37., FLOPS_PER_S, 0.));
        near(range.fast, 2. * 72. / 37.);
        near(filled, 37. / 72.);
        let (_, filled) = arithmetic(64, &code(), &launch(1., 1e9, 0.));
        near(filled, 1. / 144.);
    }

    #[test]
    fn a_launch_takes_the_longer_of_two_and_its_own_cost() {
        let variants = [variant(vec![launch(360., 0., BYTES_PER_S)])];
        let figures = Figures { code: code(), ..Figures::default() };
        let found = networks(&variants, &[Ok(figures)]);
        let parts = &found["bert"];
        near(parts[0].seconds.fast, 2. * (1. + 5e-6));
        near(parts[0].seconds.slow, 2. * (2. + 10e-6));
        assert!(!parts[0].computes);
        assert_eq!(total(parts), parts[0].seconds);
        assert!(networks(&variants, &[Err("broken".into())]).is_empty());
    }

    #[test]
    fn classes_sum_launches_by_entry_point() {
        let one = variant(vec![launch(360., FLOPS_PER_S, BYTES_PER_S)]);
        let winograd = Variant { kernel: "winograd".into(), ..one.clone() };
        let figures = || Ok(Figures { code: code(), ..Figures::default() });
        let found = classes(&[one, winograd], &[figures(), figures()]);
        let share = |kernel: &str, of: fn(&Class) -> Range| of(&found[kernel]);
        for kernel in ["gemm", "winograd"] {
            let loops = share(kernel, |class| class.of_peak(class.loops.unwrap()));
            near(loops.fast, 0.5);
            near(loops.slow, 1. / 3.);
            // Each launch takes twice as long as its bytes, and a little longer.
            let memory = share(kernel, Class::of_memory).fast;
            assert!((0.499..0.5).contains(&memory), "{memory}");
        }
        let [gemm, winograd] =
            ["gemm", "winograd"].map(|kernel| share(kernel, |class| class.of_peak(class.seconds)));
        near(winograd.fast, gemm.fast * 9. / 4.);
        assert!(gemm.fast < 0.5);
    }
}
