//! Reading the files that a command line names.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use tollgate_document::Source;

use crate::failure::Failure;

/// What names standard input on a command line.
pub(crate) const STDIN: &str = "-";

/// No rules file comes near this, but a device or a pipe may never end.
const BYTES_MAX: u64 = 16 << 20;

/// The text of a file, or of standard input for [`STDIN`].
pub(crate) fn read(path: &Path) -> Result<Source, Failure> {
    let stdin = path.as_os_str() == STDIN;
    let name = if stdin { "stdin".into() } else { path.to_string_lossy() };
    let bytes = if stdin { bytes_of(io::stdin().lock()) } else { File::open(path).and_then(bytes_of) };
    match bytes {
        Ok(bytes) => Ok(Source::new(name, &bytes)),
        Err(error) => Err(unreadable(&name, &error)),
    }
}

fn bytes_of(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if reader.take(BYTES_MAX).read_to_end(&mut bytes)? as u64 == BYTES_MAX {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it has {BYTES_MAX} bytes or more")));
    }
    Ok(bytes)
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        ErrorKind::NotFound => "check the path; relative paths start in the current directory".to_owned(),
        ErrorKind::IsADirectory => {
            format!("name the files in it, like {}/*.yaml", name.trim_end_matches('/'))
        }
        ErrorKind::PermissionDenied => {
            "make it readable for you, or pass its text on standard input as `-`".to_owned()
        }
        ErrorKind::FileTooLarge => "the file is too large for a rules file; check the path".to_owned(),
        _ => "check that the file can be opened by other programs".to_owned(),
    };
    Failure::new(format!("cannot read {name}: {error}"), hint)
}
