//! Assembles the Lua script for the algorithms that a batch needs.
//!
//! Redis runs a script from its first line on every call, so every function that it defines costs time. Therefore a
//! script contains only the twins that its batch needs.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use tollgate_core::Limit;
use tollgate_core::algorithm::bucket_ring::COUNTS_MAX;

const PRELUDE: &str = include_str!("../lua/prelude.lua");
const DRIVER: &str = include_str!("../lua/driver.lua");

/// What the sliding log and the sliding window of many buckets share.
const LOG_RING: &str = include_str!("../lua/ring.lua");
const BUCKET_RING_TWIN: &str = include_str!("../lua/bucket_ring.lua");
/// What the twins of concurrency and quota share.
const HOLDS: &str = include_str!("../lua/holds.lua");

/// Kind of state as in core, name of the Lua function and file, source.
const TWINS: [(u8, &str, &str); 9] = [
    (1, "fixed_window", include_str!("../lua/fixed_window.lua")),
    (COUNTS, "sliding_window", include_str!("../lua/sliding_window.lua")),
    (LOG, "sliding_log", include_str!("../lua/sliding_log.lua")),
    (4, "bucket", include_str!("../lua/bucket.lua")),
    (7, "meter", include_str!("../lua/meter.lua")),
    (8, "penalty", include_str!("../lua/penalty.lua")),
    (CONCURRENCY, "concurrency", include_str!("../lua/concurrency.lua")),
    (QUOTA, "quota", include_str!("../lua/quota.lua")),
    (BUCKET_RING, "bucket_ring", BUCKET_RING_TWIN),
];

const COUNTS: u8 = 2;
const LOG: u8 = 3;
const CONCURRENCY: u8 = 9;
const QUOTA: u8 = 10;
const BUCKET_RING: u8 = 12;
pub(crate) const STAMPED: u8 = 13;

/// A quota or meter under a stamp. Its twin calls that of the account.
const STAMPED_TWIN: &str = include_str!("../lua/stamped.lua");

/// Number of sets of kinds: one bit for each twin, and one for stamped state.
const KIND_SETS: usize = 1 << (TWINS.len() + 1);

/// A set of kinds of state: one bit for each twin.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct KindSet(u16);

/// The bit of a kind. Kinds 5 and 6 are retired, so the bits above them are free.
const fn bit(kind: u8) -> u16 {
    match kind {
        CONCURRENCY => 1 << 4,
        QUOTA => 1 << 5,
        BUCKET_RING => 1 << 8,
        STAMPED => 1 << 9,
        kind => 1 << (kind - 1),
    }
}

impl KindSet {
    pub(crate) const fn insert(&mut self, kind: u8) {
        self.0 |= bit(kind);
    }

    pub(crate) const fn union(self, other: KindSet) -> KindSet {
        KindSet(self.0 | other.0)
    }

    const fn contains(self, kind: u8) -> bool {
        self.0 & bit(kind) != 0
    }
}

/// The kind of a limit's state, as in core.
pub(crate) const fn kind_of(limit: &Limit) -> u8 {
    match limit {
        Limit::FixedWindow(_) => 1,
        Limit::SlidingWindow(limit) if limit.buckets() > COUNTS_MAX => BUCKET_RING,
        Limit::SlidingWindow(_) => COUNTS,
        Limit::SlidingLog(_) => LOG,
        Limit::Bucket(_) => 4,
        Limit::Concurrency(_) => CONCURRENCY,
        Limit::Quota(_) => QUOTA,
        Limit::Meter(_) => 7,
        Limit::Penalty(_) => 8,
    }
}

/// A script and its digest, by which Redis finds it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: String,
    /// SHA-1 in 40 hexadecimal digits.
    pub(crate) digest: String,
}

/// Assembles each script once.
pub(crate) struct Scripts {
    /// Indexed by the bits of the kind set.
    assembled: [OnceLock<Arc<Script>>; KIND_SETS],
    edit: SourceEdit,
}

/// Receives a file's name and source and returns the source to use. Tests plant mutants with it.
pub(crate) type SourceEdit = Box<dyn Fn(&str, &str) -> String + Send + Sync>;

impl Scripts {
    pub(crate) fn new() -> Scripts {
        Scripts::with_edit(Box::new(|_, source| source.to_owned()))
    }

    pub(crate) fn with_edit(edit: SourceEdit) -> Scripts {
        Scripts { assembled: [const { OnceLock::new() }; KIND_SETS], edit }
    }

    /// The script with the twins of these kinds.
    pub(crate) fn get(&self, kinds: KindSet) -> &Arc<Script> {
        self.assembled[usize::from(kinds.0)].get_or_init(|| {
            let source = assemble(kinds, &self.edit);
            Arc::new(Script { digest: sha1_smol::Sha1::from(&source).digest().to_string(), source })
        })
    }
}

fn assemble(kinds: KindSet, edit: &SourceEdit) -> String {
    let mut script = edit("prelude", PRELUDE);
    if kinds.contains(LOG) || kinds.contains(BUCKET_RING) {
        script.push_str(&edit("ring", LOG_RING));
    }
    if kinds.contains(CONCURRENCY) || kinds.contains(QUOTA) {
        script.push_str(&edit("holds", HOLDS));
    }
    let mut table = String::from("local twins = {");
    for (kind, name, source) in TWINS.into_iter().filter(|(kind, ..)| kinds.contains(*kind)) {
        script.push_str(&edit(name, source));
        // Writing to a string does not fail.
        _ = write!(table, " [{kind}] = {name},");
    }
    script.push_str(&table);
    script.push_str(" }\n");
    if kinds.contains(STAMPED) {
        script.push_str(&edit("stamped", STAMPED_TWIN));
        _ = writeln!(script, "twins[{STAMPED}] = stamped");
    } else {
        script.push_str("local stamp_epoch, stamp_revision, stamp_adjusted, stamp_extra\n");
    }
    // The driver refers to these functions.
    if !kinds.contains(LOG) && !kinds.contains(BUCKET_RING) {
        script.push_str("local open_log, edit_log, write_log\n");
    }
    if !kinds.contains(BUCKET_RING) {
        script.push_str("local counts_to_ring, ring_to_counts\n");
        if kinds.contains(COUNTS) {
            // Found only after a rule reduced its number of buckets. Nested, so that other calls do not define all of it.
            let (ring, twin) = (edit("ring", LOG_RING), edit("bucket_ring", BUCKET_RING_TWIN));
            _ = write!(
                script,
                "function ring_to_counts(key, state)\n{ring}{twin}return ring_to_counts(key, state)\nend\n"
            );
        }
    }
    script.push_str(&edit("driver", DRIVER));
    inline_constants(&strip_comments(&script))
}

/// Removes comments and indentation, because Redis keeps the source. Line numbers in errors stay right.
fn strip_comments(script: &str) -> String {
    let mut stripped = String::with_capacity(script.len());
    for line in script.lines() {
        let line = line.trim();
        if !line.starts_with("--") {
            stripped.push_str(line);
        }
        stripped.push('\n');
    }
    stripped
}

/// Replaces each constant by its value. A constant is a name in capitals that an unindented line sets to a number.
fn inline_constants(script: &str) -> String {
    let mut constants = HashMap::new();
    let mut inlined = String::with_capacity(script.len());
    for line in script.lines() {
        match declared_constants(line) {
            Some(declared) => constants.extend(declared),
            None => replace_constants(line, &constants, &mut inlined),
        }
        inlined.push('\n');
    }
    inlined
}

/// The constants that a line declares, if it does nothing else.
fn declared_constants(line: &str) -> Option<Vec<(&str, &str)>> {
    let (names, values) = line.strip_prefix("local ")?.split_once(" = ")?;
    let (names, values): (Vec<&str>, Vec<&str>) = (names.split(", ").collect(), values.split(", ").collect());
    let is_constant = |name: &&str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let is_number = |value: &&str| value.bytes().all(|byte| byte.is_ascii_digit());
    let only_constants =
        names.len() == values.len() && names.iter().all(is_constant) && values.iter().all(is_number);
    only_constants.then(|| names.into_iter().zip(values).collect())
}

fn replace_constants(line: &str, constants: &HashMap<&str, &str>, out: &mut String) {
    let mut rest = line;
    while let Some(start) = rest.find(is_name_char) {
        let end = rest[start..].find(|c| !is_name_char(c)).map_or(rest.len(), |length| start + length);
        let name = &rest[start..end];
        out.push_str(&rest[..start]);
        out.push_str(constants.get(name).unwrap_or(&name));
        rest = &rest[end..];
    }
    out.push_str(rest);
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_replaced_by_their_values_and_other_names_are_kept() {
        let script = "local A, B_C = 1, 22\nlocal D = A\nx = A + B_C * AB - 'PX' .. f(B_C)\n";
        assert_eq!(inline_constants(script), "\nlocal D = 1\nx = 1 + 22 * AB - 'PX' .. f(22)\n");
    }

    #[test]
    fn a_script_contains_only_the_twins_of_its_kinds() {
        let scripts = Scripts::new();
        let (mut one, mut all) = (KindSet::default(), KindSet::default());
        one.insert(4);
        TWINS.iter().for_each(|(kind, ..)| all.insert(*kind));
        let (small, large) = (scripts.get(one), scripts.get(all));
        assert!(
            small.source.contains("local function bucket(")
                && !small.source.contains("local function quota(")
        );
        assert!(large.source.contains("local function quota("));
        assert_eq!((small.digest.len(), large.digest.len()), (40, 40));
        assert_ne!(small.digest, large.digest);
    }
}
