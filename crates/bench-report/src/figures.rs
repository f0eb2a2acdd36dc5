//! Statistics over the rounds of a run.

use crate::{Measured, Report, Row};

/// The median and the interquartile range of the rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// The first quartile.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// The third quartile.
    pub high: f64,
}

impl Figure {
    /// Returns the figure of these rounds; `None` without rounds.
    pub fn of(rounds: &[f64]) -> Option<Figure> {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |quarter: usize| quantile(&sorted, quarter as f64 / 4.0);
        Some(Figure { low: at(1)?, median: at(2)?, high: at(3)? })
    }

    /// Returns the figure of the ratios within each round: a slow moment of the machine slows both sides of a ratio.
    pub fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Figure> {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        Figure::of(&ratios)
    }
}

/// The quantile of sorted values, interpolated linearly.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let position = part * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    Some(below + (above - below) * position.fract())
}

impl Report {
    /// Returns the row with this id, if it was run.
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }

    /// Returns the contender's memory per key, if it was measured with this number of keys.
    pub fn bytes_per_key(&self, keys: u64, contender: &str) -> Option<f64> {
        let memory = self.memory.iter().find(|memory| memory.keys == keys)?;
        let held = memory.results.iter().find(|held| held.contender == contender)?;
        Some(held.bytes_per_key)
    }
}

impl Row {
    /// Returns the contender's figures, if it was measured.
    pub fn of(&self, contender: &str) -> Option<&Measured> {
        self.results.iter().find(|measured| measured.contender == contender)
    }

    /// Returns the CPU time of one contender as a multiple of another's.
    pub fn cpu_ratio(&self, ours: &str, theirs: &str) -> Option<Figure> {
        Figure::ratio(&self.of(ours)?.cpu_ns, &self.of(theirs)?.cpu_ns)
    }

    /// Returns the wall-clock time of one contender as a multiple of another's.
    pub fn wall_ratio(&self, ours: &str, theirs: &str) -> Option<Figure> {
        Figure::ratio(&self.of(ours)?.wall_ns, &self.of(theirs)?.wall_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_median_and_the_quartiles() {
        let figure = |low, median, high| Some(Figure { low, median, high });
        assert_eq!(Figure::of(&[5.0, 1.0, 4.0, 2.0, 3.0]), figure(2.0, 3.0, 4.0));
        assert_eq!(Figure::of(&[1.0, 2.0]), figure(1.25, 1.5, 1.75));
        assert_eq!(Figure::of(&[7.0]), figure(7.0, 7.0, 7.0));
        assert_eq!(Figure::of(&[]), None);
    }

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        let slow_moment = Figure::ratio(&[1.0, 10.0, 1.0], &[2.0, 20.0, 2.0]);
        assert_eq!(slow_moment.map(|ratio| (ratio.low, ratio.high)), Some((0.5, 0.5)));
    }
}
