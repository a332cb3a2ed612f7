//! An HTML page of sections, each a sentence with tables and charts.

use super::chart::{self, Series};
use super::escape;

/// The page's style, which follows the system's light or dark scheme.
const STYLE: &str = "
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1b1b; --soft: #555; --line: #bbb; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181b; --ink: #eee; --soft: #bbb; --line: #555; }
}
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .25rem; }
th, td { text-align: left; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: normal; }
svg { display: block; width: 100%; height: auto; margin: 1rem 0; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .axis { stroke: var(--line); }
";

/// A page under construction.
///
/// ```
/// use lgp_measure::report::{Page, Section};
/// let section = Section::new("Devices", "Two devices take tasks.")
///     .table("Devices", &["device", "tasks"], vec![vec!["cpu".into(), "12".into()]]);
/// let html = Page::new("a cluster").section(section).finish();
/// assert!(html.contains("<h2>Devices</h2>") && html.contains("<td>12</td>"));
/// ```
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    body: String,
}

/// A part of a page.
#[derive(Debug, Clone)]
pub struct Section(String);

impl Page {
    /// An empty page.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self { title: escape(title), body: String::new() }
    }

    /// Appends a paragraph.
    #[must_use]
    pub fn words(mut self, text: &str) -> Self {
        self.body += &format!("<p>{}</p>\n", escape(text));
        self
    }

    /// Appends a section.
    #[must_use]
    pub fn section(mut self, section: Section) -> Self {
        self.body += &format!("<section>\n{}</section>\n", section.0);
        self
    }

    /// The page as HTML.
    #[must_use]
    pub fn finish(self) -> String {
        let Self { title, body } = self;
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
             <body>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
        )
    }
}

impl Section {
    /// A section with a heading and a sentence.
    #[must_use]
    pub fn new(heading: &str, words: &str) -> Self {
        Self(format!("<h2>{}</h2>\n<p>{}</p>\n", escape(heading), escape(words)))
    }

    /// Appends a table with a caption; rows have as many cells as there are headings. Does nothing
    /// without rows.
    #[must_use]
    pub fn table(mut self, caption: &str, headings: &[&str], rows: Vec<Vec<String>>) -> Self {
        if rows.is_empty() {
            return self;
        }
        let caption = escape(caption);
        let head = headings.iter().map(|text| match *text {
            "" => "<td></td>".to_owned(),
            text => format!("<th scope=\"col\">{}</th>", escape(text)),
        });
        let head: String = head.collect();
        // `tabindex` lets the keyboard reach and scroll a wide table.
        self.0 += &format!(
            "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\">\n\
             <table>\n<caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        );
        for row in rows {
            let cells = row.iter().enumerate().map(|(column, text)| match column {
                0 => format!("<th scope=\"row\">{}</th>", escape(text)),
                _ => format!("<td>{}</td>", escape(text)),
            });
            self.0 += &format!("<tr>{}</tr>\n", cells.collect::<String>());
        }
        self.0 += "</tbody>\n</table>\n</div>\n";
        self
    }

    /// Appends a bar for each value. Does nothing without values.
    #[must_use]
    pub fn bars(mut self, label: &str, unit: &str, bars: &[(String, f64)]) -> Self {
        self.0 += &chart::bars(label, unit, bars);
        self
    }

    /// Appends lines over a common axis. Does nothing with fewer than two points.
    #[must_use]
    pub fn lines(mut self, label: &str, x: &str, y: &str, series: &[Series]) -> Self {
        self.0 += &chart::lines(label, x, y, series);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_elsewhere_stays_text() {
        let evil = "</td><script>\u{202e}'\"\0&";
        let escaped = "&lt;/td&gt;&lt;script&gt;\u{fffd}&#39;&quot;\u{fffd}&amp;";
        assert_eq!(escape(evil), escaped);
        let section = Section::new(evil, evil)
            .table(evil, &[evil, ""], vec![vec![evil.to_owned(), evil.to_owned()]])
            .bars(evil, evil, &[(evil.to_owned(), 1.)])
            .lines(evil, evil, evil, &[Series::new(evil, vec![(0., 1.), (1., 2.)])]);
        let page = Page::new(evil).words(evil).section(section).finish();
        assert!(!page.contains("<script") && !page.contains(evil));
        assert!(page.matches(escaped).count() >= 12, "{page}");
    }

    #[test]
    fn nothing_to_show_shows_nothing() {
        let section = Section::new("a", "b").table("c", &["d"], Vec::new());
        let section = section.bars("e", "f", &[]).lines("g", "h", "i", &[]);
        assert_eq!(section.0, "<h2>a</h2>\n<p>b</p>\n");
    }
}
