//! The table of metrics, and the check that a query uses only what is in it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

/// Metrics and their labels.
#[derive(Debug)]
pub(super) struct MetricsTable {
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// What a scrape adds to every series.
const OF_PROMETHEUS: [&str; 3] = ["job", "instance", "le"];
/// Suffixes of the series of a histogram.
const OF_HISTOGRAMS: [&str; 3] = ["_bucket", "_sum", "_count"];

impl MetricsTable {
    /// Reads the rows that start with the names of metrics. The second column has their labels.
    pub(super) fn of_page(page: &str) -> MetricsTable {
        let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for row in page.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [_, names, of_rows, ..] = cells[..] else { continue };
            let names = names.split('`').filter(|name| is_ours(name));
            for name in names {
                let found = of_rows.split(',').map(|label| label.trim().trim_matches('`'));
                let found = found.filter(|label| !label.is_empty()).map(str::to_owned);
                labels.entry(name.to_owned()).or_default().extend(found);
            }
        }
        MetricsTable { labels }
    }

    /// Fails if a query names a metric or a label that is not in the table.
    pub(super) fn check(&self, query: &str) -> Result<()> {
        let metrics: Vec<&str> = words(query).filter(|word| is_ours(word)).collect();
        let mut allowed: BTreeSet<&str> = OF_PROMETHEUS.into();
        for metric in metrics {
            let family = OF_HISTOGRAMS.iter().find_map(|suffix| metric.strip_suffix(suffix));
            let found = self.labels.get(metric).or_else(|| self.labels.get(family?));
            match found {
                Some(labels) => allowed.extend(labels.iter().map(String::as_str)),
                None => bail!("unknown metric `{metric}` in `{query}`\nhint: it is not in {}", super::TABLE),
            }
        }
        for label in labels(query) {
            if !allowed.contains(label) {
                bail!(
                    "unknown label `{label}` in `{query}`\nhint: no metric of the query has it in {}",
                    super::TABLE
                );
            }
        }
        Ok(())
    }
}

fn is_ours(word: &str) -> bool {
    word.starts_with("rate_limit_") || word.starts_with("tollgate_")
}

fn words(query: &str) -> impl Iterator<Item = &str> {
    query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':' || c == '$'))
}

/// The labels in selectors and after `by`.
fn labels(query: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in query.match_indices('{') {
        let selector = query[at + 1..].split('}').next().unwrap_or_default();
        found.extend(selector.split(',').filter_map(|test| test.split(['=', '!']).next()).map(str::trim));
    }
    for (at, _) in query.match_indices("by (") {
        let list = query[at + 4..].split(')').next().unwrap_or_default();
        found.extend(list.split(',').map(str::trim));
    }
    found.retain(|label| !label.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_metric_or_label_is_refused() {
        let page = "| name | labels | meaning |\n|---|---|---|\n| `rate_limit_a_total`, `rate_limit_b` | rule, outcome | x |\n| `rate_limit_c_seconds` | | y |\n";
        let table = MetricsTable::of_page(page);
        for query in [
            "sum by (rule) (rate(rate_limit_a_total{outcome=\"refused\"}[5m]))",
            "histogram_quantile(0.99, sum by (le) (rate(rate_limit_c_seconds_bucket[5m]))) > rate_limit_b",
            "up{job=\"tollgate\"} == 0",
        ] {
            table.check(query).unwrap_or_else(|error| panic!("{error}"));
        }
        for query in [
            "rate(rate_limit_d_total[5m])",
            "rate_limit_a_total{result=\"refused\"}",
            "sum by (edge) (rate_limit_a_total)",
            "rate_limit_c_seconds{rule=\"x\"}",
        ] {
            table.check(query).expect_err(query);
        }
    }
}
