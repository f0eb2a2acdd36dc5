//! Valid rules files with random changes.

use std::ops::Range;

use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Valid files: the examples and the presets.
pub(crate) fn valid_files() -> Vec<&'static str> {
    let examples = [
        include_str!("../../../../examples/rules/shop.yaml"),
        include_str!("../../../../examples/rules/all-algorithms.yaml"),
    ];
    examples.into_iter().chain(tollgate::rules::presets::ALL.iter().map(|preset| preset.text)).collect()
}

/// Replacements for words of a file: words of the format, and values at and beyond the limits.
const WORDS: [&str; 65] = [
    "version",
    "namespace",
    "partition",
    "rules",
    "overrides",
    "deny",
    "bypass",
    "id",
    "limit",
    "per",
    "match",
    "missing",
    "ip_subjects_max",
    "strangers_max",
    "cost",
    "by",
    "default",
    "expression",
    "on_failure",
    "mode",
    "rollout",
    "tags",
    "use",
    "when",
    "until",
    "reason",
    "fixed-window",
    "sliding-window",
    "sliding-log",
    "token-bucket",
    "leaky-bucket",
    "concurrency",
    "quota",
    "meter",
    "penalty",
    "burst",
    "capacity",
    "queue",
    "lease",
    "zone",
    "grace",
    "period",
    "rolling",
    "all",
    "0",
    "1",
    "-1",
    "1.5",
    "9007199254740991",
    "9007199254740992",
    "18446744073709551616",
    "0/s",
    "1/104249d",
    "5/7us",
    "100%",
    "0.01%",
    "true",
    "~",
    "\"\"",
    "\"\\e[2J\"",
    "[]",
    "{}",
    "*x",
    "&x",
    "é",
];

#[derive(Clone, Debug)]
enum Change {
    /// A word of the file becomes another word.
    Word(Index, &'static str),
    /// A word of the file becomes another word of the file.
    Words(Index, Index),
    /// The content of a pair of brackets is removed.
    Empty(Index),
    /// A line is removed.
    Remove(Index),
    /// A line is duplicated.
    Duplicate(Index),
    /// A line gets this many blanks as its indentation.
    Indent(Index, usize),
    /// A byte becomes another.
    Byte(Index, u8),
    /// The file ends early.
    Truncate(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        6 => (at(), select(&WORDS[..])).prop_map(|(at, word)| Change::Word(at, word)),
        3 => (at(), at()).prop_map(|(at, from)| Change::Words(at, from)),
        2 => at().prop_map(Change::Empty),
        2 => at().prop_map(Change::Remove),
        2 => at().prop_map(Change::Duplicate),
        1 => (at(), 0_usize..6).prop_map(|(at, blanks)| Change::Indent(at, blanks)),
        1 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        1 => at().prop_map(Change::Truncate),
    ]
}

/// A valid file with one to three changes.
pub(crate) fn mutated_file() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec(change(), 1..4);
    (select(valid_files()), changes).prop_map(|(file, changes)| {
        changes.into_iter().fold(file.as_bytes().to_vec(), |file, change| changed(&file, &change))
    })
}

fn changed(file: &[u8], change: &Change) -> Vec<u8> {
    if file.is_empty() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(file).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let words = words_of(&text);
    match change {
        Change::Word(at, word) if !words.is_empty() => replaced(&text, at.get(&words), word),
        Change::Words(at, from) if !words.is_empty() => {
            replaced(&text, at.get(&words), &text[from.get(&words).clone()])
        }
        Change::Empty(at) => match brackets_of(&text).as_slice() {
            [] => file.to_vec(),
            brackets => replaced(&text, at.get(brackets), ""),
        },
        Change::Remove(at) => {
            let gone = at.index(lines.len());
            joined(lines.iter().enumerate().filter(|(number, _)| *number != gone).map(|(_, line)| *line))
        }
        Change::Duplicate(at) => {
            let twice = at.index(lines.len());
            joined(
                lines
                    .iter()
                    .enumerate()
                    .flat_map(|(number, line)| vec![*line; 1 + usize::from(number == twice)]),
            )
        }
        Change::Indent(at, blanks) => {
            let moved = at.index(lines.len());
            let line = format!("{}{}", " ".repeat(*blanks), lines[moved].trim_start());
            joined(
                lines.iter().enumerate().map(|(number, other)| if number == moved { &line } else { *other }),
            )
        }
        Change::Byte(at, byte) => {
            let mut file = file.to_vec();
            let at = at.index(file.len());
            file[at] = *byte;
            file
        }
        Change::Truncate(at) => file[..at.index(file.len())].to_vec(),
        Change::Word(..) | Change::Words(..) => file.to_vec(),
    }
}

/// The ranges of words: texts between blanks, brackets, commas and colons.
fn words_of(text: &str) -> Vec<Range<usize>> {
    let is_between = |c: char| c.is_whitespace() || "{}[],:".contains(c);
    let starts = text
        .char_indices()
        .filter(|&(at, c)| !is_between(c) && text[..at].chars().next_back().is_none_or(is_between));
    starts.map(|(at, _)| at..text[at..].find(is_between).map_or(text.len(), |len| at + len)).collect()
}

/// The ranges between pairs of brackets.
fn brackets_of(text: &str) -> Vec<Range<usize>> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '{' | '[' => open.push(at + 1),
            '}' | ']' => found.extend(open.pop().map(|start| start..at)),
            _ => {}
        }
    }
    found
}

fn replaced(text: &str, range: &Range<usize>, word: &str) -> Vec<u8> {
    format!("{}{word}{}", &text[..range.start], &text[range.end..]).into_bytes()
}

fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<u8> {
    lines.flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
}
