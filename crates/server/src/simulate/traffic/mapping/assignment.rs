//! `ATTRIBUTE=SOURCE`, as in `--map`.

use regex::Regex;

/// Where the value of an attribute comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A field of the log, or a path in JSON.
    Field(String),
    /// A parameter of the query.
    Query(String),
    /// The same for every request.
    Constant(String),
    /// The first group of a pattern, or its whole match, in an attribute or a field.
    Pattern {
        /// `path`, another default attribute, or a field.
        of: String,
        pattern: Regex,
    },
}

/// An attribute and where its value comes from.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    pub(crate) attribute: String,
    pub(crate) source: Source,
}

/// Bytes of a compiled pattern. The time of a match is linear in the text in any case.
const PATTERN_BYTES_MAX: usize = 1 << 20;

impl Assignment {
    /// Parses `tenant=x_tenant`, `user=.request.headers.X-User[0]`, `api_key=query:key`, `plan=const:free` or
    /// `action=path~^/v1/(\w+)`.
    pub(crate) fn parse(text: &str) -> Result<Assignment, String> {
        match text.split_once('=') {
            Some((attribute, source)) if !attribute.is_empty() => {
                Ok(Assignment { attribute: attribute.to_owned(), source: Source::parse(source)? })
            }
            _ => Err("write ATTRIBUTE=SOURCE, like tenant=x_tenant".to_owned()),
        }
    }
}

impl Source {
    pub(crate) fn parse(text: &str) -> Result<Source, String> {
        if let Some(value) = text.strip_prefix("const:") {
            return Ok(Source::Constant(value.to_owned()));
        }
        if let Some(key) = text.strip_prefix("query:") {
            return if key.is_empty() {
                Err("write query:PARAMETER".to_owned())
            } else {
                Ok(Source::Query(key.to_owned()))
            };
        }
        if let Some((of, pattern)) = text.split_once('~')
            && !of.is_empty()
        {
            let pattern = regex::RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
            let pattern = pattern.map_err(|error| format!("invalid pattern: {error}"))?;
            return Ok(Source::Pattern { of: of.to_owned(), pattern });
        }
        if text.is_empty() {
            return Err(
                "write a field, a path like .a.b[0], query:NAME, const:VALUE or FIELD~PATTERN".to_owned()
            );
        }
        Ok(Source::Field(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_source_is_parsed() {
        let kind = |text: &str| match Assignment::parse(text).map(|assignment| assignment.source) {
            Ok(Source::Field(field)) => format!("field {field}"),
            Ok(Source::Query(key)) => format!("query {key}"),
            Ok(Source::Constant(value)) => format!("constant {value}"),
            Ok(Source::Pattern { of, pattern }) => format!("pattern {pattern} in {of}"),
            Err(error) => error,
        };
        assert_eq!(kind("tenant=x_tenant"), "field x_tenant");
        assert_eq!(kind("user=.request.headers.X-User[0]"), "field .request.headers.X-User[0]");
        assert_eq!(kind("api_key=query:key"), "query key");
        assert_eq!(kind("plan=const:free"), "constant free");
        assert_eq!(kind(r"action=path~^/v1/(\w+)"), r"pattern ^/v1/(\w+) in path");
        assert!(kind("action=path~(").starts_with("invalid pattern"));
        for text in ["", "a", "=x", "a=", "a=query:"] {
            assert!(kind(text).starts_with("write "), "{text}: {}", kind(text));
        }
    }
}
