//! Reading the files that a command line names.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use tollgate_document::Source;

use crate::failure::Failure;

/// What names standard input on a command line.
pub(crate) const STDIN: &str = "-";

/// No rules file comes near this, but a device or a pipe may never end.
const BYTES_MAX: u64 = 16 << 20;

/// Rules files in a folder.
const FILES_MAX: usize = 1_000;

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

/// The text of a rules file, or of all files in a folder that end in `.yaml` or `.yml`, in the order of their names. Hidden
/// files and folders in it are not read.
pub(crate) fn read_rules(path: &Path) -> Result<Source, Failure> {
    if path.as_os_str() == STDIN || !path.is_dir() {
        return read(path);
    }
    let name = path.to_string_lossy();
    let paths = rules_files(path).map_err(|error| unreadable(&name, &error))?;
    if paths.is_empty() {
        let hint = "files of rules end in .yaml or .yml; folders in this folder are not read";
        return Err(Failure::new(format!("no rules files in the folder {name}"), hint));
    }
    if paths.len() > FILES_MAX {
        let what = format!("{} rules files in the folder {name}; the maximum is {FILES_MAX}", paths.len());
        return Err(Failure::new(what, "check the path, or join some of the files"));
    }
    let files = paths.iter().map(|path| read(path)).collect::<Result<Vec<Source>, Failure>>()?;
    Ok(Source::of_files(name, files))
}

fn rules_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if is_yaml && !is_hidden && !path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_in_the_order_of_names_without_hidden_and_other_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("a file can be written");
        };
        assert!(read_rules(folder.path()).is_err(), "an empty folder has no rules");
        for (name, text) in [
            ("b.yml", "two"),
            ("a.yaml", "one"),
            (".c.yaml", "hidden"),
            ("d.md", "other"),
            ("e.yaml~", "copy"),
        ] {
            write(name, text);
        }
        std::fs::create_dir(folder.path().join("f.yaml")).expect("a folder");
        assert_eq!(read_rules(folder.path()).expect("it reads").text(), "one\ntwo\n");
        assert_eq!(read_rules(&folder.path().join("a.yaml")).expect("it reads").text(), "one");
        // Orchestrators link to the files of a hidden folder.
        std::fs::remove_file(folder.path().join("a.yaml")).expect("it removes");
        std::os::unix::fs::symlink(".c.yaml", folder.path().join("a.yaml")).expect("a link");
        assert_eq!(read_rules(folder.path()).expect("it reads").text(), "hidden\ntwo\n");
    }
}
