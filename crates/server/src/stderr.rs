//! Standard error.

use std::io::Write;

/// Writes text to standard error, with colours only where they are supported.
pub(crate) fn write(text: &str) {
    match anstream::stderr().lock().write_all(text.as_bytes()) {
        // If standard error is closed, there is no other place to report to.
        Ok(()) | Err(_) => (),
    }
}
