//! Comma-separated values, as in RFC 4180. The first line names the columns. A value does not contain line breaks.

use std::borrow::Cow;

use super::access_line::present;
use super::{Skip, Values};

/// Reads values by the columns of a header line.
#[derive(Clone, Debug)]
pub(in crate::simulate) struct Csv {
    delimiter: u8,
    columns: Vec<String>,
    header: String,
}

impl Csv {
    /// Takes the columns from a header line. The delimiter is a comma, a semicolon or a tab.
    pub(super) fn new(header: &str) -> Csv {
        let header = header.trim_end_matches(['\r', '\n']).trim_start_matches('\u{feff}');
        let count = |delimiter: u8| header.bytes().filter(|&byte| byte == delimiter).count();
        let delimiter =
            [b',', b';', b'\t'].into_iter().max_by_key(|&delimiter| (count(delimiter), delimiter == b','));
        let mut reader =
            Csv { delimiter: delimiter.unwrap_or(b','), columns: Vec::new(), header: header.to_owned() };
        let mut names = Vec::new();
        if reader.split(header, &mut names).is_some() {
            reader.columns =
                names.into_iter().map(|name| name.unwrap_or_default().trim().to_owned()).collect();
        }
        reader
    }

    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    pub(super) fn slot(&self, field: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == field)
    }

    pub(super) fn read<'l>(&self, line: &'l str, values: &mut Values<'l>) -> Result<(), Skip> {
        if line.trim_start_matches('\u{feff}') == self.header {
            return Err(Skip::NotARequest);
        }
        self.split(line, values).ok_or(Skip::Unreadable("a quote is not closed"))?;
        if values.len() == self.columns.len() {
            Ok(())
        } else {
            Err(Skip::Unreadable("another number of columns"))
        }
    }

    fn split<'l>(&self, line: &'l str, values: &mut Values<'l>) -> Option<()> {
        let mut rest = line;
        loop {
            let after = match rest.strip_prefix('"') {
                None => {
                    let end = memchr::memchr(self.delimiter, rest.as_bytes()).unwrap_or(rest.len());
                    values.push(present(&rest[..end]).map(Cow::Borrowed));
                    &rest[end..]
                }
                Some(quoted) => {
                    let end = closing_quote(quoted.as_bytes())?;
                    let text = &quoted[..end];
                    let value =
                        if text.contains('"') { Cow::Owned(text.replace("\"\"", "\"")) } else { text.into() };
                    values.push(Some(value).filter(|value| present(value).is_some()));
                    &quoted[end + 1..]
                }
            };
            match after.as_bytes().first() {
                None => return Some(()),
                Some(&byte) if byte == self.delimiter => rest = &after[1..],
                Some(_) => return None,
            }
        }
    }
}

/// The position of the quote that is not followed by another one.
fn closing_quote(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(b'"', &bytes[from..])?;
        if bytes.get(at + 1) != Some(&b'"') {
            return Some(at);
        }
        from = at + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_delimiters_are_read_as_in_rfc_4180() {
        for (header, line) in
            [("a,b,c", "1,\"x,\"\"y\",-"), ("a;b;c", "1;\"x,\"\"y\";"), ("a\tb\tc", "1\t\"x,\"\"y\"\t")]
        {
            let reader = Csv::new(header);
            let mut values = Vec::new();
            reader.read(line, &mut values).expect("a line");
            let texts: Vec<_> = values.iter().map(Option::as_deref).collect();
            assert_eq!(texts, [Some("1"), Some("x,\"y"), None], "{header}");
            assert_eq!((reader.slot("b"), reader.slot("d")), (Some(1), None));
            assert_eq!(reader.read(header, &mut Vec::new()), Err(Skip::NotARequest));
        }
        for line in ["1,2", "1,2,3,4", "1,\"2,3", "1,\"2\"x,3"] {
            assert!(
                matches!(Csv::new("a,b,c").read(line, &mut Vec::new()), Err(Skip::Unreadable(_))),
                "{line}"
            );
        }
    }
}
