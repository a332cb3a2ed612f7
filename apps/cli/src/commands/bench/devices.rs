//! `bench devices`: compares each device that runs models with the processor.

use super::Common;
use super::frame::{Prepared, Run, number};
use super::sample::Better;
use crate::cluster::digits;
use crate::device::{self, Limits, NotUsed};
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use lgp_measure::{measure_conv, measure_copies, measure_gemm};
use lgp_sdk::device::{DeviceId, ProbeOptions, probe};
use lgp_sdk::measure::{LatencyOptions, measure_latency};
use lgp_sdk::model::{Model, Session, SessionOptions};
use lgp_sdk::tensor::NamedTensor;
use serde_json::json;

/// The measured quantities of each device: name, unit, direction.
const QUANTITIES: [(&str, &str, Better); 5] = [
    ("to", "GB/s", Better::Higher),
    ("from", "GB/s", Better::Higher),
    ("gemm node", "GFLOP/s", Better::Higher),
    ("conv node", "GFLOP/s", Better::Higher),
    ("digits", "ms", Better::Lower),
];

/// Flags of `bench devices`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster bench devices --json\n\n\
    to and from are copies between the host's memory and the device's, within it for the processor;\n\
    gemm node and conv node are one node of the networks gemm and conv3x3 of card in f32, without\n\
    copies; the rates that card says are of whole runs, copies included. digits is a whole run of the\n\
    bundled model with one image. Devices that are not used are named with the reason.")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
}

/// The sizes of the work, the same as for the networks of `card`.
struct Sizes {
    copy_bytes: usize,
    gemm: usize,
    channels: usize,
    side: usize,
    runs: u32,
}

impl Sizes {
    const FULL: Self = Self { copy_bytes: 64 << 20, gemm: 1024, channels: 64, side: 56, runs: 20 };
    const QUICK: Self = Self { copy_bytes: 4 << 20, gemm: 96, channels: 8, side: 16, runs: 5 };
}

/// Measures the devices.
pub(super) fn run(args: &Args, out: Output) -> Result<()> {
    let prepared = Prepared::of("devices", &args.common)?;
    let sizes = if args.common.quick { Sizes::QUICK } else { Sizes::FULL };
    let found = probe(&ProbeOptions::default());
    let ways = found.iter().flat_map(|info| &info.ways);
    let usable = ways.filter(|way| way.usable).map(|way| way.id);
    // The processor comes first, as the others are compared with it.
    let mut ids: Vec<DeviceId> = usable.collect();
    ids.sort_by_key(|id| (*id != DeviceId::CPU, id.to_string()));
    let config = json!({
        "devices": ids.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "copy_bytes": sizes.copy_bytes,
        "gemm": sizes.gemm,
        "conv": {"channels": sizes.channels, "side": sizes.side},
    });
    let mut measured = prepared.begin(config)?;
    let bar = out.progress(ids.len() as u64, "devices");
    for id in &ids {
        measure(*id, &sizes, &mut measured)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let not_used: Vec<NotUsed> = found
        .iter()
        .filter(|info| !info.usable)
        .map(|info| {
            let reason = info.reason.clone().unwrap_or_else(|| "it says no reason".to_owned());
            NotUsed { id: info.id.clone(), reason }
        })
        .collect();
    let text = text(&ids, &not_used, &measured);
    measured.finish(json!({ "devices_not_used": not_used }), || text, out)
}

fn measure(id: DeviceId, sizes: &Sizes, measured: &mut Run<'_>) -> Result<()> {
    let name = id.to_string();
    let accelerator = device::resolve_within(&name, &Limits::default())?;
    let failed = |error: lgp_hal::Error| Failure::from_error("device_failed", &error);
    let opened = lgp_hal::open(id).map_err(failed)?;
    let runs = usize::try_from(sizes.runs).map_err(Failure::internal)?;
    let [to, _, from] = measure_copies(&*opened, sizes.copy_bytes, runs).map_err(failed)?;
    let gemm = measure_gemm(accelerator.clone(), sizes.gemm, sizes.runs)?;
    let conv = measure_conv(accelerator.clone(), sizes.channels, sizes.side, sizes.runs)?;
    let model = Model::from_bytes(digits::MODEL, None)?;
    let accelerators = accelerator.into_iter().collect();
    let session = Session::on_devices(model, SessionOptions::default(), accelerators)?;
    let image = digits::test_images()?.into_iter().next();
    let image = image.ok_or_else(|| Failure::internal("the bundled images are gone"))?.image;
    let inputs = [NamedTensor::new(digits::INPUT, image)];
    let options = LatencyOptions { runs: sizes.runs, ..LatencyOptions::default() };
    let digits = measure_latency(&session, &inputs, &options)?.samples_ms;
    let values = [to.gb_per_s(), from.gb_per_s(), gemm, conv, digits];
    for ((what, unit, better), values) in QUANTITIES.into_iter().zip(values) {
        measured.add(format!("{name} {what}"), unit, better, values);
    }
    Ok(())
}

/// A row for each device, with its speed relative to the processor.
fn text(ids: &[DeviceId], not_used: &[NotUsed], measured: &Run<'_>) -> String {
    let cell = |id: &DeviceId, (what, _, better): (&str, &str, Better)| {
        let [own, cpu] = [id, &DeviceId::CPU].map(|id| measured.median(&format!("{id} {what}")));
        let times = if better == Better::Lower { cpu / own } else { own / cpu };
        match *id == DeviceId::CPU || !times.is_finite() {
            true => number(own),
            false => format!("{} ({times:.2}×)", number(own)),
        }
    };
    let row = |id: &DeviceId| {
        let [to, from, gemm, conv, digits] = QUANTITIES.map(|quantity| cell(id, quantity));
        [id.to_string(), to, from, gemm, conv, digits]
    };
    let [to, from, gemm, conv, digits] =
        QUANTITIES.map(|(what, unit, _)| format!("{what}, {unit}"));
    let headings = ["device", &to, &from, &gemm, &conv, &digits];
    let mut text = output::table(headings, ids.iter().map(row));
    for NotUsed { id, reason } in not_used {
        text += &format!("{} is not measured: {}\n", output::plain(id), output::plain(reason));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_measure::{TRIAL_KINDS, TrialSize, trials};

    #[test]
    fn the_networks_are_those_of_card() {
        for (sizes, size) in [(Sizes::FULL, TrialSize::Full), (Sizes::QUICK, TrialSize::Small)] {
            let all = trials(size, &TRIAL_KINDS).expect("they are built");
            let Sizes { gemm, channels, side, .. } = sizes;
            for name in [format!("gemm-{gemm}"), format!("conv3x3-{channels}x{side}")] {
                assert!(all.iter().any(|trial| trial.name == name), "{name}");
            }
        }
    }
}
