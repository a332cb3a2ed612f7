//! Charts as SVG within a page: bars, and lines over a common axis.

use super::escape;

/// Sizes in units of the chart, which is as wide as its page.
const WIDTH: f64 = 900.;
const NAMES: f64 = 240.;
const NUMBERS: f64 = 110.;
const BAR: f64 = 24.;
const PLOT: f64 = 200.;
const MARGIN: f64 = 64.;
/// Colours that people with colour blindness can tell apart (Okabe and Ito, 2008), dark enough on
/// white and light enough on black.
const COLOURS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c7000"];
/// The most characters of a name that fit.
const LETTERS: usize = 34;
/// The most points of a line that are drawn; the page has the numbers.
const POINTS: usize = 1_000;

/// A line of a chart: points with their horizontal positions.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Series {
    /// A line with a name; points that are not finite leave a gap.
    #[must_use]
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points }
    }
}

/// A bar for each value.
pub(super) fn bars(label: &str, unit: &str, bars: &[(String, f64)]) -> String {
    let largest = bars.iter().map(|(_, value)| *value).filter(|v| v.is_finite()).fold(0., f64::max);
    if bars.is_empty() {
        return String::new();
    }
    let mut text = begin(label, BAR * bars.len() as f64);
    for (row, (name, value)) in bars.iter().enumerate() {
        let y = BAR * row as f64;
        let part = if largest > 0. && value.is_finite() { (value / largest).max(0.) } else { 0. };
        let length = (WIDTH - NAMES - NUMBERS) * part;
        let [middle, end] = [y + 16., NAMES + length + 6.];
        let colour = COLOURS[0];
        text += &format!(
            "<text x=\"0\" y=\"{middle:.1}\">{}</text>\n\
             <rect x=\"{NAMES}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"18\" fill=\"{colour}\"/>\n\
             <text x=\"{end:.1}\" y=\"{middle:.1}\">{} {}</text>\n",
            escape(&shortened(name)),
            y + 3.,
            number(*value),
            escape(unit)
        );
    }
    text + "</svg>\n"
}

/// Lines over a common axis, with their names below.
pub(super) fn lines(label: &str, x: &str, y: &str, series: &[Series]) -> String {
    let good = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
    let all = || series.iter().flat_map(|series| series.points.iter().filter(|p| good(p)));
    if all().count() < 2 {
        return String::new();
    }
    let [from, to] = [f64::min, f64::max].map(|f| all().map(|(x, _)| *x).reduce(f).unwrap_or(0.));
    let top = all().map(|(_, y)| *y).fold(0., f64::max).max(1e-9);
    let width = WIDTH - MARGIN - NUMBERS;
    let at = |(x, y): &(f64, f64)| {
        let x = MARGIN + width * (x - from) / (to - from).max(1e-9);
        format!("{x:.1},{:.1}", 20. + (PLOT - 20.) * (1. - y / top))
    };
    let mut text = begin(label, PLOT + 44.);
    text += &format!(
        "<path class=\"axis\" fill=\"none\" d=\"M{MARGIN},20 V{PLOT} H{}\"/>\n\
         <text x=\"0\" y=\"24\">{}</text>\n<text x=\"0\" y=\"{PLOT}\">0</text>\n\
         <text x=\"{MARGIN}\" y=\"12\">{}</text>\n<text x=\"{}\" y=\"{PLOT}\">{}</text>\n",
        MARGIN + width,
        number(top),
        escape(y),
        MARGIN + width + 6.,
        escape(x)
    );
    for (place, series) in series.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let step = series.points.len().div_ceil(POINTS).max(1);
        let points: Vec<&(f64, f64)> = series.points.iter().step_by(step).collect();
        // Points that are not finite interrupt the line.
        for part in points.split(|point| !good(point)).filter(|part| !part.is_empty()) {
            let path: Vec<String> = part.iter().map(|point| at(point)).collect();
            text += &format!(
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\n",
                path.join(" ")
            );
        }
        let (left, below) = (MARGIN + 160. * place as f64, PLOT + 30.);
        text += &format!(
            "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"{below:.1}\">{}</text>\n",
            below - 11.,
            left + 18.,
            escape(&shortened(&series.name))
        );
    }
    text + "</svg>\n"
}

fn begin(label: &str, height: f64) -> String {
    let label = escape(label);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         aria-label=\"{label}\">\n"
    )
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// At least three digits, for any size.
fn number(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => "not known".to_owned(),
        size if size >= 100. => format!("{value:.0}"),
        size if size >= 10. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let rows = [("a".to_owned(), 2.), ("b".to_owned(), 1.), ("c".to_owned(), f64::NAN)];
        let svg = bars("times", "ms", &rows);
        for part in ["width=\"550.0\"", "width=\"275.0\"", "width=\"0.0\"", "2.00 ms", "not known"]
        {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        let none = bars("times", "ms", &[("a".to_owned(), 0.)]);
        assert!(none.contains("0.00 ms") && !none.contains("NaN"));
    }

    #[test]
    fn a_gap_interrupts_a_line() {
        let points = vec![(0., 1.), (1., 2.), (2., f64::NAN), (3., 4.), (4., 2.)];
        let svg = lines("over time", "s", "ms", &[Series::new("p50", points)]);
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        assert!(svg.contains(">4.00</text>") && svg.contains("p50") && !svg.contains("NaN"));
        let one = Series::new("p50", vec![(0., 1.)]);
        assert_eq!(lines("over time", "s", "ms", &[one]), "");
        let flat = Series::new("p50", vec![(5., 0.), (5., 0.)]);
        assert!(!lines("over time", "s", "ms", &[flat]).contains("NaN"));
    }

    #[test]
    fn long_names_are_shortened_between_letters() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"ä".repeat(50)), "ä".repeat(34) + "…");
    }
}
