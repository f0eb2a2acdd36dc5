//! The conditions and variables of Limitador, as far as rules have them: comparisons of a variable with texts.

use super::written::Wanted;

/// A condition as rules have it: several, all of which must hold; none if it is of another kind.
pub(super) fn conditions(text: &str) -> Option<Vec<(String, Wanted)>> {
    text.split("&&").map(condition).collect()
}

fn condition(text: &str) -> Option<(String, Wanted)> {
    let text = text.trim();
    if let Some((name, value)) = text.split_once("==") {
        // The text may stand on either side.
        let (name, value) =
            if literal(name).is_some() { (value, literal(name)?) } else { (name, literal(value)?) };
        return Some((variable(name)?, Wanted::Is(value)));
    }
    if let Some((name, list)) = text.split_once(" in ") {
        let list = list.trim().strip_prefix('[')?.strip_suffix(']')?;
        // In a list, a rule would take these for patterns.
        let plain = |value: &String| !value.contains(['*', '?', '{', '[']);
        let values: Option<Vec<String>> = list.split(',').map(|value| literal(value).filter(plain)).collect();
        return Some((variable(name)?, Wanted::OneOf(values?)));
    }
    let (name, rest) = text.split_once(".startsWith(")?;
    Some((variable(name)?, Wanted::StartsWith(literal(rest.strip_suffix(')')?)?)))
}

/// A text in quotes.
fn literal(text: &str) -> Option<String> {
    let text = text.trim();
    let quote = text.chars().next().filter(|c| "'\"".contains(*c))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    (!inner.contains([quote, '\\'])).then(|| inner.to_owned())
}

/// The attribute that a variable is: `user_id`, `descriptors[0].user_id` or `descriptors[0]['user_id']`.
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
    fn comparisons_with_texts_are_understood_and_nothing_else_is() {
        let is = |name: &str, value: &str| (name.to_owned(), Wanted::Is(value.to_owned()));
        for (text, expected) in [
            ("req.method == 'GET'", Some(vec![is("req.method", "GET")])),
            ("'GET' == method", Some(vec![is("method", "GET")])),
            ("descriptors[0]['req.path'] == \"/a b\"", Some(vec![is("req.path", "/a b")])),
            ("descriptors[0].x == '1' && y == '2'", Some(vec![is("x", "1"), is("y", "2")])),
            (
                "method in ['GET', 'HEAD']",
                Some(vec![("method".to_owned(), Wanted::OneOf(vec!["GET".to_owned(), "HEAD".to_owned()]))]),
            ),
            (
                "path.startsWith('/v1/')",
                Some(vec![("path".to_owned(), Wanted::StartsWith("/v1/".to_owned()))]),
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
    fn a_variable_is_an_attribute() {
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
