//! Conditions and variables of Limitador. Only comparisons of a variable with strings are supported.

use super::rules_file::ValueTest;

/// Converts a condition to conditions of a rule, all of which must hold. Returns `None` if it is not supported.
pub(super) fn conditions(text: &str) -> Option<Vec<(String, ValueTest)>> {
    text.split("&&").map(condition).collect()
}

fn condition(text: &str) -> Option<(String, ValueTest)> {
    let text = text.trim();
    if let Some((name, value)) = text.split_once("==") {
        // The string may be on either side.
        let (name, value) =
            if literal(name).is_some() { (value, literal(name)?) } else { (name, literal(value)?) };
        return Some((variable(name)?, ValueTest::Is(value)));
    }
    if let Some((name, list)) = text.split_once(" in ") {
        let list = list.trim().strip_prefix('[')?.strip_suffix(']')?;
        // In the list of a rule, these would be patterns.
        let plain = |value: &String| !value.contains(['*', '?', '{', '[']);
        let values: Option<Vec<String>> = list.split(',').map(|value| literal(value).filter(plain)).collect();
        return Some((variable(name)?, ValueTest::OneOf(values?)));
    }
    let (name, rest) = text.split_once(".startsWith(")?;
    Some((variable(name)?, ValueTest::StartsWith(literal(rest.strip_suffix(')')?)?)))
}

/// Parses a string in quotes.
fn literal(text: &str) -> Option<String> {
    let text = text.trim();
    let quote = text.chars().next().filter(|c| "'\"".contains(*c))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    (!inner.contains([quote, '\\'])).then(|| inner.to_owned())
}

/// Returns the attribute name of a variable: `user_id`, `descriptors[0].user_id` or `descriptors[0]['user_id']`.
pub(super) fn variable(text: &str) -> Option<String> {
    let text = text.trim();
    let name = match text.strip_prefix("descriptors[") {
        None => text.to_owned(),
        Some(rest) => {
            let (number, rest) = rest.split_once(']')?;
            number.trim().parse::<u32>().ok()?;
            match rest.strip_prefix('[') {
                Some(quoted) => literal(quoted.strip_suffix(']')?)?,
                None => rest.strip_prefix('.')?.to_owned(),
            }
        }
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    ((1..=64).contains(&name.len()) && name.chars().all(fits)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comparisons_with_strings_are_converted() {
        let is = |name: &str, value: &str| (name.to_owned(), ValueTest::Is(value.to_owned()));
        for (text, expected) in [
            ("req.method == 'GET'", Some(vec![is("req.method", "GET")])),
            ("'GET' == method", Some(vec![is("method", "GET")])),
            ("descriptors[0]['req.path'] == \"/a b\"", Some(vec![is("req.path", "/a b")])),
            ("descriptors[0].x == '1' && y == '2'", Some(vec![is("x", "1"), is("y", "2")])),
            (
                "method in ['GET', 'HEAD']",
                Some(vec![(
                    "method".to_owned(),
                    ValueTest::OneOf(vec!["GET".to_owned(), "HEAD".to_owned()]),
                )]),
            ),
            (
                "path.startsWith('/v1/')",
                Some(vec![("path".to_owned(), ValueTest::StartsWith("/v1/".to_owned()))]),
            ),
            ("method != 'GET'", None),
            ("method == 'GET' || method == 'PUT'", None),
            ("int(x) == 1", None),
            ("x == y", None),
            ("x == 'it\\'s'", None),
            ("descriptors[i].x == '1'", None),
            ("", None),
        ] {
            assert_eq!(conditions(text), expected, "{text}");
        }
    }

    #[test]
    fn variables_become_attribute_names() {
        for (text, expected) in [
            ("user_id", Some("user_id")),
            ("descriptors[0]['user_id']", Some("user_id")),
            (" descriptors[1].user.id ", Some("user.id")),
            ("descriptors[0]", None),
            ("size(x)", None),
            ("", None),
        ] {
            assert_eq!(variable(text).as_deref(), expected, "{text}");
        }
    }
}
