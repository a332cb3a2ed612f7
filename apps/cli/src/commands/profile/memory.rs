//! A device's memory over a run, as CSV and as a picture.

use crate::failure::{Failure, Result};
use crate::measure::ms;
use lgp_memory::{MemoryKind, MemoryPhase, MemoryProfile, SpikeRule};
use lgp_sdk::device::Accelerator;
use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most events that are kept: a run has a few, and each weight has one.
pub(super) const EVENTS_MAX: usize = 1 << 16;
/// Growth by a tenth of the peak within this time is a spike.
const SPIKE_WITHIN: Duration = Duration::from_millis(10);

const SIZE: (u32, u32) = (1200, 720);
const MIB: f64 = 1_048_576.;

type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;
/// Time in ms, and MiB.
type Line = Vec<(f64, f64)>;

/// The memory figures of a device.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    /// Loading and each run, with the most that was held.
    phases: Vec<Phase>,
    spikes: Vec<Spike>,
    /// The number of allocated ranges, and the share of them that needed no new segment of the
    /// device.
    allocations: u64,
    hit_rate: f64,
    /// The share of free bytes that is not in the largest free range.
    fragmentation: f64,
    high_water_bytes: usize,
    reserved_high_water_bytes: usize,
}

#[derive(Debug, Serialize)]
struct Phase {
    name: String,
    begin_ms: f64,
    end_ms: f64,
    peak_bytes: usize,
    /// The owners at the peak.
    holders: BTreeMap<String, usize>,
    /// The most of the host's RAM by owner: the session's pool, which is part of the process.
    host_peaks: BTreeMap<String, usize>,
}

#[derive(Debug, Serialize)]
struct Spike {
    begin_ms: f64,
    end_ms: f64,
    memory: &'static str,
    bytes: usize,
    owners: BTreeMap<String, usize>,
}

/// The profile of an accelerator's log.
pub(super) fn profile(accelerator: &Accelerator) -> Result<MemoryProfile> {
    let pool = accelerator.pool();
    let log = pool.log().ok_or_else(|| Failure::internal("the pool has no log"))?;
    let bytes = (pool.stats().high_water_bytes / 10).max(1);
    Ok(MemoryProfile::new(&log, SpikeRule { bytes, within: SPIKE_WITHIN }))
}

/// The figures for the report.
pub(super) fn told(profile: &MemoryProfile, accelerator: &Accelerator) -> Memory {
    let stats = accelerator.pool().stats();
    let phase = |phase: &MemoryPhase| Phase {
        name: phase.name.to_string(),
        begin_ms: ms(phase.begin),
        end_ms: ms(phase.end),
        peak_bytes: phase.peak_bytes,
        holders: phase.holders.iter().map(|h| (h.owner.to_string(), h.bytes)).collect(),
        host_peaks: phase.host_peaks.iter().map(|(o, bytes)| (o.to_string(), *bytes)).collect(),
    };
    let named = profile.phases.iter().filter(|phase| !phase.name.is_empty());
    let spikes = profile.spikes.iter().map(|spike| Spike {
        begin_ms: ms(spike.begin),
        end_ms: ms(spike.end),
        memory: if spike.kind == MemoryKind::Device { "device" } else { "host" },
        bytes: spike.bytes,
        owners: spike.owners.iter().map(|(o, bytes)| (o.to_string(), *bytes)).collect(),
    });
    Memory {
        phases: named.map(phase).collect(),
        spikes: spikes.collect(),
        allocations: stats.allocations,
        hit_rate: stats.hit_rate(),
        fragmentation: stats.fragmentation(),
        high_water_bytes: stats.high_water_bytes,
        reserved_high_water_bytes: stats.reserved_high_water_bytes,
    }
}

/// A line for each change.
pub(super) fn csv(profile: &MemoryProfile) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    profile.write_csv(&mut text).map_err(Failure::internal)?;
    Ok(text)
}

/// The picture as SVG: the device's memory by owner, stacked, above the host's memory.
pub(super) fn svg(profile: &MemoryProfile, title: &str) -> Result<String> {
    let mut text = String::new();
    draw(profile, title, &mut text).map_err(Failure::internal)?;
    Ok(text)
}

fn draw(profile: &MemoryProfile, title: &str, text: &mut String) -> Drawn {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (device, host) = root.split_vertically(440);
    let caption = format!("{title}: the device's memory");
    chart(&device, &caption, profile, &stacked(&lines(profile, MemoryKind::Device)), true)?;
    chart(&host, "the host's memory", profile, &lines(profile, MemoryKind::Host), false)?;
    root.present()?;
    Ok(())
}

/// Each owner's bytes over all time, in steps.
fn lines(profile: &MemoryProfile, kind: MemoryKind) -> Vec<(String, Line)> {
    let steps = || profile.steps.iter().filter(|step| step.kind == kind);
    let mut held: BTreeMap<&str, f64> = steps().map(|step| (&*step.owner, 0.)).collect();
    let mut lines: BTreeMap<&str, Line> = held.keys().map(|owner| (*owner, Line::new())).collect();
    let mut point = |time: f64, held: &BTreeMap<&str, f64>| {
        for (owner, bytes) in held {
            if let Some(line) = lines.get_mut(*owner) {
                line.push((time, bytes / MIB));
            }
        }
    };
    for step in steps() {
        point(ms(step.time), &held);
        held.insert(&step.owner, step.owner_bytes as f64);
        point(ms(step.time), &held);
    }
    point(end(profile), &held);
    lines.into_iter().map(|(owner, line)| (owner.to_owned(), line)).collect()
}

/// The lines stacked, the topmost first, so that lower areas are drawn over it.
fn stacked(lines: &[(String, Line)]) -> Vec<(String, Line)> {
    let mut sum: Line = Line::new();
    let mut stack = Vec::new();
    for (owner, line) in lines {
        let below = |i: usize| sum.get(i).map_or(0., |(_, bytes)| *bytes);
        sum = line.iter().enumerate().map(|(i, (time, own))| (*time, own + below(i))).collect();
        stack.push((owner.clone(), sum.clone()));
    }
    stack.reverse();
    stack
}

fn chart(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    caption: &str,
    profile: &MemoryProfile,
    lines: &[(String, Line)],
    filled: bool,
) -> Drawn {
    let most = lines.iter().flat_map(|(_, line)| line).map(|(_, mib)| *mib).fold(1e-3, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(32)
        .y_label_area_size(72)
        .build_cartesian_2d(0f64..end(profile).max(1e-3), 0f64..most * 1.1)?;
    chart.configure_mesh().disable_x_mesh().x_desc("ms").y_desc("MiB").draw()?;
    for (i, (owner, line)) in lines.iter().enumerate() {
        let colour = super::chart::colour(i);
        let series = if filled {
            let (first, last) = (line.first(), line.last());
            let ground = last.into_iter().chain(first).map(|(time, _)| (*time, 0.));
            let area: Line = line.iter().copied().chain(ground).collect();
            chart.draw_series([Polygon::new(area, colour.filled())])?
        } else {
            chart.draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(2)))?
        };
        let key = move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled());
        series.label(owner.as_str()).legend(key);
    }
    for phase in profile.phases.iter().filter(|phase| !phase.name.is_empty()) {
        let at = ms(phase.begin);
        let line = [(at, 0.), (at, most * 1.1)];
        chart.draw_series(LineSeries::new(line, BLACK.mix(0.3)))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()
}

/// When the last phase ended.
fn end(profile: &MemoryProfile) -> f64 {
    profile.phases.last().map_or(0., |phase| ms(phase.end))
}
