//! The copy of the live changes on this server's disk, for a restart while the database is away.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tollgate_database::changes::{ChangeKind, ChangesVersion, LiveChange};

use crate::hex;

/// Owner only: conditions name customers.
const MODE: u32 = 0o600;

/// Writes the copy: first another file, which then replaces the old one, so that a crash leaves one of them whole.
pub(super) fn write(path: &Path, version: ChangesVersion, changes: &[LiveChange]) -> io::Result<()> {
    let changes: Vec<Value> = changes.iter().map(to_json).collect();
    let text =
        json!({ "version": version.number, "head": hex::of(&version.head), "changes": changes }).to_string();
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let mut file = File::options().write(true).create(true).truncate(true).mode(MODE).open(&next)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&next, path)
}

/// Reads the copy; `None` if it does not exist.
pub(super) fn read(path: &Path) -> io::Result<Option<(ChangesVersion, Vec<LiveChange>)>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the file is not a copy of live changes");
    let root: Value = serde_json::from_str(&text).map_err(|_| invalid())?;
    let version = || {
        let (number, head) = (root["version"].as_i64()?, hex::to_32_bytes(root["head"].as_str()?)?);
        Some(ChangesVersion { number, head })
    };
    let changes = root["changes"].as_array().ok_or_else(invalid)?.iter().map(from_json);
    let changes = changes.collect::<Option<Vec<LiveChange>>>().ok_or_else(invalid)?;
    Ok(Some((version().ok_or_else(invalid)?, changes)))
}

fn to_json(change: &LiveChange) -> Value {
    json!({
        "id": change.id,
        "kind": change.kind.name(),
        "version": change.version,
        "spec": change.spec,
        "until_us": change.until_us,
        "reason": change.reason,
        "author": change.author,
        "created_us": change.created_us,
        "changed_us": change.changed_us,
    })
}

fn from_json(value: &Value) -> Option<LiveChange> {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    Some(LiveChange {
        id: text("id")?,
        kind: ChangeKind::named(value["kind"].as_str()?)?,
        version: value["version"].as_i64()?,
        spec: text("spec")?,
        until_us: value["until_us"].as_i64(),
        reason: text("reason")?,
        author: text("author")?,
        created_us: value["created_us"].as_i64()?,
        changed_us: value["changed_us"].as_i64()?,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_copy_is_read_as_it_was_written_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("changes.json");
        assert!(read(&path).expect("no copy is no error").is_none());
        let version = ChangesVersion { number: 7, head: [0xab; 32] };
        let change = LiveChange {
            id: "o-1".to_owned(),
            kind: ChangeKind::Override,
            version: 2,
            spec: r#"{"rule":"search","scale":"2"}"#.to_owned(),
            until_us: Some(5),
            reason: "launch \"x\"".to_owned(),
            author: "jane".to_owned(),
            created_us: 1,
            changed_us: 2,
        };
        for changes in [vec![change.clone()], vec![LiveChange { until_us: None, ..change }]] {
            write(&path, version, &changes).expect("it writes");
            assert_eq!(read(&path).expect("it reads"), Some((version, changes)));
            assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, MODE);
        }
        fs::write(&path, "{}").expect("it writes");
        assert!(read(&path).is_err());
    }
}
