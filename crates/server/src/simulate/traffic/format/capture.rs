//! The capture of a server: one JSON object per line, and a header at each start of the server.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate::core::Time;

use super::Skip;
use crate::simulate::traffic::records::{Batch, Facts, Names};

/// The version of the format.
pub(crate) const VERSION: u32 = 1;
/// The attributes that are captured in the clear. The others are hashed one by one.
pub(crate) const CLEAR: [&str; 4] = ["action", "method", "path", "plan"];

/// The first line, and the first line after each further start of the server.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Header {
    /// The version of the format.
    pub(crate) tollgate_capture: u32,
    /// The fingerprint of the hash key.
    pub(crate) hash_key: String,
}

/// One check.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Check {
    /// Microseconds since 1970 on the store's clock.
    pub(crate) at: u64,
    /// What the server decided.
    pub(crate) allowed: bool,
    /// The cost, if the request stated one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<u64>,
    /// The attributes as rules saw them, hashed or in the clear. The path is as it was sent.
    pub(crate) attributes: serde_json::Map<String, Value>,
}

/// The number of checks that were lost because the file could not be written fast enough.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Dropped {
    pub(crate) dropped: u64,
}

/// Reads the lines of a capture.
#[derive(Clone, Default, Debug)]
pub(in crate::simulate) struct CaptureReader {
    /// What the lines say about the capture itself.
    pub(in crate::simulate) about: About,
}

/// What a capture says about itself.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(in crate::simulate) struct About {
    /// The fingerprints of the hash keys.
    pub(in crate::simulate) hash_keys: HashSet<String>,
    /// How often the server started.
    pub(in crate::simulate) starts: u64,
    /// Checks that the server did not write.
    pub(in crate::simulate) dropped: u64,
    /// Checks that the server refused.
    pub(in crate::simulate) refused: u64,
}

/// Returns the fingerprint of the hash key if the line is the header of a capture.
pub(in crate::simulate) fn hash_key(line: &str) -> Option<String> {
    let header: Header = serde_json::from_str(line).ok()?;
    (header.tollgate_capture == VERSION).then_some(header.hash_key)
}

impl CaptureReader {
    /// Adds the check of a line to the batch.
    pub(in crate::simulate) fn read(
        &mut self,
        line: &str,
        names: &Names,
        batch: &mut Batch,
    ) -> Result<(), Skip> {
        let Ok(check) = serde_json::from_str::<Check>(line) else { return self.read_other(line) };
        if check.at > Time::MAX.us() {
            return Err(Skip::Unreadable("a time after 2255"));
        }
        for (name, value) in &check.attributes {
            // The names are sorted.
            if let (Ok(name), Value::String(value)) = (names.binary_search(name), value) {
                batch.push_value(name as u16, value);
            }
        }
        self.about.refused += u64::from(!check.allowed);
        batch.finish(Facts {
            at: Time::from_us(check.at),
            whole_second: false,
            duration_us: None,
            cost: check.cost.filter(|&cost| cost <= tollgate::core::EXACT_MAX),
        });
        Ok(())
    }

    fn read_other(&mut self, line: &str) -> Result<(), Skip> {
        if let Ok(Dropped { dropped }) = serde_json::from_str(line) {
            self.about.dropped = self.about.dropped.saturating_add(dropped);
        } else if let Ok(header) = serde_json::from_str::<Header>(line)
            && header.tollgate_capture == VERSION
        {
            self.about.starts += 1;
            self.about.hash_keys.insert(header.hash_key);
        } else {
            return Err(Skip::Unreadable("not a line of a capture"));
        }
        Err(Skip::NotARequest)
    }
}
