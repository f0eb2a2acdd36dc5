//! Old names of rules file keys. They are accepted for one release, with the lint `renamed-key`.

use tollgate_document::shape::{RenamedKey, rename_keys};
use tollgate_document::{Node, Problems, SourceSpan, Value};

/// Old keys of a rule.
pub(super) const RULE_KEYS: &[RenamedKey] =
    &[RenamedKey { old: "strangers_max", new: "ip_subjects_max", until: "0.2.0" }];

/// An old key in a file, and the span of that key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OldKey {
    /// Both names, and the release that no longer accepts the old one.
    pub(super) key: RenamedKey,
    /// The span of the old name.
    pub(super) span: SourceSpan,
}

/// Replaces all old keys of a file by their new names and returns them. A rule with both names is an error.
pub(super) fn replace_old_keys(root: &mut Node, problems: &mut Problems) -> Vec<OldKey> {
    let mut found = Vec::new();
    let Value::Map(entries) = &mut root.value else { return found };
    for entry in entries.iter_mut().filter(|entry| entry.key.text() == Some("rules")) {
        let Value::List(rules) = &mut entry.value.value else { continue };
        // A preset does not have these keys.
        for rule in rules.iter_mut().filter(|rule| rule.entry("use").is_none()) {
            let replaced = rename_keys(RULE_KEYS, rule, problems);
            found.extend(replaced.into_iter().map(|(span, key)| OldKey { key, span }));
        }
    }
    found
}
