//! What a suite has to say about one run.

use super::pictures::Picture;
use super::tables::Titled;
use super::targets::Target;

/// Everything that is printed, drawn and written of one report.
pub(super) struct Told {
    pub(super) targets: Vec<Target>,
    pub(super) pictures: Vec<Picture>,
    pub(super) tables: Vec<Titled>,
    /// What the reader must know beside the tables; paragraphs, or nothing.
    pub(super) notes: String,
    /// How much was done, for how many.
    pub(super) effort: String,
    /// Packages whose version matters to who compares.
    pub(super) packages: &'static [&'static str],
}
