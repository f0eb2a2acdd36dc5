//! The reference of the rules file, made from the very shape that checks it: a page and a JSON Schema. And that of the
//! settings of a server, made from their table.

use tollgate::rules::lint::LINTS;
use tollgate::rules::{file_shape, presets, schema_json};
use tollgate::rules_file::Shape;
use tollgate::rules_file::shape::{Fields, OneOf};
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
         This page is made from the description by which files are checked. The same description is published as\n\
         [JSON Schema](rules.schema.json) for editors. How to write rules is told in [Writing rules](../guides/rules.md).\n",
    );
    section(&mut page, "A rules file", file_shape(), 2);
    page
}

/// A heading, and below it what may stand there; maps inside get sections of their own.
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

/// A choice between shapes is described once: limits stand in rules and in overrides.
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

/// The keys that tell this map from others.
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

/// In a few words what a value looks like.
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
         Ready-made rules for the usual cases. `use: NAME` puts a preset's rules into a file; `id` gives them another name,\n\
         `match` narrows them, `mode` tries them out. The rules are then called `NAME-suffix` or `id-suffix`. When the numbers\n\
         do not fit, copy the rules and change them: `tollgate presets NAME` prints them.\n",
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
         What `tollgate lint` finds in a rules file that is allowed but may not be meant. Each finding says what to write\n\
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
        "# The settings of a server\n\n\
         `tollgate serve` needs none of them. Each can be given in a file in YAML (`--config FILE`, or its path in the variable\n\
         `TOLLGATE_CONFIG`), as a variable, and as a flag. Variables beat the file, flags beat both:\n\n\
         | file | variable | flag |\n|---|---|---|\n",
    );
    for setting in SETTINGS.iter().filter(|setting| ["http", "hash_key_file"].contains(&setting.name)) {
        if let (Some(variable), Some(flag)) = (setting.variable(), setting.flag()) {
            page.push_str(&format!("| `{}: …` | `{variable}=…` | `{flag} …` |\n", setting.name));
        }
    }
    page.push_str(
        "\n\
         In a variable and a flag, commas separate what is a list in the file. A variable that is empty counts as none. Relative paths\n\
         in the file start in its folder, all others in the current directory. A name that nobody knows is an error, in the file and\n\
         among the variables that begin with `TOLLGATE_`; only those that Kubernetes sets for a service of that name are passed over.\n\
         All problems are told at once, each with its place. Secrets are taken from variables and from files of their own, never from\n\
         the command line or the file of settings, and are never shown.\n\n\
         [`tollgate config`](cli.md#config) prints every value in force with where it comes from. This page is made from the table that\n\
         reads them.\n",
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
         [`tollgate token`](cli.md#token) makes a token of 256 random bits and prints the line with its digest. Any number of tokens is\n\
         known at a time, so that a new one can be handed out before the old one is taken away. A server that others can reach, on any\n\
         address but `127.0.0.0/8` and `[::1]`, does not start without tokens or client certificates unless `insecure` is `true`.\n\n\
         | scope | what it lets its bearer do |\n|---|---|\n\
         | `check` | ask for admission, and everything that follows from it: refunds, leases, reports |\n\
         | `read` | look: rules, metrics, explanations |\n\
         | `admin` | change what is counted |\n",
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
