//! Old names of keys, which are accepted for some time after a rename.

use crate::node::{Node, Value};
use crate::problem::{Problem, Problems};
use crate::source::SourceSpan;

/// An optional key that has a new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RenamedKey {
    /// The old name.
    pub old: &'static str,
    /// The new name.
    pub new: &'static str,
    /// The release that no longer accepts the old name.
    pub until: &'static str,
}

/// Replaces the old keys of a map by their new names, so that later steps see only new names.
///
/// Returns every replaced key with its span. A map that has both names of a key is an error.
pub fn rename_keys(
    renamed: &'static [RenamedKey],
    map: &mut Node,
    problems: &mut Problems,
) -> Vec<(SourceSpan, RenamedKey)> {
    let mut replaced = Vec::new();
    for key in renamed {
        let new_span = map.entry(key.new).map(|entry| entry.key.span);
        let Value::Map(entries) = &mut map.value else { break };
        for entry in entries.iter_mut().filter(|entry| entry.key.text() == Some(key.old)) {
            let old_span = entry.key.span;
            if let Some(new_span) = new_span {
                entry.key.value = Value::Invalid;
                problems.push_error_with(|| {
                    let message = format!("duplicate key `{}`: `{}` is its old name", key.new, key.old);
                    Problem::error("duplicate-key", old_span, message)
                        .also(new_span, "the new name is here")
                        .help(format!("remove `{}`", key.old))
                });
            } else if let Value::Text(text) = &mut entry.key.value {
                key.new.clone_into(&mut text.text);
                replaced.push((old_span, *key));
            }
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, parse};

    const RENAMED: &[RenamedKey] = &[
        RenamedKey { old: "max", new: "limit", until: "2.0" },
        RenamedKey { old: "by", new: "per", until: "2.0" },
    ];

    fn renamed(text: &str) -> (Vec<String>, Vec<&'static str>, Vec<String>) {
        let source = Source::new("f", text.as_bytes());
        let mut problems = Problems::new();
        let mut node = parse(&source, &mut problems).expect("valid YAML");
        let replaced = rename_keys(RENAMED, &mut node, &mut problems);
        let keys = node.entries().iter().filter_map(|entry| entry.key.text().map(str::to_owned));
        let messages = problems.in_order().iter().map(|problem| problem.message.clone()).collect();
        (keys.collect(), replaced.iter().map(|(_, key)| key.old).collect(), messages)
    }

    #[test]
    fn old_keys_get_their_new_names() {
        let (keys, replaced, problems) = renamed("{ by: user, max: 5, other: 1 }");
        assert_eq!(keys, ["per", "limit", "other"]);
        assert_eq!(replaced, ["max", "by"]);
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn both_names_of_a_key_are_an_error() {
        let (keys, replaced, problems) = renamed("{ max: 5, limit: 6 }");
        assert_eq!(keys, ["limit"]);
        assert_eq!(replaced, [""; 0]);
        assert_eq!(problems, ["duplicate key `limit`: `max` is its old name"]);
    }

    #[test]
    fn only_maps_have_keys_to_rename() {
        for text in ["max", "[max, by]", ""] {
            assert_eq!(renamed(text).1, [""; 0], "{text}");
        }
    }
}
