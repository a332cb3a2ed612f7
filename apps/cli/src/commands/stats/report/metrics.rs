//! Numbers from `/metrics`, by name and labels.

/// The samples of a page in the text format of Prometheus.
#[derive(Debug, Default)]
pub(super) struct Metrics(Vec<(String, f64)>);

impl Metrics {
    /// Parses a page; lines that are no samples are left out.
    pub(super) fn read(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.trim().rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Self(lines.filter_map(sample).collect())
    }

    /// The sample with this name and these labels, in the page's notation.
    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// All samples of a name, with their labels in the page's notation.
    pub(super) fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let labels = move |(known, value): &'a (String, f64)| {
            let labels = known.strip_prefix(name)?.strip_prefix('{')?.strip_suffix('}')?;
            Some((labels, *value))
        };
        self.0.iter().filter_map(labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_and_the_rest_is_left_out() {
        let page = "# HELP a x 1\na 1.5\nb{c=\"d e\"} 2\nb{c=\"f\"} 3\nodd\nnan x\n";
        let metrics = Metrics::read(page);
        assert_eq!(metrics.get("a"), Some(1.5));
        assert_eq!(metrics.get("b{c=\"d e\"}"), Some(2.));
        assert_eq!(metrics.get("b"), None);
        assert_eq!(metrics.of("b").collect::<Vec<_>>(), [("c=\"d e\"", 2.), ("c=\"f\"", 3.)]);
        assert_eq!(metrics.of("a").count(), 0);
    }
}
