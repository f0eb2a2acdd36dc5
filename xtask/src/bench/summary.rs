//! The summary of one run: what is printed, drawn and written.

use super::pictures::Picture;
use super::tables::Titled;
use super::targets::Target;

/// Everything that is printed, drawn and written for one report.
pub(super) struct Summary {
    pub(super) targets: Vec<Target>,
    pub(super) pictures: Vec<Picture>,
    pub(super) tables: Vec<Titled>,
    /// Notes below the tables: paragraphs, or empty.
    pub(super) notes: String,
    /// The amount of work: decisions per contender, row and round.
    pub(super) effort: String,
    /// Packages whose versions are listed.
    pub(super) packages: &'static [&'static str],
}
