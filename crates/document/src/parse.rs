//! How a source becomes a tree.
//!
//! Only the plain part of YAML is read: one document of maps, lists and scalars. Anchors, aliases, tags, merge keys
//! and directives are refused, because each makes a file mean something that is not written where it is read.

use std::collections::HashMap;
use std::ops::ControlFlow::{self, Break, Continue};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, options};

use super::node::{Entry, Node, Text, Value};
use super::problem::{Problem, Problems, shown};
use super::source::{Defect, Place, SOURCE_BYTES_MAX, Source};

/// How deep maps and lists may stand in each other.
pub const DEPTH_MAX: usize = 64;

/// How many nodes a file may have.
pub const NODES_MAX: usize = 200_000;

/// Reads a source.
///
/// `None` means that it has no tree: a syntax error, bytes that are no text, or a limit passed; one problem says
/// which. Everything else that is refused is reported and left behind as [`Value::Refused`], so that the rest of the
/// file can be checked. An empty file is [`Value::Null`].
pub fn parse(source: &Source, problems: &mut Problems) -> Option<Node> {
    if let Some(problem) = unreadable(source) {
        problems.push(problem);
        return None;
    }
    let mut tree = Tree { source, problems, open: Vec::new(), root: None, nodes: 0, documents: 0 };
    let options = options! {
        emit_unresolved_aliases: true,
        emit_anchor_events: true,
        emit_comments: false,
        disallow_directives: true,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    for event in Parser::new_from_str_with_options(source.text(), options) {
        let step = match event {
            Ok((event, span)) => tree.event(event, &span),
            Err(error) => tree.fail(syntax(source, &error)),
        };
        match step {
            Continue(()) => {}
            Break(Stop::Enough) => break,
            Break(Stop::Failed) => return None,
        }
    }
    Some(tree.root.unwrap_or(Node { value: Value::Null, place: Place::default() }))
}

/// What is wrong with the bytes as such.
fn unreadable(source: &Source) -> Option<Problem> {
    match source.defect() {
        Some(Defect::TooLarge { bytes }) => {
            return Some(Problem::error(
                "too-large",
                Place::default(),
                format!("the file has {bytes} bytes; at most {SOURCE_BYTES_MAX} are read"),
            ));
        }
        Some(Defect::NotUtf8 { at, byte, utf16 }) => {
            let message = format!("the byte 0x{byte:02x} at offset {at} is not UTF-8");
            let place = Place::new(at, at + char::REPLACEMENT_CHARACTER.len_utf8());
            let encoding = if utf16 { "the file looks like UTF-16; " } else { "" };
            return Some(
                Problem::error("not-utf8", place, message).help(format!("{encoding}save it as UTF-8")),
            );
        }
        None => {}
    }
    let (at, c) = source.text().char_indices().find(|&(_, c)| !is_printable(c))?;
    let message = format!("the character U+{:04X} must not stand in a YAML file", u32::from(c));
    let problem = Problem::error("control-character", Place::new(at, at + c.len_utf8()), message);
    Some(problem.help(r#"remove it, or write it as an escape in double quotes, like "\x00""#))
}

/// What YAML lets stand in a file; a NUL would end it unseen.
fn is_printable(c: char) -> bool {
    matches!(
        c,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..
    )
}

/// A syntax error, in words of ours where the parser's need a YAML expert to be understood.
fn syntax(source: &Source, error: &ScanError) -> Problem {
    let marker = error.marker();
    let at = marker.byte_offset().unwrap_or_else(|| {
        source.text().char_indices().nth(marker.index()).map_or(source.text().len(), |(at, _)| at)
    });
    let width = source.text().get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    let place = Place::new(at, at + width);
    let (message, help) = match error.kind() {
        ErrorKind::RecursionLimitExceeded => return too_deep(place),
        ErrorKind::DirectiveDisallowed => ("a YAML directive, which is not read here", "remove the line"),
        ErrorKind::ExpectedFlowMappingSeparator => (
            "`,` or `}` must come here",
            "inside `{ }` and `[ ]`, quote a text that has one of `{ } [ ] ,` in it, like \"/items/{id}\"",
        ),
        ErrorKind::ExpectedFlowSequenceSeparator => (
            "`,` or `]` must come here",
            "inside `{ }` and `[ ]`, quote a text that has one of `{ } [ ] ,` in it, like \"/items/{id}\"",
        ),
        ErrorKind::MappingValueNotAllowed => (
            "a `:` that belongs to no key",
            "quote a text that has `: ` in it; align keys with their neighbours",
        ),
        ErrorKind::ExpectedBlockMappingKey => {
            ("a key must come here", "align it with the keys above: same column, spaces only")
        }
        ErrorKind::ExpectedBlockSequenceEntry => (
            "`- ` must come here",
            "align the line with the list or with the keys above: same column, spaces only",
        ),
        ErrorKind::UnclosedFlowCollection { open: '[' } => ("this `[` is never closed", "write the `]`"),
        ErrorKind::UnclosedFlowCollection { .. } => ("this `{` is never closed", "write the `}`"),
        ErrorKind::UnclosedQuotedScalar => ("this quote is never closed", "write the closing quote"),
        ErrorKind::UnexpectedCharacter { .. } => {
            ("a plain text cannot begin with this character", "put the text in quotes")
        }
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart => {
            let problem =
                Problem::error("syntax", tab_near(source.text(), at), "a tab where only spaces indent");
            return problem.help("write spaces");
        }
        _ => return Problem::error("syntax", place, error.info()),
    };
    Problem::error("syntax", place, message).help(help)
}

/// The parser stops near a tab, not at it.
fn tab_near(text: &str, at: usize) -> Place {
    let before = text.get(..at).unwrap_or_default();
    let start = match text.get(at..).unwrap_or_default().find('\t') {
        Some(0) => at,
        _ if before.ends_with('\t') => at - 1,
        Some(ahead) => at + ahead,
        None => at,
    };
    Place::new(start, start + 1)
}

fn too_deep(place: Place) -> Problem {
    Problem::error(
        "too-deep",
        place,
        format!("maps and lists stand more than {DEPTH_MAX} deep in each other"),
    )
}

/// Why reading ends before the end.
enum Stop {
    /// What was read can be used.
    Enough,
    /// It cannot.
    Failed,
}

/// A tree while it grows.
struct Tree<'a> {
    source: &'a Source,
    problems: &'a mut Problems,
    open: Vec<Open>,
    root: Option<Node>,
    nodes: usize,
    documents: usize,
}

/// A map or list that is not closed yet.
enum Open {
    List { place: Place, items: Vec<Node> },
    Map { place: Place, entries: Vec<Entry>, key: Option<Node>, seen: HashMap<String, Place> },
}

impl Tree<'_> {
    /// Takes one event.
    fn event(&mut self, event: Event<'_>, span: &granit_parser::Span) -> ControlFlow<Stop> {
        let place = place_of(span);
        if let Some(tag) = span.tag_span() {
            self.problems.push_error_with(|| {
                let message = "a tag, which is not read here";
                Problem::error("tag", place_of(&tag), message).help("remove it; the value speaks for itself")
            });
        }
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let problem = Problem::error("several-documents", place, "a second document begins here");
                    self.problems.push(problem.help("one file holds one document; remove the `---`"));
                    return Break(Stop::Enough);
                }
            }
            Event::Scalar(text, style, ..) => {
                let value = scalar(&text, style);
                let place = match style {
                    ScalarStyle::Literal | ScalarStyle::Folded => {
                        Place::new(place.start, place.start + self.source.slice(place).trim_end().len())
                    }
                    _ => place,
                };
                self.add(Node { value, place })?;
            }
            Event::SequenceStart(..) => self.open(Open::List { place, items: Vec::new() })?,
            Event::MappingStart(..) => {
                self.open(Open::Map { place, entries: Vec::new(), key: None, seen: HashMap::new() })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(place)?,
            Event::Anchor(_, name) => self.problems.push_error_with(|| {
                let message = format!("the anchor {}; anchors are not read here", shown(&name));
                Problem::error("alias", place, message)
                    .help("remove it, and write the value out where it is used")
            }),
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                let name = self.source.slice(place);
                self.problems.push_error_with(|| {
                    let message = format!("the alias {}; aliases are not read here", shown(name));
                    Problem::error("alias", place, message).help("write the value out")
                });
                self.add(Node { value: Value::Refused, place })?;
            }
            _ => {}
        }
        Continue(())
    }

    fn fail(&mut self, problem: Problem) -> ControlFlow<Stop> {
        self.problems.push(problem);
        Break(Stop::Failed)
    }

    fn open(&mut self, open: Open) -> ControlFlow<Stop> {
        let (Open::List { place, .. } | Open::Map { place, .. }) = open;
        if self.open.len() >= DEPTH_MAX {
            return self.fail(too_deep(place));
        }
        self.open.push(open);
        Continue(())
    }

    /// Closes the innermost map or list, at its bracket if it has one.
    fn close(&mut self, bracket: Place) -> ControlFlow<Stop> {
        let Some(open) = self.open.pop() else { return Continue(()) };
        let (start, last, value) = match open {
            Open::List { place, items } => (place, items.last().map(|item| item.place), Value::List(items)),
            Open::Map { place, entries, .. } => {
                (place, entries.last().map(|entry| entry.value.place), Value::Map(entries))
            }
        };
        let end = if bracket.start < bracket.end { bracket } else { last.unwrap_or(start) };
        self.add(Node { value, place: start.to(end) })
    }

    /// Puts a node where it belongs.
    fn add(&mut self, node: Node) -> ControlFlow<Stop> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            let message = format!("the file has more than {NODES_MAX} values");
            return self.fail(Problem::error("too-many-nodes", node.place, message));
        }
        match self.open.last_mut() {
            None => {
                self.root.get_or_insert(node);
            }
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { entries, key, seen, .. }) => match key.take() {
                Some(key) => {
                    // What is not there is best shown at the key that lacks it.
                    let absent = node.value == Value::Null && node.place.start == node.place.end;
                    let place = if absent { key.place } else { node.place };
                    entries.push(Entry { key, value: Node { place, ..node } });
                }
                None => *key = Some(readable_key(self.source, node, seen, self.problems)),
            },
        }
        Continue(())
    }
}

/// A key as it can be looked up, or [`Value::Refused`] after saying why it cannot.
fn readable_key(
    source: &Source,
    key: Node,
    seen: &mut HashMap<String, Place>,
    problems: &mut Problems,
) -> Node {
    let place = key.place;
    let refused = Node { value: Value::Refused, place };
    let text = match key.value {
        Value::Text(text) => text,
        Value::Bool(_) => Text { text: source.slice(place).to_owned(), quoted: false },
        Value::Null | Value::List(_) | Value::Map(_) => {
            let message = format!("found {} as a key, expected a name", key.found());
            problems.push(Problem::error("key-not-text", place, message));
            return refused;
        }
        Value::Refused => return refused,
    };
    if text.text == "<<" && !text.quoted {
        let problem = Problem::error("merge-key", place, "a merge key, which is not read here");
        problems.push(problem.help("write the keys out"));
        return refused;
    }
    match seen.get(&text.text) {
        Some(&first) => problems.push_error_with(|| {
            let message = format!("the key {} is there twice", shown(&text.text));
            Problem::error("duplicate-key", place, message).label("again here").also(first, "first here")
        }),
        None => {
            seen.insert(text.text.clone(), place);
        }
    }
    Node { value: Value::Text(text), place }
}

/// What a scalar says, by the core schema of YAML 1.2.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    let quoted = style != ScalarStyle::Plain;
    match text {
        "" | "~" | "null" | "Null" | "NULL" if !quoted => Value::Null,
        "true" | "True" | "TRUE" if !quoted => Value::Bool(true),
        "false" | "False" | "FALSE" if !quoted => Value::Bool(false),
        _ => Value::Text(Text { text: text.to_owned(), quoted }),
    }
}

fn place_of(span: &granit_parser::Span) -> Place {
    span.byte_range().map_or_else(Place::default, |range| Place::new(range.start, range.end))
}

#[cfg(test)]
mod tests;
