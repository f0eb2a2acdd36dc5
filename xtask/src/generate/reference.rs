//! Generates the reference of the rules file, a page and a JSON Schema, from the shape that checks files; and the reference
//! of the server's settings from their table.

use tollgate::rules::lint::LINTS;
use tollgate::rules::{file_shape, presets, schema_json};
use tollgate_document::Shape;
use tollgate_document::shape::{Fields, OneOf};
use tollgate_server::settings::{AcceptedIn, Kind, RENAMED, SETTINGS, Setting};

/// Path below `docs/reference` and contents.
pub(crate) fn all() -> Vec<(&'static str, String)> {
    vec![
        ("rules.schema.json", schema_json()),
        ("rules.md", rules_page()),
        ("tests.md", tests_page()),
        ("presets.md", presets_page()),
        ("lints.md", lints_page()),
        ("config.md", config_page()),
    ]
}

fn rules_page() -> String {
    let mut page = String::from(
        "# The rules file\n\n\
         This page is generated from the shape that checks rules files. The same shape is published as\n\
         [JSON Schema](rules.schema.json) for editors. The guide is [Writing rules](../guides/rules.md).\n",
    );
    section(&mut page, "A rules file", file_shape(), 2);
    page
}

fn tests_page() -> String {
    let mut page = String::from(
        "# Test files\n\n\
         This page is generated from the shape that checks test files. `tollgate test --schema` prints the same shape as JSON\n\
         Schema for editors. The guide is [Testing rules](../guides/rules.md#testing-rules).\n",
    );
    section(&mut page, "A test file", tollgate_server::test_file_shape(), 2);
    page
}

/// Writes a heading and the allowed keys; nested maps get separate sections.
fn section(page: &mut String, title: &str, shape: &Shape, level: usize) {
    match shape {
        Shape::Fields(fields) => {
            page.push_str(&format!("\n{} {title}\n\n", "#".repeat(level)));
            table(page, fields);
            for field in &fields.fields {
                nested(page, field.name, &field.shape, level + 1);
            }
        }
        other => nested(page, title, other, level),
    }
}

fn nested(page: &mut String, name: &str, shape: &Shape, level: usize) {
    match shape {
        Shape::Fields(_) => section(page, &format!("`{name}`"), shape, level.min(5)),
        Shape::List(list) => nested(page, name, &list.item, level),
        Shape::MapOf(map) => nested(page, name, &map.value, level),
        Shape::OneOf(one_of) if described(page, one_of) => alternatives(page, name, one_of, level),
        _ => (),
    }
}

/// Describes a choice between shapes once: limits occur in rules and in overrides.
fn described(page: &str, one_of: &OneOf) -> bool {
    let maps = one_of.alternatives.iter().any(|alternative| matches!(alternative.shape, Shape::Fields(_)));
    maps && !page.contains(&format!("Any of these is {}:", one_of.what))
}

fn alternatives(page: &mut String, name: &str, one_of: &OneOf, level: usize) {
    page.push_str(&format!(
        "\n{} `{name}`\n\nAny of these is {}:\n\n",
        "#".repeat(level.min(5)),
        one_of.what
    ));
    for alternative in &one_of.alternatives {
        match &alternative.shape {
            Shape::Fields(fields) => {
                page.push_str(&format!("- {} `{}`: {}\n", alternative.doc, keys(fields), fields.what))
            }
            other => page.push_str(&format!("- {} {}\n", alternative.doc, form(other))),
        }
    }
    for alternative in &one_of.alternatives {
        if let Shape::Fields(fields) = &alternative.shape {
            page.push_str(&format!("\n**{}**\n\n", capital(fields.what)));
            table(page, fields);
            for field in &fields.fields {
                nested(page, field.name, &field.shape, level + 1);
            }
        }
    }
}

/// The keys that distinguish this map from the alternatives.
fn keys(fields: &Fields) -> String {
    let required: Vec<_> =
        fields.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    required.join("`, `")
}

fn table(page: &mut String, fields: &Fields) {
    page.push_str("| key | value | meaning |\n|---|---|---|\n");
    for field in &fields.fields {
        let required = if field.required { " (required)" } else { "" };
        let doc = field.doc.replace('|', "\\|");
        page.push_str(&format!("| `{}`{required} | {} | {doc} |\n", field.name, form(&field.shape)));
    }
}

/// Describes a value in a few words.
fn form(shape: &Shape) -> String {
    let text = match shape {
        Shape::Text(text) if text.examples.is_empty() => text.what.to_owned(),
        Shape::Text(text) => format!("{}: `{}`", text.what, text.examples.join("`, `")),
        Shape::Number(number) if number.min == number.max => format!("the number {}", number.min),
        Shape::Number(number) => format!("a number from {} to {}", number.min, number.max),
        Shape::Bool => "`true` or `false`".to_owned(),
        Shape::Choice(words) => {
            let words: Vec<_> = words.iter().map(|(word, doc)| format!("`{word}`: {doc}")).collect();
            words.join(" ")
        }
        Shape::List(list) => format!("a list; each: {}", form(&list.item)),
        Shape::Fields(fields) => fields.what.to_owned(),
        Shape::MapOf(map) => map.what.to_owned(),
        Shape::OneOf(one_of) => one_of.what.to_owned(),
        Shape::Any => "anything".to_owned(),
        Shape::Named(name, _) => (*name).to_owned(),
    };
    text.replace('|', "\\|")
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn presets_page() -> String {
    let mut page = String::from(
        "# Presets\n\n\
         Ready-made rules for common cases. `use: NAME` adds a preset's rules to a file. `id` renames them, `match` narrows\n\
         them, `mode` tries them in shadow mode. The rules are then called `NAME-suffix` or `id-suffix`. To use other numbers,\n\
         copy the rules and change them: `tollgate presets NAME` prints them.\n",
    );
    for preset in presets::ALL {
        page.push_str(&format!(
            "\n## {}\n\n{}\n\n```yaml\n{}```\n",
            preset.name, preset.summary, preset.text
        ));
    }
    page
}

fn lints_page() -> String {
    let mut page = String::from(
        "# Lints\n\n\
         What `tollgate lint` finds: rules that are valid but probably not what you want. Each finding says what to write\n\
         instead. `--deny-warnings` makes warnings fail; notes never do.\n\n\
         | lint | what it finds | why it matters |\n|---|---|---|\n",
    );
    for lint in LINTS {
        let cell = |text: &str| text.replace('|', "\\|");
        page.push_str(&format!("| `{}` | {} | {} |\n", lint.code, cell(lint.summary), cell(lint.why)));
    }
    page
}

fn config_page() -> String {
    let mut page = String::from(
        "# Settings of a server\n\n\
         `tollgate serve` needs no settings. Each one can be set in a YAML file (`--config FILE` or the variable\n\
         `TOLLGATE_CONFIG`), in a variable, and with a flag. Variables override the file, and flags override both:\n\n\
         | file | variable | flag |\n|---|---|---|\n",
    );
    for setting in SETTINGS.iter().filter(|setting| ["http", "hash_key_file"].contains(&setting.name)) {
        if let (Some(variable), Some(flag)) = (setting.variable(), setting.flag()) {
            page.push_str(&format!("| `{}: …` | `{variable}=…` | `{flag} …` |\n", setting.name));
        }
    }
    page.push_str(
        "\n\
         - In variables and flags, commas separate the items of a list.\n\
         - An empty variable counts as unset.\n\
         - Relative paths in the file start in its folder. All others start in the current directory.\n\
         - An unknown key in the file is an error. So is an unknown variable that starts with `TOLLGATE_`. Exceptions are the\n  \
           variables that Kubernetes sets for a service with that name, and those of client commands: `TOLLGATE_SERVER`,\n  \
           `TOLLGATE_TOKEN` and `TOLLGATE_TOKEN_FILE`.\n\
         - All problems are reported at once, each with its position.\n\
         - Secrets come from variables or from separate files. The command line and the configuration file do not accept\n  \
           them, and they are never printed.\n\n\
         [`tollgate config`](cli.md#config) prints every effective value with its origin. This page is generated from the\n\
         table that the server reads.\n",
    );
    let groups = SETTINGS.chunk_by(|one, next| one.group == next.group);
    for group in groups {
        let heading = group.first().map_or("", |setting| setting.group);
        page.push_str(&format!(
            "\n## {heading}\n\n| setting | value | default | meaning |\n|---|---|---|---|\n"
        ));
        page.extend(group.iter().map(setting_row));
        page.extend(group.iter().filter_map(setting_details));
        page.extend(group.iter().filter_map(setting_words));
    }
    page.push_str(
        "\n## Renamed settings\n\n\
         The old names are accepted, with a warning, in the file, in variables and as flags. Both names in one place are an\n\
         error.\n\n\
         | old name | new name | removed in release |\n|---|---|---|\n",
    );
    for renamed in RENAMED {
        page.push_str(&format!("| `{}` | `{}` | {} |\n", renamed.old, renamed.new, renamed.until));
    }
    page.push_str(
        "\n## Tokens\n\n\
         ```yaml\n\
         http: 0.0.0.0:8080\n\
         tls_certificate: server.pem\n\
         tls_key: server.key\n\
         tokens:\n  \
           - { name: checkout, digest: \"sha256:…\", scopes: [check] }\n  \
           - { name: grafana, digest: \"sha256:…\", scopes: [metrics] }\n  \
           - { name: acme, digest: \"sha256:…\", scopes: [check, refund], attributes: { tenant: acme } }\n  \
           - { name: log-in, digest: \"sha256:…\", scopes: [check, report], rules: [log-in] }\n\
         ```\n\n\
         [`tollgate token`](cli.md#token) creates a token of 256 random bits and prints the line with its digest. Any number\n\
         of tokens can be configured at a time, so that callers get a new one before the old one is removed. A server that\n\
         other machines can reach, on any address except `127.0.0.0/8` and `[::1]`, does not start without tokens or client\n\
         certificates unless `insecure` is `true`.\n\n\
         | scope | what it permits |\n|---|---|\n\
",
    );
    for (scope, meaning) in tollgate_server::scopes() {
        page.push_str(&format!("| `{scope}` | {meaning} |\n"));
    }
    page.push_str(
        "\nA token with `attributes` is bound to these values. It may send only them, on every transport: the server fills in an\n\
         absent one and refuses another value. A token with `rules` is bound to these rules: a request that another rule\n\
         matches is refused whole, and no rule counts it. A shadow rule is a rule too. So a rule that gets a new id also\n\
         needs it here. A token can be bound to both.\n\n\
         Receipts, request ids and keys of callers' own limits are separate for tokens that are bound differently. A bound\n\
         token has only the scopes `check`, `refund`, `report` and `record`.\n\n\
         `anonymous` and `certified` never give `change` or `admin`, also not with `insecure`: every change is attributed to\n\
         the name of a token.\n",
    );
    page
}

fn setting_row(setting: &Setting) -> String {
    let name = match (setting.accepted_in, setting.variable()) {
        (AcceptedIn::Variable, Some(variable)) => format!("`{variable}` (variable only)"),
        (AcceptedIn::File, _) => format!("`{}` (file only)", setting.name),
        _ => format!("`{}`", setting.name),
    };
    let default = match setting.default {
        "" => "none".to_owned(),
        words if words.starts_with('(') => words.trim_matches(['(', ')']).to_owned(),
        value => format!("`{value}`"),
    };
    let row = format!("{name}\t{}\t{default}\t{}", setting.kind.description(), setting.help);
    format!("| {} |\n", row.replace('|', "\\|").replace('\t', " | "))
}

/// The list of sentences that follow the description of a setting, if it has any.
fn setting_details(setting: &Setting) -> Option<String> {
    if setting.details.is_empty() {
        return None;
    }
    let sentences = setting.details.trim_end_matches('.').split(". ");
    let list: String = sentences.map(|sentence| format!("- {sentence}.\n")).collect();
    Some(format!("\nDetails of `{}`:\n\n{list}", setting.name))
}

/// The list of words that a setting accepts, if it accepts only certain words.
fn setting_words(setting: &Setting) -> Option<String> {
    let Kind::Choice(words) = setting.kind else { return None };
    let words: String = words.iter().map(|(word, meaning)| format!("- `{word}`: {meaning}\n")).collect();
    Some(format!("\nValues of `{}`:\n\n{words}", setting.name))
}
