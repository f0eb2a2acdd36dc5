//! Exit codes. They mean the same in every command; each command's help says which of them it uses.

use std::process::ExitCode;

/// Done, and there is nothing to object to.
pub(crate) const GOOD: ExitCode = ExitCode::SUCCESS;

/// Done, and the answer is no: a file has problems, a request was refused.
pub(crate) const BAD: ExitCode = ExitCode::FAILURE;

/// Not done: the command line is wrong, or a file it names cannot be used. The parser of the command line uses it too.
pub(crate) fn unusable() -> ExitCode {
    ExitCode::from(2)
}

/// Not done: the store that the command line names could not decide.
pub(crate) fn unavailable() -> ExitCode {
    ExitCode::from(3)
}

/// Nobody reads the output any more. What a shell reports for a program that SIGPIPE ended.
pub(crate) fn unread() -> ExitCode {
    ExitCode::from(141)
}
