//! The text of a file, and the line and column of each byte.

/// Maximum size of a file, in bytes.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;

/// A half-open byte range of a source. An empty span is a point between two characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SourceSpan {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl SourceSpan {
    /// The range from `start` to `end`; it is empty if `end` is before `start`.
    pub const fn new(start: usize, end: usize) -> SourceSpan {
        SourceSpan { start, end: if end < start { start } else { end } }
    }

    /// The range after `by` more bytes in front of it.
    pub(super) const fn shifted(self, by: usize) -> SourceSpan {
        SourceSpan { start: self.start + by, end: self.end + by }
    }

    /// The smallest span that contains both.
    pub fn to(self, other: SourceSpan) -> SourceSpan {
        SourceSpan::new(self.start.min(other.start), self.end.max(other.end))
    }
}

/// A line and a column, both counted from 1, the column in characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// A file's name and text, or those of several files that make one document.
///
/// Any bytes are accepted here. [`parse`](super::parse()) reports a file that is too large or not UTF-8.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    name: String,
    text: String,
    line_starts: Vec<usize>,
    defect: Option<Defect>,
    /// The files that make the document, each with the offset of its text; empty for a single file.
    files: Vec<(usize, Source)>,
}

/// Why the bytes of a source cannot be used as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Defect {
    /// More than [`SOURCE_BYTES_MAX`].
    TooLarge { bytes: usize },
    /// Not UTF-8, first at `at`.
    NotUtf8 { at: usize, byte: u8, utf16: bool },
}

impl Source {
    /// A source with the name `name` and the content `bytes`.
    pub fn new(name: impl Into<String>, bytes: &[u8]) -> Source {
        // Editors do not show a byte order mark, so it must not count as a column.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let (text, defect) = if bytes.len() > SOURCE_BYTES_MAX {
            (String::new(), Some(Defect::TooLarge { bytes: bytes.len() }))
        } else {
            match std::str::from_utf8(bytes) {
                Ok(text) => (text.to_owned(), None),
                Err(error) => {
                    let at = error.valid_up_to();
                    let utf16 = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
                    let defect = bytes.get(at).map(|&byte| Defect::NotUtf8 { at, byte, utf16 });
                    (String::from_utf8_lossy(bytes).into_owned(), defect)
                }
            }
        };
        Source { name: name.into(), line_starts: line_starts(&text), text, defect, files: Vec::new() }
    }

    /// A source of several files, such as those of a folder. Their trees are merged; positions name the file.
    pub fn of_files(name: impl Into<String>, files: impl IntoIterator<Item = Source>) -> Source {
        let mut text = String::new();
        let mut placed = Vec::new();
        for file in files {
            let start = text.len();
            text.push_str(&file.text);
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            placed.push((start, file));
        }
        Source { name: name.into(), line_starts: line_starts(&text), text, defect: None, files: placed }
    }

    /// The files that make the document, each with the offset of its text; empty for a single file.
    pub(super) fn files(&self) -> &[(usize, Source)] {
        &self.files
    }

    /// The file that has a byte offset, and where its text starts.
    fn file_at(&self, offset: usize) -> (usize, &Source) {
        let after = self.files.partition_point(|(start, _)| *start <= offset);
        self.files.get(after.saturating_sub(1)).map_or((0, self), |(start, file)| (*start, file))
    }

    /// The name of the file that has a byte offset.
    pub fn name_at(&self, offset: usize) -> &str {
        &self.file_at(offset).1.name
    }

    /// Whether this is the file of that name, or one of several.
    pub fn has_file(&self, name: &str) -> bool {
        self.name == name || self.files.iter().any(|(_, file)| file.name == name)
    }

    /// The source with other text at `span`, which is within one file.
    #[must_use]
    pub fn with(&self, span: SourceSpan, text: &str) -> Source {
        if self.files.is_empty() {
            let (before, after) = (self.text.get(..span.start), self.text.get(span.end..));
            let changed = format!("{}{text}{}", before.unwrap_or_default(), after.unwrap_or_default());
            return Source::new(self.name.as_str(), changed.as_bytes());
        }
        let changed = self.files.partition_point(|(start, _)| *start <= span.start) - 1;
        let files = self.files.iter().enumerate().map(|(index, (start, file))| match index == changed {
            true => file.with(SourceSpan::new(span.start - start, span.end - start), text),
            false => file.clone(),
        });
        Source::of_files(self.name.as_str(), files)
    }

    /// The file name that problems are reported with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text without a byte order mark; bytes that are not UTF-8 appear as U+FFFD.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text at `span`; empty if the span is outside this source.
    pub fn slice(&self, span: SourceSpan) -> &str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }

    /// The line and column of a byte offset in its file. An offset past the end is treated as the end.
    pub fn position(&self, offset: usize) -> Position {
        if !self.files.is_empty() {
            let (start, file) = self.file_at(offset);
            return file.position(offset - start);
        }
        let offset = self.text.floor_char_boundary(offset);
        let line = self.line_number(offset);
        let start = self.line_starts.get(line - 1).copied().unwrap_or_default();
        let column = self.text.get(start..offset).unwrap_or_default().chars().count() + 1;
        Position { line, column }
    }

    /// The number of the line that has a byte offset, counted from 1 over all files.
    pub(super) fn line_number(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= offset).max(1)
    }

    /// The span of the line that has a byte offset, without its line break.
    pub fn line_at(&self, offset: usize) -> SourceSpan {
        self.line(self.line_number(offset))
    }

    /// The span of a line, counted from 1 over all files, without its line break. A line past the last one is empty.
    pub(super) fn line(&self, line: usize) -> SourceSpan {
        let start_of = |line: usize| self.line_starts.get(line).copied().unwrap_or(self.text.len());
        let start = start_of(line.saturating_sub(1));
        let text = self.text.get(start..start_of(line)).unwrap_or_default();
        SourceSpan::new(start, start + text.trim_end_matches(['\n', '\r']).len())
    }

    pub(super) fn defect(&self) -> Option<Defect> {
        self.defect
    }
}

/// The offsets where lines start. YAML ends a line at `\n`, at `\r\n` and at a single `\r`.
fn line_starts(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let breaks = bytes.iter().enumerate().filter(|&(at, &byte)| match byte {
        b'\n' => true,
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        _ => false,
    });
    std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, offset: usize) -> (usize, usize) {
        let Position { line, column } = Source::new("f", text.as_bytes()).position(offset);
        (line, column)
    }

    #[test]
    fn columns_count_characters_and_each_line_break_counts_once() {
        for (text, offset, expected) in [
            ("", 0, (1, 1)),
            ("ab", 2, (1, 3)),
            ("äöx", 4, (1, 3)),
            ("äöx", 3, (1, 2)),
            ("a\nb", 1, (1, 2)),
            ("a\nb", 2, (2, 1)),
            ("a\r\nb", 3, (2, 1)),
            ("a\rb", 2, (2, 1)),
            ("a\r\r\nb", 4, (3, 1)),
            ("a\n", 2, (2, 1)),
            ("a", usize::MAX, (1, 2)),
        ] {
            assert_eq!(at(text, offset), expected, "{text:?} at {offset}");
        }
    }

    #[test]
    fn a_line_excludes_its_line_break() {
        let source = Source::new("f", b"one\r\ntwo\rthree\n");
        let lines: Vec<&str> = (1..=5).map(|line| source.slice(source.line(line))).collect();
        assert_eq!(lines, ["one", "two", "three", "", ""]);
    }

    #[test]
    fn positions_in_several_files_name_the_file() {
        let files = || [Source::new("a", b"one\ntwo"), Source::new("b", b""), Source::new("c", b"x\ny\n")];
        let source = Source::of_files("d", files());
        assert_eq!((source.name(), source.text()), ("d", "one\ntwo\nx\ny\n"));
        for (offset, name, line, column, text) in
            [(0, "a", 1, 1, "one"), (6, "a", 2, 3, "two"), (8, "c", 1, 1, "x"), (10, "c", 2, 1, "y")]
        {
            let position = Position { line, column };
            assert_eq!((source.name_at(offset), source.position(offset)), (name, position), "{offset}");
            assert_eq!(source.slice(source.line_at(offset)), text, "{offset}");
        }
        assert!(source.has_file("b") && source.has_file("d") && !source.has_file("e"));
        let changed = source.with(SourceSpan::new(10, 11), "why");
        assert_eq!((changed.text(), changed.name_at(10)), ("one\ntwo\nx\nwhy\n", "c"));
        assert_eq!(files()[0].with(SourceSpan::new(0, 3), "1").text(), "1\ntwo");
        assert_eq!(Source::of_files("d", []).position(0), Position { line: 1, column: 1 });
    }

    #[test]
    fn a_byte_order_mark_does_not_shift_columns() {
        let source = Source::new("f", b"\xef\xbb\xbfa: b");
        assert_eq!(source.text(), "a: b");
        assert_eq!(source.defect(), None);
    }

    #[test]
    fn invalid_utf8_and_oversized_files_are_recorded_as_defects() {
        let source = Source::new("f", b"a: b\nc: \xff\xfe");
        assert_eq!(source.defect(), Some(Defect::NotUtf8 { at: 8, byte: 0xff, utf16: false }));
        assert_eq!(source.position(8), Position { line: 2, column: 4 });
        assert_eq!(Source::new("f", &[b' '; SOURCE_BYTES_MAX]).defect(), None);
        let too_large = Source::new("f", &[b' '; SOURCE_BYTES_MAX + 1]);
        assert_eq!(too_large.defect(), Some(Defect::TooLarge { bytes: SOURCE_BYTES_MAX + 1 }));
    }
}
