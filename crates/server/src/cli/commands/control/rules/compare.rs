//! The differences of two rules files, as JSON without comments.

use serde_json::{Map, Value, json};

use crate::text::{escape_control, excerpt};

/// Characters of a value that are shown.
const VALUE_CHARS_MAX: usize = 200;

/// Returns what differs: one object per rule, list entry or other key.
pub(super) fn compare(file: &Value, server: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    for key in keys_of(file, server) {
        match (key, &file[key], &server[key]) {
            ("rules", file, server) => compare_rules(items(file), items(server), &mut found),
            ("overrides" | "deny" | "bypass", file, server) => {
                compare_entries(key, items(file), items(server), &mut found);
            }
            (_, one, other) if one != other => found.push(changed(key, None, one, other)),
            _ => (),
        }
    }
    found
}

/// The keys of either map, those of the first one first.
fn keys_of<'v>(one: &'v Value, other: &'v Value) -> Vec<&'v str> {
    let keys = |value: &'v Value| value.as_object().into_iter().flat_map(Map::keys).map(String::as_str);
    let others = keys(other).filter(|key| one.get(key).is_none());
    keys(one).chain(others).collect()
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn changed(part: &str, id: Option<&str>, file: &Value, server: &Value) -> Value {
    let change = match (file.is_null(), server.is_null()) {
        (false, true) => "added",
        (true, false) => "removed",
        _ => "changed",
    };
    json!({ "part": part, "id": id, "change": change, "file": file, "server": server })
}

/// The id of a rule, or the preset that it uses.
fn name_of(rule: &Value) -> String {
    let text = |key: &str| rule[key].as_str();
    match (text("id"), text("use")) {
        (Some(id), Some(preset)) => format!("{id} ({preset})"),
        (Some(one), None) | (None, Some(one)) => one.to_owned(),
        (None, None) => rule.to_string(),
    }
}

fn compare_rules(file: &[Value], server: &[Value], found: &mut Vec<Value>) {
    let before = found.len();
    let find = |rules: &[Value], name: &str| rules.iter().find(|rule| name_of(rule) == name).cloned();
    for rule in file {
        let name = name_of(rule);
        let other = find(server, &name).unwrap_or(Value::Null);
        if *rule != other {
            found.push(changed("rule", Some(&name), rule, &other));
        }
    }
    for rule in server {
        let name = name_of(rule);
        if find(file, &name).is_none() {
            found.push(changed("rule", Some(&name), &Value::Null, rule));
        }
    }
    if found.len() == before && file != server {
        let names = |rules: &[Value]| rules.iter().map(name_of).collect::<Value>();
        found.push(changed("order of rules", None, &names(file), &names(server)));
    }
}

/// Entries have no id: each one is in both lists, or in one of them.
fn compare_entries(key: &str, file: &[Value], server: &[Value], found: &mut Vec<Value>) {
    let before = found.len();
    let mut others: Vec<&Value> = server.iter().collect();
    for entry in file {
        match others.iter().position(|other| *other == entry) {
            Some(at) => drop(others.remove(at)),
            None => found.push(changed(key, None, entry, &Value::Null)),
        }
    }
    found.extend(others.into_iter().map(|entry| changed(key, None, &Value::Null, entry)));
    if found.len() == before && file != server {
        let both = [file, server].map(|list| Value::from(list.to_vec()));
        found.push(changed(&format!("order of {key}"), None, &both[0], &both[1]));
    }
}

/// One difference for people.
pub(super) fn text_of(difference: &Value) -> String {
    let (file, server) = (&difference["file"], &difference["server"]);
    let part = difference["part"].as_str().unwrap_or_default();
    let name = match difference["id"].as_str() {
        Some(id) => format!("{part} {}", escape_control(id)),
        None => escape_control(part),
    };
    let is_entry = difference["id"].is_null();
    match difference["change"].as_str() {
        Some("added") if is_entry => format!("+ {name}: {} is only in the file\n", shown(file)),
        Some("removed") if is_entry => format!("- {name}: {} is only on the server\n", shown(server)),
        Some("added") => format!("+ {name} is only in the file\n"),
        Some("removed") => format!("- {name} is only on the server\n"),
        _ if file.is_object() && server.is_object() => {
            let differs = keys_of(file, server).into_iter().filter(|key| file[*key] != server[*key]);
            let lines = differs.map(|key| {
                let (ours, theirs) = (shown(&file[key]), shown(&server[key]));
                format!("    {}: {theirs} on the server, {ours} in the file\n", escape_control(key))
            });
            format!("~ {name}\n{}", lines.collect::<String>())
        }
        _ => format!("~ {name}: {} on the server, {} in the file\n", shown(server), shown(file)),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => excerpt(text, VALUE_CHARS_MAX),
        other => excerpt(&other.to_string(), VALUE_CHARS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(file: &Value, server: &Value) -> String {
        compare(file, server).iter().map(text_of).collect()
    }

    #[test]
    fn every_part_of_a_rules_file_is_compared() {
        let base = json!({ "version": 1, "rules": [{ "id": "a", "limit": { "fixed-window": "5/h" } }, { "use": "login" }],
            "deny": [{ "when": { "ip": "192.0.2.1" } }] });
        assert_eq!(compare(&base, &base), Vec::<Value>::new());
        for (pointer, value, expected) in [
            ("/version", json!(2), "~ version: 1 on the server, 2 in the file\n"),
            (
                "/rules/0/limit",
                json!("deny"),
                "~ rule a\n    limit: {\"fixed-window\":\"5/h\"} on the server, deny in the file\n",
            ),
            (
                "/rules/1/use",
                json!("gateway"),
                "+ rule gateway is only in the file\n- rule login is only on the server\n",
            ),
            (
                "/deny/0/when/ip",
                json!("192.0.2.2"),
                "+ deny: {\"when\":{\"ip\":\"192.0.2.2\"}} is only in the file\n\
                 - deny: {\"when\":{\"ip\":\"192.0.2.1\"}} is only on the server\n",
            ),
        ] {
            let mut file = base.clone();
            *file.pointer_mut(pointer).expect(pointer) = value;
            assert_eq!(differences(&file, &base), expected, "{pointer}");
        }
        // A key that only one of them has.
        let mut more = base.clone();
        more["rules"][0]["cost"] = json!(5);
        assert_eq!(differences(&more, &base), "~ rule a\n    cost: nothing on the server, 5 in the file\n");
        assert_eq!(differences(&base, &more), "~ rule a\n    cost: 5 on the server, nothing in the file\n");
        more = base.clone();
        more["unmatched"] = json!("refuse");
        assert_eq!(differences(&base, &more), "- unmatched: refuse is only on the server\n");
        // The order of rules decides which one is the headline.
        more = base.clone();
        more["rules"].as_array_mut().expect("a list").reverse();
        assert!(differences(&more, &base).starts_with("~ order of rules: "));
    }
}
