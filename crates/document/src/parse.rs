//! Parses a source into a tree.
//!
//! Only a subset of YAML is supported: one document of maps, lists and scalars. Anchors, aliases, tags, merge keys
//! and directives are errors, because with them a value depends on text elsewhere in the file.

mod merge;

use std::collections::HashMap;
use std::ops::ControlFlow::{self, Break, Continue};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, options};

use super::node::{Entry, Node, Text, Value};
use super::problem::{Problem, Problems, quote};
use super::source::{Defect, SOURCE_BYTES_MAX, Source, SourceSpan};

/// Maximum nesting depth of maps and lists.
pub const DEPTH_MAX: usize = 64;

/// Maximum number of nodes in a file.
pub const NODES_MAX: usize = 200_000;

/// Parses a source into a tree.
///
/// Returns `None` after a syntax error, for bytes that are not UTF-8, and for a file that exceeds a limit; one problem
/// says which. Anything else that is unsupported is reported and becomes [`Value::Invalid`], so that the rest of the
/// file can be checked. An empty file is [`Value::Null`].
///
/// Of several files, each is parsed, and their trees are merged: lists are joined, and a key that is no list says the same in all of them.
pub fn parse(source: &Source, problems: &mut Problems) -> Option<Node> {
    match source.files() {
        [] => parse_file(source, problems),
        files => merge::parse_files(files, problems),
    }
}

fn parse_file(source: &Source, problems: &mut Problems) -> Option<Node> {
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
            Break(Stop::Finished) => break,
            Break(Stop::Failed) => return None,
        }
    }
    Some(tree.root.unwrap_or(Node { value: Value::Null, span: SourceSpan::default() }))
}

/// A problem of the bytes themselves: too large, not UTF-8, or not printable.
fn unreadable(source: &Source) -> Option<Problem> {
    match source.defect() {
        Some(Defect::TooLarge { bytes }) => {
            return Some(Problem::error(
                "too-large",
                SourceSpan::default(),
                format!("file too large: {bytes} bytes; the maximum is {SOURCE_BYTES_MAX}"),
            ));
        }
        Some(Defect::NotUtf8 { at, byte, utf16 }) => {
            let message = format!("invalid UTF-8: byte 0x{byte:02x} at offset {at}");
            let span = SourceSpan::new(at, at + char::REPLACEMENT_CHARACTER.len_utf8());
            let encoding = if utf16 { "the file looks like UTF-16; " } else { "" };
            return Some(
                Problem::error("not-utf8", span, message).help(format!("{encoding}save it as UTF-8")),
            );
        }
        None => {}
    }
    let (at, c) = source.text().char_indices().find(|&(_, c)| !is_printable(c))?;
    let message = format!("character U+{:04X} is not allowed in a YAML file", u32::from(c));
    let problem = Problem::error("control-character", SourceSpan::new(at, at + c.len_utf8()), message);
    Some(problem.help(r#"remove it, or write it as an escape in double quotes, like "\x00""#))
}

/// The characters that YAML allows in a file. The parser would treat a NUL as the end of the file.
fn is_printable(c: char) -> bool {
    matches!(
        c,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..
    )
}

/// A syntax error. The parser's common messages are replaced, because only YAML experts understand them.
fn syntax(source: &Source, error: &ScanError) -> Problem {
    let marker = error.marker();
    let at = marker.byte_offset().unwrap_or_else(|| {
        source.text().char_indices().nth(marker.index()).map_or(source.text().len(), |(at, _)| at)
    });
    let width = source.text().get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    let span = SourceSpan::new(at, at + width);
    let (message, help) = match error.kind() {
        ErrorKind::RecursionLimitExceeded => return too_deep(span),
        ErrorKind::DirectiveDisallowed => ("YAML directives are not supported", "remove the line"),
        ErrorKind::ExpectedFlowMappingSeparator => (
            "expected `,` or `}`",
            "inside `{ }` and `[ ]`, quote text that contains one of `{ } [ ] ,`, like \"/items/{id}\"",
        ),
        ErrorKind::ExpectedFlowSequenceSeparator => (
            "expected `,` or `]`",
            "inside `{ }` and `[ ]`, quote text that contains one of `{ } [ ] ,`, like \"/items/{id}\"",
        ),
        ErrorKind::MappingValueNotAllowed => {
            ("`:` without a key", "quote text that contains `: `; align keys with the keys around them")
        }
        ErrorKind::ExpectedBlockMappingKey => {
            ("expected a key", "align it with the keys above: same column, spaces only")
        }
        ErrorKind::ExpectedBlockSequenceEntry => {
            ("expected `- `", "align the line with the list or with the keys above: same column, spaces only")
        }
        ErrorKind::UnclosedFlowCollection { open: '[' } => ("unclosed `[`", "add the closing `]`"),
        ErrorKind::UnclosedFlowCollection { .. } => ("unclosed `{`", "add the closing `}`"),
        ErrorKind::UnclosedQuotedScalar => ("unclosed quote", "add the closing quote"),
        ErrorKind::SimpleKeyExpected => {
            ("expected `:` after this key", "write `key: value`, with a space after the colon")
        }
        ErrorKind::MisplacedFlowCollectionEnd => {
            ("closing bracket without an opening bracket", "remove it, or add the opening bracket")
        }
        ErrorKind::UnknownQuotedScalarEscape => {
            ("unknown escape sequence in double quotes", r"write `\\` for a backslash, or use single quotes")
        }
        ErrorKind::MissingAnchorOrAliasName => (
            "unquoted text cannot start with this character",
            "put text that starts with `*` or `&` in quotes",
        ),
        ErrorKind::InvalidQuotedScalarIndent => (
            "invalid indentation in quoted text",
            "add the closing quote, or indent the line further than its key",
        ),
        ErrorKind::UnexpectedCharacter { .. } => {
            ("unquoted text cannot start with this character", "put the text in quotes")
        }
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart => {
            let problem = Problem::error("syntax", tab_near(source.text(), at), "tab used for indentation");
            return problem.help("indent with spaces");
        }
        _ => return Problem::error("syntax", span, error.info()),
    };
    Problem::error("syntax", span, message).help(help)
}

/// The span of the tab near `at`: the parser reports a position next to the tab.
fn tab_near(text: &str, at: usize) -> SourceSpan {
    let before = text.get(..at).unwrap_or_default();
    let start = match text.get(at..).unwrap_or_default().find('\t') {
        Some(0) => at,
        _ if before.ends_with('\t') => at - 1,
        Some(ahead) => at + ahead,
        None => at,
    };
    SourceSpan::new(start, start + 1)
}

fn too_deep(span: SourceSpan) -> Problem {
    Problem::error("too-deep", span, format!("maps and lists are nested more than {DEPTH_MAX} levels deep"))
}

/// Why parsing stops before the end of the file.
enum Stop {
    /// The tree so far is complete.
    Finished,
    /// There is no usable tree.
    Failed,
}

/// The tree under construction.
struct Tree<'a> {
    source: &'a Source,
    problems: &'a mut Problems,
    open: Vec<Open>,
    root: Option<Node>,
    nodes: usize,
    documents: usize,
}

/// A map or list whose end has not been reached.
enum Open {
    List { span: SourceSpan, items: Vec<Node> },
    Map { span: SourceSpan, entries: Vec<Entry>, key: Option<Node>, seen: HashMap<String, SourceSpan> },
}

impl Tree<'_> {
    /// Handles one parser event.
    fn event(&mut self, event: Event<'_>, parser_span: &granit_parser::Span) -> ControlFlow<Stop> {
        let span = source_span(parser_span);
        if let Some(tag) = parser_span.tag_span() {
            self.problems.push_error_with(|| {
                let message = "YAML tags are not supported";
                Problem::error("tag", source_span(&tag), message).help("remove the tag")
            });
        }
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let problem = Problem::error("several-documents", span, "more than one YAML document");
                    self.problems.push(problem.help("a file holds one document; remove the `---`"));
                    return Break(Stop::Finished);
                }
            }
            Event::Scalar(text, style, ..) => {
                let value = scalar(&text, style);
                let span = match style {
                    ScalarStyle::Literal | ScalarStyle::Folded => {
                        SourceSpan::new(span.start, span.start + self.source.slice(span).trim_end().len())
                    }
                    _ => span,
                };
                self.add(Node { value, span })?;
            }
            Event::SequenceStart(..) => self.open(Open::List { span, items: Vec::new() })?,
            Event::MappingStart(..) => {
                self.open(Open::Map { span, entries: Vec::new(), key: None, seen: HashMap::new() })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span)?,
            Event::Anchor(_, name) => self.problems.push_error_with(|| {
                let message = format!("unsupported YAML anchor {}", quote(&name));
                Problem::error("alias", span, message)
                    .help("remove it, and write the value out where it is used")
            }),
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                let name = self.source.slice(span);
                self.problems.push_error_with(|| {
                    let message = format!("unsupported YAML alias {}", quote(name));
                    Problem::error("alias", span, message).help("write the value out")
                });
                self.add(Node { value: Value::Invalid, span })?;
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
        let (Open::List { span, .. } | Open::Map { span, .. }) = open;
        if self.open.len() >= DEPTH_MAX {
            return self.fail(too_deep(span));
        }
        self.open.push(open);
        Continue(())
    }

    /// Closes the innermost map or list. It ends at its closing bracket, if it has one.
    fn close(&mut self, bracket: SourceSpan) -> ControlFlow<Stop> {
        let Some(open) = self.open.pop() else { return Continue(()) };
        let (start, last, value) = match open {
            Open::List { span, items } => (span, items.last().map(|item| item.span), Value::List(items)),
            Open::Map { span, entries, .. } => {
                (span, entries.last().map(|entry| entry.value.span), Value::Map(entries))
            }
        };
        let end = if bracket.start < bracket.end { bracket } else { last.unwrap_or(start) };
        self.add(Node { value, span: start.to(end) })
    }

    /// Adds a node to the innermost open map or list.
    fn add(&mut self, node: Node) -> ControlFlow<Stop> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            let message = format!("the file has more than {NODES_MAX} values");
            return self.fail(Problem::error("too-many-nodes", node.span, message));
        }
        match self.open.last_mut() {
            None => {
                self.root.get_or_insert(node);
            }
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { entries, key, seen, .. }) => match key.take() {
                Some(key) => {
                    // A missing value has no text to underline, so problems point at its key.
                    let absent = node.value == Value::Null && node.span.start == node.span.end;
                    let span = if absent { key.span } else { node.span };
                    entries.push(Entry { key, value: Node { span, ..node } });
                }
                None => *key = Some(readable_key(self.source, node, seen, self.problems)),
            },
        }
        Continue(())
    }
}

/// Converts a key to text; returns [`Value::Invalid`] after reporting why that is impossible.
fn readable_key(
    source: &Source,
    key: Node,
    seen: &mut HashMap<String, SourceSpan>,
    problems: &mut Problems,
) -> Node {
    let span = key.span;
    let invalid = Node { value: Value::Invalid, span };
    let text = match key.value {
        Value::Text(text) => text,
        Value::Bool(_) => Text { text: source.slice(span).to_owned(), quoted: false },
        Value::Null | Value::List(_) | Value::Map(_) => {
            let message = format!("invalid key: found {}, expected a name", key.found());
            problems.push(Problem::error("key-not-text", span, message));
            return invalid;
        }
        Value::Invalid => return invalid,
    };
    if text.text == "<<" && !text.quoted {
        let problem = Problem::error("merge-key", span, "YAML merge keys are not supported");
        problems.push(problem.help("write the keys out"));
        return invalid;
    }
    match seen.get(&text.text) {
        Some(&first) => problems.push_error_with(|| {
            let message = format!("duplicate key {}", quote(&text.text));
            Problem::error("duplicate-key", span, message).label("repeated here").also(first, "first here")
        }),
        None => {
            seen.insert(text.text.clone(), span);
        }
    }
    Node { value: Value::Text(text), span }
}

/// The value of a scalar, by the core schema of YAML 1.2.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    let quoted = style != ScalarStyle::Plain;
    match text {
        "" | "~" | "null" | "Null" | "NULL" if !quoted => Value::Null,
        "true" | "True" | "TRUE" if !quoted => Value::Bool(true),
        "false" | "False" | "FALSE" if !quoted => Value::Bool(false),
        _ => Value::Text(Text { text: text.to_owned(), quoted }),
    }
}

fn source_span(parser_span: &granit_parser::Span) -> SourceSpan {
    parser_span.byte_range().map_or_else(SourceSpan::default, |range| SourceSpan::new(range.start, range.end))
}

#[cfg(test)]
mod tests;
