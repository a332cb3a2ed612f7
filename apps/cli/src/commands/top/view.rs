//! The picture of `top`: a pure function of its state.

use super::pages::{self, Page};
use super::snapshot::Snapshot;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Sparkline, Table, TableState};

/// The shown snapshot, and the selected page and row.
pub(super) struct View {
    snapshot: Snapshot,
    /// Why there is no newer snapshot.
    trouble: Option<String>,
    /// Seconds since the coordinator last answered.
    pub(super) age_s: u64,
    page: usize,
    row: usize,
}

/// The rows that are not a page's own: two of the head, two of charts, one of names, one of headings, one of the
/// selected row, one of help.
const CHROME: u16 = 8;

impl View {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        Self { snapshot, trouble: None, age_s: 0, page: 0, row: 0 }
    }

    /// Takes a newer snapshot.
    pub(super) fn hear(&mut self, snapshot: Snapshot) {
        (self.snapshot, self.trouble) = (snapshot, None);
    }

    /// Notes why the coordinator did not answer.
    pub(super) fn miss(&mut self, trouble: String) {
        self.trouble = Some(trouble);
    }

    /// Moves on by a number of pages, and wraps around.
    pub(super) fn turn(&mut self, by: isize) {
        let count = pages::COUNT.cast_signed();
        self.page = (self.page.cast_signed() + by).rem_euclid(count).cast_unsigned();
        self.row = 0;
    }

    /// Moves the selection down, or up for negative numbers.
    pub(super) fn move_by(&mut self, by: isize) {
        self.row = self.row.saturating_add_signed(by);
    }

    /// Draws the view.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let [head, charts, names, body, help] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(2),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let lines = pages::head(&self.snapshot).map(Line::from);
        frame.render_widget(Paragraph::new(lines.to_vec()), head);
        self.charts(frame, charts);
        let mut all = pages::pages(&self.snapshot);
        let spans = all.iter().enumerate().flat_map(|(at, page)| {
            let style = if at == self.page { Modifier::REVERSED } else { Modifier::DIM };
            let name = format!(" {} ", page.name);
            [Span::styled(name, Style::new().add_modifier(style)), Span::raw(" ")]
        });
        frame.render_widget(Line::from_iter(spans), names);
        let page = all.swap_remove(self.page);
        self.row = self.row.min(page.rows.len().saturating_sub(1));
        table(frame, body, page, self.row);
        frame.render_widget(self.help(), help);
    }

    /// Throughput and latency of late, as numbers and as bars.
    fn charts(&self, frame: &mut Frame<'_>, area: Rect) {
        let halves = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas::<2>(area);
        let texts = [pages::throughput(&self.snapshot), pages::latency(&self.snapshot)];
        for ((half, text), path) in
            halves.into_iter().zip(texts).zip(["/ended_per_s", "/latency_ms/p95"])
        {
            let [label, bars] = Layout::vertical([Constraint::Length(1); 2]).areas(half);
            frame.render_widget(Line::from(text).style(Modifier::BOLD), label);
            let column = self.snapshot.column(path, usize::from(bars.width));
            let most = column.iter().copied().fold(0.0, f64::max);
            // Bars have only eight heights, so a thousand steps are enough.
            let step = |value: &f64| if most > 0.0 { (value / most * 1000.0) as u64 } else { 0 };
            let data: Vec<u64> = column.iter().map(step).collect();
            frame.render_widget(Sparkline::default().data(&data).max(1000), bars);
        }
    }

    /// The last line: the keys, or why there is no newer snapshot.
    fn help(&self) -> Paragraph<'_> {
        match &self.trouble {
            None => Paragraph::new("tab ←→ page   ↑↓ PgUp PgDn move   q quit"),
            Some(trouble) => {
                let text = format!("heard {} s ago, asking again: {trouble}", self.age_s);
                Paragraph::new(text).style(Style::new().fg(Color::Red).add_modifier(Modifier::BOLD))
            }
        }
    }

    /// The rows of a page that a terminal of a height shows.
    pub(super) fn rows_shown(height: u16) -> isize {
        isize::try_from(height.saturating_sub(CHROME).max(1)).unwrap_or(1)
    }
}

/// A page's rows, with the selected one marked and in view. Below them is the full text of its widest column, which a
/// narrow terminal cuts off.
fn table(frame: &mut Frame<'_>, area: Rect, page: Page, row: usize) {
    if page.rows.is_empty() {
        frame.render_widget(Paragraph::new("none"), area);
        return;
    }
    let [area, below] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    let widest = page.heads.iter().position(|(_, width)| *width == 0).unwrap_or(0);
    let full = page.rows.get(row).and_then(|cells| cells.get(widest)).cloned();
    frame.render_widget(Line::from(full.unwrap_or_default()).style(Modifier::DIM), below);
    let widths = page.heads.iter().map(|(_, width)| match width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(*width),
    });
    let heads = Row::new(page.heads.iter().map(|(name, _)| *name)).style(Modifier::BOLD);
    let table = Table::new(page.rows.into_iter().map(Row::new), widths)
        .header(heads)
        .row_highlight_style(Modifier::REVERSED);
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(row));
}

#[cfg(test)]
mod tests;
