//! The server and command line of Tollgate, as a library behind the binary `tollgate`.
//!
//! This crate has no stable API: it exists so that the binary, the fuzz targets, the tests and the generated reference
//! pages share one implementation.

mod access;
mod cli;
mod config;
mod dashboard;
mod doctor;
#[doc(hidden)]
pub mod drawing;
mod explanation;
mod failure;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod hex;
mod ledger_form;
mod protocol;
mod reference;
mod serve;
mod simulate;
mod stderr;
mod text;

/// The table of settings, for the generated reference page.
#[doc(hidden)]
pub mod settings {
    pub use crate::config::settings::{AcceptedIn, Kind, RENAMED, SETTINGS, Setting};
}

/// The names and meanings of all scopes, for the generated reference page.
#[doc(hidden)]
pub fn scopes() -> &'static [(&'static str, &'static str)] {
    access::Scopes::WORDS
}

/// The shape of a test file, for the generated reference page.
#[doc(hidden)]
pub fn test_file_shape() -> &'static tollgate_document::Shape {
    cli::commands::rules::test::file_shape()
}

/// Runs the command line `tollgate` and returns its exit code.
pub fn run() -> std::process::ExitCode {
    cli::run()
}
