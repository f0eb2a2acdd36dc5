//! Mutants of core, each wrong in one place: algorithm file, what is wrong, the right text, the wrong text.
//!
//! The build script plants each mutant into a copy of the algorithm's source. The build fails if a right text does not
//! occur exactly once, so that the list stays up to date.

mod holds;
mod rates;
mod windows;

/// The algorithm's file, what is wrong, the right text, the wrong text.
pub(crate) type Mutant = (&'static str, &'static str, &'static str, &'static str);

/// Returns all of them.
pub(crate) fn all() -> impl Iterator<Item = Mutant> {
    [windows::MUTANTS, rates::MUTANTS, holds::MUTANTS].into_iter().flatten().copied()
}
