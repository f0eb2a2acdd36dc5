//! Mutants of core's algorithms and of the guard, each wrong in one place: file, what is wrong, the right text, the wrong
//! text.
//!
//! The build script plants each mutant into a copy of the source. The build fails if a right text does not
//! occur exactly once, so that the list stays up to date.

pub(crate) mod guard;
mod holds;
mod rates;
mod windows;

/// The algorithm's file, what is wrong, the right text, the wrong text.
pub(crate) type Mutant = (&'static str, &'static str, &'static str, &'static str);

/// Returns those of the algorithms.
pub(crate) fn all() -> impl Iterator<Item = Mutant> {
    [windows::MUTANTS, rates::MUTANTS, holds::MUTANTS].into_iter().flatten().copied()
}
