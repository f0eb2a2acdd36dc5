//! The Lua twins, put together into one script for the algorithms a batch needs.
//!
//! A script runs from its first line on every call, so that each function it defines costs time even if it is not
//! called: a script carries the twins that are needed and no others.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use tollgate_core::Limit;

const PRELUDE: &str = include_str!("../lua/prelude.lua");
const DRIVER: &str = include_str!("../lua/driver.lua");

/// Kind of state, name of the function, source; a twin's kind is that of core's state.
const TWINS: [(u8, &str, &str); 8] = [
    (1, "fixed_window", include_str!("../lua/fixed_window.lua")),
    (2, "sliding_window", include_str!("../lua/sliding_window.lua")),
    (3, "sliding_log", include_str!("../lua/sliding_log.lua")),
    (4, "bucket", include_str!("../lua/bucket.lua")),
    (5, "concurrency", include_str!("../lua/concurrency.lua")),
    (6, "quota", include_str!("../lua/quota.lua")),
    (7, "meter", include_str!("../lua/meter.lua")),
    (8, "penalty", include_str!("../lua/penalty.lua")),
];

/// A set of algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const fn insert(&mut self, kind: u8) {
        self.0 |= 1 << (kind - 1);
    }

    pub(crate) const fn union(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    const fn contains(self, kind: u8) -> bool {
        self.0 & 1 << (kind - 1) != 0
    }
}

/// The kind of state a limit keeps.
pub(crate) const fn kind_of(limit: &Limit) -> u8 {
    match limit {
        Limit::FixedWindow(_) => 1,
        Limit::SlidingWindow(_) => 2,
        Limit::SlidingLog(_) => 3,
        Limit::Bucket(_) => 4,
        Limit::Concurrency(_) => 5,
        Limit::Quota(_) => 6,
        Limit::Meter(_) => 7,
        Limit::Penalty(_) => 8,
    }
}

/// A script and what Redis knows it by.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: String,
    /// SHA-1 in 40 hexadecimal digits.
    pub(crate) digest: String,
}

/// Every script that was needed so far, by the algorithms in it.
pub(crate) struct Scripts {
    made: [OnceLock<Arc<Script>>; 256],
    edit: Edit,
}

/// Makes of a file's name and source what goes into scripts: tests plant mistakes.
pub(crate) type Edit = Box<dyn Fn(&str, &str) -> String + Send + Sync>;

impl Scripts {
    pub(crate) fn new() -> Scripts {
        Scripts::edited(Box::new(|_, source| source.to_owned()))
    }

    pub(crate) fn edited(edit: Edit) -> Scripts {
        Scripts { made: [const { OnceLock::new() }; 256], edit }
    }

    /// The script for these algorithms.
    pub(crate) fn of(&self, kinds: Kinds) -> &Arc<Script> {
        self.made[usize::from(kinds.0)].get_or_init(|| {
            let source = assemble(kinds, &self.edit);
            Arc::new(Script { digest: sha1_smol::Sha1::from(&source).digest().to_string(), source })
        })
    }
}

/// The whole script for these algorithms.
fn assemble(kinds: Kinds, edit: &Edit) -> String {
    let mut script = edit("prelude", PRELUDE);
    let mut table = String::from("local twins = {");
    for (kind, name, source) in TWINS.into_iter().filter(|(kind, ..)| kinds.contains(*kind)) {
        script.push_str(&edit(name, source));
        // Writing to a string does not fail.
        _ = write!(table, " [{kind}] = {name},");
    }
    script.push_str(&table);
    script.push_str(" }\n");
    if !kinds.contains(3) {
        // The driver names what only a log needs.
        script.push_str("local open_log, edit_log, write_log\n");
    }
    script.push_str(&edit("driver", DRIVER));
    fold(&strip(&script))
}

/// Without comments and indentation: Redis keeps the text, and tells the line of an error.
fn strip(script: &str) -> String {
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

/// With every constant put in where it is used. A constant is a name in capitals that a line at the left edge gives a
/// plain number.
fn fold(script: &str) -> String {
    let mut constants = HashMap::new();
    let mut folded = String::with_capacity(script.len());
    for line in script.lines() {
        match declared(line) {
            Some(declared) => constants.extend(declared),
            None => put_in(line, &constants, &mut folded),
        }
        folded.push('\n');
    }
    folded
}

/// The constants that a line declares, if that is all it does.
fn declared(line: &str) -> Option<Vec<(&str, &str)>> {
    let (names, values) = line.strip_prefix("local ")?.split_once(" = ")?;
    let (names, values): (Vec<&str>, Vec<&str>) = (names.split(", ").collect(), values.split(", ").collect());
    let constant = |name: &&str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let plain = |value: &&str| value.bytes().all(|byte| byte.is_ascii_digit());
    let all = names.len() == values.len() && names.iter().all(constant) && values.iter().all(plain);
    all.then(|| names.into_iter().zip(values).collect())
}

fn put_in(line: &str, constants: &HashMap<&str, &str>, folded: &mut String) {
    let mut rest = line;
    while let Some(start) = rest.find(is_of_name) {
        let end = rest[start..].find(|c| !is_of_name(c)).map_or(rest.len(), |length| start + length);
        let name = &rest[start..end];
        folded.push_str(&rest[..start]);
        folded.push_str(constants.get(name).unwrap_or(&name));
        rest = &rest[end..];
    }
    folded.push_str(rest);
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_put_in_and_nothing_else_is() {
        let script = "local A, B_C = 1, 22\nlocal D = A\nx = A + B_C * AB - 'PX' .. f(B_C)\n";
        assert_eq!(fold(script), "\nlocal D = 1\nx = 1 + 22 * AB - 'PX' .. f(22)\n");
    }

    #[test]
    fn a_script_has_the_twins_it_needs_and_no_others() {
        let scripts = Scripts::new();
        let (mut one, mut all) = (Kinds::default(), Kinds::default());
        one.insert(4);
        TWINS.iter().for_each(|(kind, ..)| all.insert(*kind));
        let (small, large) = (scripts.of(one), scripts.of(all));
        assert!(
            small.source.contains("local function bucket(")
                && !small.source.contains("local function quota(")
        );
        assert!(large.source.contains("local function quota("));
        assert_eq!((small.digest.len(), large.digest.len()), (40, 40));
        assert_ne!(small.digest, large.digest);
    }
}
