//! A profile as a picture: a bar for each operator, and below it the run from left to right.

use crate::failure::{Failure, Result};
use crate::measure::ms;
use lgp_inference::Profile;
use plotters::prelude::*;
use std::collections::BTreeMap;

const SIZE: (u32, u32) = (1200, 640);
/// The number of operators with their own bar; the others share one.
const BARS: usize = 12;

/// The picture as SVG.
pub(super) fn svg(profile: &Profile, title: &str) -> Result<String> {
    let mut text = String::new();
    draw(profile, title, &mut text).map_err(Failure::internal)?;
    Ok(text)
}

fn draw(
    profile: &Profile,
    title: &str,
    text: &mut String,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (bars, line) = root.split_vertically(480);
    let total = ms(profile.total);
    let all = profile.by_operator();
    let mut rows: Vec<(String, f64)> =
        all.iter().take(BARS).map(|(op, n, time)| (format!("{op} ({n})"), ms(*time))).collect();
    let rest: f64 = all.iter().skip(BARS).map(|(_, _, time)| ms(*time)).sum();
    if rest > 0. {
        rows.push(("others".to_owned(), rest));
    }
    let colours: BTreeMap<&str, RGBColor> =
        all.iter().enumerate().map(|(i, (op, _, _))| (*op, colour(i))).collect();

    let most = rows.iter().map(|(_, ms)| *ms).fold(1e-6, f64::max);
    let count = i32::try_from(rows.len()).unwrap_or(i32::MAX).max(1);
    let mut chart = ChartBuilder::on(&bars)
        .caption(format!("{title}: {total:.2} ms by operator"), ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(36)
        .y_label_area_size(200)
        .build_cartesian_2d(0f64..most * 1.05, (0..count - 1).into_segmented())?;
    let label = |row: &SegmentValue<i32>| match row {
        SegmentValue::CenterOf(i) => {
            // The first row is drawn on top.
            let i = usize::try_from(count - 1 - i).unwrap_or(usize::MAX);
            rows.get(i).map_or_else(String::new, |(name, _)| name.clone())
        }
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc("ms")
        .y_labels(rows.len())
        .y_label_formatter(&label)
        .draw()?;
    chart.draw_series(rows.iter().zip((0..count).rev()).enumerate().map(
        |(i, ((_, ms), row))| {
            let end =
                if row + 1 < count { SegmentValue::Exact(row + 1) } else { SegmentValue::Last };
            let mut bar =
                Rectangle::new([(0., SegmentValue::Exact(row)), (*ms, end)], colour(i).filled());
            bar.set_margin(3, 3, 0, 0);
            bar
        },
    ))?;

    let mut chart = ChartBuilder::on(&line)
        .caption("the run", ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(200)
        .build_cartesian_2d(0f64..total.max(1e-6), 0f64..1f64)?;
    chart.configure_mesh().disable_mesh().y_labels(0).x_desc("ms").draw()?;
    chart.draw_series(profile.nodes.iter().map(|node| {
        let start = ms(node.start);
        let end = start + ms(node.duration);
        let colour = colours.get(node.op).copied().unwrap_or(BLACK);
        Rectangle::new([(start, 0.), (end, 1.)], colour.filled())
    }))?;
    root.present()?;
    Ok(())
}

/// Colours that differ between neighbours.
pub(super) fn colour(i: usize) -> RGBColor {
    let (r, g, b) = Palette99::COLORS[i % Palette99::COLORS.len()];
    RGBColor(r, g, b)
}
