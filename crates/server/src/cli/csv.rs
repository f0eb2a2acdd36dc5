//! Fields of CSV files.

/// Writes a field as RFC 4180 says. Text that a spreadsheet would run as a formula gets an apostrophe before it.
pub(crate) fn field(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<i64>().is_err();
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Writes a line of fields.
pub(crate) fn line(fields: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|text| field(text.as_ref())).collect();
    fields.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_text_and_numbers_stay_numbers() {
        for (text, written) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("=HYPERLINK(\"http://evil\")", "\"'=HYPERLINK(\"\"http://evil\"\")\""),
            ("+1+1", "'+1+1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("-2+3", "'-2+3"),
            ("\t=1", "'\t=1"),
            ("-5", "-5"),
            ("", ""),
        ] {
            assert_eq!(field(text), written);
        }
        assert_eq!(line(["a", "=1"]), "a,'=1\n");
    }
}
