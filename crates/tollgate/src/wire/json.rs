//! Writes JSON directly into a string: every response has some, and a tree of values costs more than the check.

/// Writes `,"name":`, without the comma for the first member of an object.
pub(crate) fn name(json: &mut String, name: &str) {
    if !json.ends_with('{') && !json.is_empty() {
        json.push(',');
    }
    json.push('"');
    json.push_str(name);
    json.push_str("\":");
}

pub(crate) fn text(json: &mut String, text: &str) {
    json.push('"');
    // Most texts have nothing to escape and are copied whole.
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        json.push_str(text);
    } else {
        text.chars().for_each(|c| escape(json, c));
    }
    json.push('"');
}

fn escape(json: &mut String, c: char) {
    match c {
        '"' | '\\' => json.extend(['\\', c]),
        '\0'..='\x1f' => json.push_str(&format!("\\u{:04x}", c as u32)),
        _ => json.push(c),
    }
}

pub(crate) fn number(json: &mut String, number: u64) {
    json.push_str(itoa::Buffer::new().format(number));
}

pub(crate) fn boolean(json: &mut String, boolean: bool) {
    json.push_str(if boolean { "true" } else { "false" });
}

/// Writes the value, or `null`.
pub(crate) fn known<T>(json: &mut String, value: Option<T>, write: impl FnOnce(&mut String, T)) {
    match value {
        Some(value) => write(json, value),
        None => json.push_str("null"),
    }
}

/// Writes an array.
pub(crate) fn list<T>(
    json: &mut String,
    items: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    json.push('[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            json.push(',');
        }
        write(json, item);
    }
    json.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_parses_back_to_itself() {
        for any in ["", "plain", "\"\\/\u{8}\u{1f}\n\0", "ä€😀\u{7f}\u{2028}"] {
            let mut json = String::new();
            text(&mut json, any);
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), any);
        }
    }
}
