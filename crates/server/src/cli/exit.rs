//! Exit codes. They have the same meaning in every command; each command's help lists those that it uses.

use std::process::ExitCode;

/// The command is done, or its answer is yes.
pub(crate) const SUCCESS: ExitCode = ExitCode::SUCCESS;

/// The answer of the command is no: a file has problems, a request was refused.
pub(crate) const NEGATIVE: ExitCode = ExitCode::FAILURE;

/// The command line, the configuration or an input file is invalid. The command-line parser uses this code too.
pub(crate) fn invalid_input() -> ExitCode {
    ExitCode::from(2)
}

/// A server, the store or the database did not answer, or could not decide.
pub(crate) fn store_failed() -> ExitCode {
    ExitCode::from(3)
}

/// A server answered, and declined: no token, a missing scope, a conflict.
pub(crate) fn declined() -> ExitCode {
    ExitCode::from(4)
}

/// The reader closed standard output. A shell reports this code for a program that SIGPIPE ended.
pub(crate) fn broken_pipe() -> ExitCode {
    ExitCode::from(141)
}
