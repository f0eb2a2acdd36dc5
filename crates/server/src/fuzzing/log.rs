//! Lines of logs, as `tollgate simulate` reads them.

use clap::ValueEnum;

use crate::simulate::format::LogFormat;
use crate::simulate::read_bytes;

/// Reads bytes as a log of this format. Every line is counted once, and every request has a record whose time is not before
/// that of the record before it, beyond what sorting bounds.
pub fn log(format: &str, bytes: &[u8]) {
    let format = LogFormat::from_str(format, false).expect("a format");
    // A log whose fields cannot be found is refused with a reason.
    let Ok(read) = read_bytes(format, bytes) else { return };
    assert_eq!(read.requests + read.other + read.unreadable, read.lines, "every line is counted once");
    assert_eq!(read.records, read.requests, "every request has a record");
    let lines = bytes.split(|&byte| byte == b'\n').count() as u64;
    assert!(read.lines <= lines, "{} of {lines} lines", read.lines);
}
