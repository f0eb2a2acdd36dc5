//! Formats problems: as text for people, as JSON, and as SARIF for code review tools.

use std::collections::BTreeSet;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_json::{Value, json};

use super::problem::{Label, Problem, Problems, Severity};
use super::source::{Source, SourceSpan};

/// Longest source line that is printed. For a longer line only its number is printed, which bounds the output.
const LINE_BYTES_MAX: usize = 1_000;

/// Labels at most this many lines apart are printed in one snippet.
const GAP_LINES_MAX: usize = 4;

/// Whether the text contains terminal colour codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Colour {
    /// No colour codes.
    Plain,
    /// ANSI colour codes.
    Ansi,
}

impl Problems {
    /// Formats all problems as text: message, position, source line and fix. Empty if there is no problem.
    pub fn render(&self, source: &Source, colour: Colour) -> String {
        let renderer = match colour {
            Colour::Plain => Renderer::plain(),
            Colour::Ansi => Renderer::styled(),
        };
        let mut out = String::new();
        for problem in self.listed(source) {
            out.push_str(&renderer.render(&[report(&problem, source)]));
            out.push_str("\n\n");
        }
        out
    }

    /// Formats all problems as a list of
    /// `{file, line, column, end: {line, column}, severity, code, message, label, help, related}`, with
    /// `{file, line, column, end, label}` in `related`.
    ///
    /// Lines and columns count from 1. Columns count characters. `end` is the first character after the span.
    pub fn to_json(&self, source: &Source) -> Value {
        let related = |label: &Label| {
            let (start, end) = (source.position(label.span.start), source.position(label.span.end));
            json!({
                "file": source.name_at(label.span.start),
                "line": start.line,
                "column": start.column,
                "end": { "line": end.line, "column": end.column },
                "label": label.text,
            })
        };
        let listed = self.listed(source).into_iter().map(|problem| {
            let start = source.position(problem.label.span.start);
            let end = source.position(problem.label.span.end);
            json!({
                "file": source.name_at(problem.label.span.start),
                "line": start.line,
                "column": start.column,
                "end": { "line": end.line, "column": end.column },
                "severity": problem.severity.name(),
                "code": problem.code,
                "message": problem.message,
                "label": problem.label.text,
                "help": problem.help,
                "related": problem.more.iter().map(related).collect::<Value>(),
            })
        });
        listed.collect()
    }

    /// The kept problems in source order, followed by a note about the number that was left out.
    fn listed(&self, source: &Source) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self.in_order().into_iter().cloned().collect();
        if self.left_out() > 0 {
            let end = SourceSpan::new(source.text().len(), source.text().len());
            let message = format!("{} more problems are not listed", self.left_out());
            problems.push(Problem::note("too-many-problems", end, message));
        }
        problems
    }
}

/// Formats the problems of several files in the Static Analysis Results Interchange Format (SARIF) 2.1.0.
pub fn sarif<'a>(files: impl IntoIterator<Item = (&'a Source, &'a Problems)>) -> Value {
    let mut codes = BTreeSet::new();
    let mut results = Vec::new();
    for (source, problems) in files {
        for problem in problems.listed(source) {
            codes.insert(problem.code);
            let location = |label: &Label| sarif_location(source, label);
            let text = match &problem.help {
                Some(help) => format!("{}\n\n{help}", problem.message),
                None => problem.message.clone(),
            };
            results.push(json!({
                "ruleId": problem.code,
                "level": problem.severity.name(),
                "message": { "text": text },
                "locations": [location(&problem.label)],
                "relatedLocations": problem.more.iter().map(location).collect::<Value>(),
            }));
        }
    }
    let rules: Value = codes.into_iter().map(|code| json!({ "id": code })).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "tollgate", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn sarif_location(source: &Source, label: &Label) -> Value {
    let (start, end) = (source.position(label.span.start), source.position(label.span.end));
    let mut location = json!({
        "physicalLocation": {
            "artifactLocation": { "uri": uri(source.name_at(label.span.start)) },
            "region": {
                "startLine": start.line,
                "startColumn": start.column,
                "endLine": end.line,
                "endColumn": end.column,
            },
        },
    });
    if !label.text.is_empty() {
        location["message"] = json!({ "text": label.text });
    }
    location
}

/// A file name as a relative URI reference, or as a `file:` URI if it is absolute.
fn uri(name: &str) -> String {
    let mut out = String::from(if name.starts_with('/') { "file://" } else { "" });
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(byte.into())
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// One problem with the source lines it is about.
fn report<'a>(problem: &'a Problem, source: &'a Source) -> Group<'a> {
    let level = match problem.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let mut group = Group::with_title(level.primary_title(problem.message.as_str()).id(problem.code));
    let mut without_snippet = Vec::new();
    for near in grouped_labels(problem, source) {
        match snippet(&near, source) {
            Some(snippet) => group = group.element(snippet),
            None => {
                for Mark { label, .. } in near {
                    let start = source.position(label.span.start);
                    let path = Origin::path(source.name_at(label.span.start));
                    group = group.element(path.line(start.line).char_column(start.column));
                    without_snippet.extend((!label.text.is_empty()).then_some(label.text.as_str()));
                }
            }
        }
    }
    group
        .elements(without_snippet.into_iter().map(|text| Level::NOTE.message(text)))
        .elements(problem.help.as_deref().map(|help| Level::HELP.message(help)))
}

/// A label, its line, and how it is drawn.
struct Mark<'a> {
    label: &'a Label,
    /// Over all files.
    line: usize,
    kind: AnnotationKind,
}

/// The labels of a problem, grouped by nearby lines. The group with the primary label comes first.
fn grouped_labels<'a>(problem: &'a Problem, source: &Source) -> Vec<Vec<Mark<'a>>> {
    let primary = std::iter::once((&problem.label, AnnotationKind::Primary));
    let context = problem.more.iter().map(|label| (label, AnnotationKind::Context));
    let mut groups: Vec<Vec<Mark<'a>>> = Vec::new();
    for (label, kind) in primary.chain(context) {
        let (line, file) = (source.line_number(label.span.start), source.name_at(label.span.start));
        let mark = Mark { label, line, kind };
        let is_near = |group: &&mut Vec<Mark<'_>>| {
            group.iter().any(|other| {
                let is_same_file = source.name_at(other.label.span.start) == file;
                is_same_file && other.line.abs_diff(line) <= GAP_LINES_MAX
            })
        };
        match groups.iter_mut().find(is_near) {
            Some(group) => group.push(mark),
            None => groups.push(vec![mark]),
        }
    }
    groups
}

/// The lines from the first label to the last, each label drawn on the line where it starts. `None` if a line is too
/// long.
fn snippet<'a>(marks: &[Mark<'a>], source: &'a Source) -> Option<Snippet<'a, Annotation<'a>>> {
    let first = marks.iter().map(|mark| mark.line).min()?;
    let last = marks.iter().map(|mark| mark.line).max()?;
    let mut text = String::new();
    let mut annotations = Vec::new();
    for number in first..=last {
        let line = source.line(number);
        if line.end - line.start > LINE_BYTES_MAX {
            return None;
        }
        for mark in marks.iter().filter(|mark| mark.line == number) {
            let in_text = |at: usize| text.len() + at.clamp(line.start, line.end) - line.start;
            let span = in_text(mark.label.span.start)..in_text(mark.label.span.end);
            let remark = (!mark.label.text.is_empty()).then_some(mark.label.text.as_str());
            annotations.push(mark.kind.span(span).label(remark));
        }
        text.push_str(source.slice(line));
        text.push('\n');
    }
    let start = marks.iter().map(|mark| mark.label.span.start).min()?;
    let (path, line) = (source.name_at(start), source.position(start).line);
    Some(Snippet::source(text).path(path).line_start(line).annotations(annotations))
}

#[cfg(test)]
mod tests;
