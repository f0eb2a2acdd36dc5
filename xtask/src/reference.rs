//! Generates the reference of the rules file, a page and a JSON Schema, from the shape that checks files; and the reference
//! of the server's settings from their table.

use tollgate::rules::lint::LINTS;
use tollgate::rules::{file_shape, presets, schema_json};
use tollgate_document::Shape;
use tollgate_document::shape::{Fields, OneOf};
use tollgate_server::settings::{Given, SETTINGS, Setting};

/// Path below `docs/reference` and contents.
pub(crate) fn all() -> Vec<(&'static str, String)> {
    vec![
        ("rules.schema.json", schema_json()),
        ("rules.md", rules_page()),
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
        "# Server settings\n\n\
         All settings are optional. Each can be set in a YAML file (`--config FILE`, or its path in the environment variable\n\
         `TOLLGATE_CONFIG`), as an environment variable, and as a flag. Variables override the file, flags override both:\n\n\
         | file | variable | flag |\n|---|---|---|\n",
    );
    for setting in SETTINGS.iter().filter(|setting| ["http", "hash_key_file"].contains(&setting.name)) {
        if let (Some(variable), Some(flag)) = (setting.variable(), setting.flag()) {
            page.push_str(&format!("| `{}: …` | `{variable}=…` | `{flag} …` |\n", setting.name));
        }
    }
    page.push_str(
        "\n\
         In a variable or a flag, commas separate the items of a list. An empty variable counts as not set. Relative paths in\n\
         the file start in its folder, all others in the current directory. Unknown names are errors, in the file and among the\n\
         variables that begin with `TOLLGATE_`; variables that Kubernetes sets for a service called `tollgate` are ignored. All\n\
         problems are reported at once, each with its position. Secrets come from variables or from separate files, never from\n\
         the command line or the configuration file, and are never printed.\n\n\
         [`tollgate config`](cli.md#config) prints every value in force and its origin. This page is generated from the table\n\
         of settings.\n",
    );
    let mut group = "";
    for setting in SETTINGS {
        if setting.group != group {
            group = setting.group;
            page.push_str(&format!(
                "\n## {group}\n\n| setting | value | default | meaning |\n|---|---|---|---|\n"
            ));
        }
        page.push_str(&setting_row(setting));
    }
    page.push_str(
        "\n## Tokens\n\n\
         ```yaml\n\
         http: 0.0.0.0:8080\n\
         tls_certificate: server.pem\n\
         tls_key: server.key\n\
         tokens:\n  \
           - { name: checkout, digest: \"sha256:…\", scopes: [check] }\n  \
           - { name: grafana, digest: \"sha256:…\", scopes: [read] }\n\
         ```\n\n\
         [`tollgate token`](cli.md#token) makes a token of 256 random bits and prints the line with its digest. Several tokens\n\
         can be valid at once, so that you can hand out a new one before you remove the old one. A server that listens on an\n\
         address other than `127.0.0.0/8` and `[::1]` does not start without tokens or client certificates, unless `insecure` is\n\
         `true`.\n\n\
         | scope | what it permits |\n|---|---|\n\
         | `check` | checks and their follow-ups: refunds, leases, reports |\n\
         | `read` | reading rules, metrics and explanations |\n\
         | `admin` | changing what is counted |\n",
    );
    page
}

fn setting_row(setting: &Setting) -> String {
    let name = match (setting.given, setting.variable()) {
        (Given::Variable, Some(variable)) => format!("only `{variable}`"),
        (Given::File, _) => format!("`{}`, only in the file", setting.name),
        _ => format!("`{}`", setting.name),
    };
    let default = match setting.default {
        "" => "nothing".to_owned(),
        words if words.starts_with('(') => words.trim_matches(['(', ')']).to_owned(),
        value => format!("`{value}`"),
    };
    let row = format!("{name}\t{}\t{default}\t{}", setting.kind.form(), capital(setting.help));
    format!("| {} |\n", row.replace('|', "\\|").replace('\t', " | "))
}
