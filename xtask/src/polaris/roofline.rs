//! An estimate of networks' times on an RX 580, from the compiled code of each kernel and the
//! operations and bytes of its launches. No measurement.

use super::Kernel;
use crate::kernels::{Launches, Variant};
use serde::Serialize;
use std::collections::BTreeMap;

/// The estimated card: its chip, and its two rates.
pub(super) const CHIP: &str = "gfx803";
const CARD: &str = "RX 580: 36 compute units at 1340 MHz, 256 GB/s";
/// 36 compute units of 64 lanes, a multiply-add each a cycle.
const FLOPS_PER_S: f64 = 36. * 64. * 2. * 1.34e9;
const BYTES_PER_S: f64 = 256e9;
const BASIS: &str = "an estimate, no measurement: per kernel the longer of its operations at the \
    share of the peak that its hottest loop's instructions leave, and its bytes at the memory's full \
    rate; caches, launches and half-empty cards are not counted";

/// The networks that kernels name.
#[derive(Debug, Serialize)]
pub(super) struct Roofline {
    card: &'static str,
    basis: &'static str,
    networks: Vec<Network>,
}

#[derive(Debug, Serialize)]
struct Network {
    name: String,
    ms: f64,
    kernels: Vec<Part>,
}

/// All launches of one kernel in a network.
#[derive(Debug, Serialize)]
struct Part {
    name: String,
    launches: f64,
    ms: f64,
    bound: &'static str,
    mac_share: f64,
}

impl Roofline {
    /// Makes the estimate from the variants and their figures; kernels for other chips are ignored.
    pub(super) fn new(variants: &[Variant], kernels: &[Kernel]) -> Self {
        let mut networks: BTreeMap<&str, Vec<Part>> = BTreeMap::new();
        for variant in variants {
            let compiled = kernels.iter().find(|k| k.name == variant.name && k.chip == CHIP);
            let Some(compiled) = compiled else { continue };
            for launches in variant.launches.chunk_by(|a, b| a.network == b.network) {
                let part = part(&variant.name, compiled.figures.code.mac_share, launches);
                networks.entry(&launches[0].network).or_default().push(part);
            }
        }
        let networks = networks.into_iter().map(|(name, mut kernels)| {
            kernels.sort_by(|a, b| b.ms.total_cmp(&a.ms));
            let ms = kernels.iter().map(|part| part.ms).sum();
            Network { name: name.to_owned(), ms, kernels }
        });
        Self { card: CARD, basis: BASIS, networks: networks.collect() }
    }

    /// The estimate as text, with the slowest kernels first.
    pub(super) fn text(&self) -> String {
        let mut text = format!("\n{}; {}\n", self.card, self.basis);
        for Network { name, ms, kernels } in &self.networks {
            text += &format!("\n{name}: {ms:.2} ms\n      ms  launches  bound    MACs  kernel\n");
            for Part { name, launches, ms, bound, mac_share } in kernels {
                let percent = 100. * mac_share;
                text += &format!("{ms:8.3}  {launches:8}  {bound:7}  {percent:3.0}%  {name}\n");
            }
        }
        text
    }
}

/// Launches of one kernel by one network.
fn part(name: &str, mac_share: f64, launches: &[Launches]) -> Part {
    // A kernel without counted arithmetic is bound by memory alone.
    let compute = |flops: f64| if mac_share > 0. { flops / (FLOPS_PER_S * mac_share) } else { 0. };
    let times = |each: fn(f64, f64) -> f64| -> f64 {
        let one = |of: &Launches| of.times * each(compute(of.flops), of.bytes / BYTES_PER_S);
        launches.iter().map(one).sum()
    };
    let bound = if times(|c, _| c) > times(|_, m| m) { "compute" } else { "memory" };
    Part {
        name: name.to_owned(),
        launches: launches.iter().map(|of| of.times).sum(),
        ms: 1e3 * times(f64::max),
        bound,
        mac_share,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::kernel;
    use super::*;

    fn launches(times: f64, flops: f64, bytes: f64) -> Launches {
        Launches { network: "bert".into(), times, flops, bytes }
    }

    #[test]
    fn of_each_launch_the_longer_time_counts() {
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9 * wanted.abs());
        // At half the peak, 6.17472e12 operations take two seconds.
        let (much, far) = (launches(1., FLOPS_PER_S, 1.), launches(3., 1., BYTES_PER_S));
        let compute = part("gemm", 0.5, std::slice::from_ref(&much));
        assert_eq!(compute.bound, "compute");
        near(compute.ms, 2000.);
        let memory = part("gemm", 0.5, std::slice::from_ref(&far));
        assert_eq!(memory.bound, "memory");
        near(memory.ms, 3000.);
        near(part("gemm", 0.5, &[much, far]).ms, 5000.);
        near(part("gemm", 0., &[launches(1., 1e12, BYTES_PER_S)]).ms, 1000.);
    }

    #[test]
    fn networks_sum_their_kernels_on_the_card() {
        let on = |chip: &'static str, mac_share: f64| {
            let mut kernel = kernel();
            kernel.chip = chip;
            kernel.figures.code.mac_share = mac_share;
            kernel
        };
        let kernels = [on("gfx906", 0.1), on(CHIP, 0.5)];
        let variant = Variant {
            name: "gemm".into(),
            kernel: "gemm".into(),
            group: 256,
            hot: true,
            launches: vec![launches(2., FLOPS_PER_S, 0.), launches(1., 0., BYTES_PER_S)],
        };
        let variants = [variant];
        let roofline = Roofline::new(&variants, &kernels);
        let text = roofline.text();
        assert!(text.contains("no measurement") && text.contains("bert: 5000.00 ms"), "{text}");
    }
}
