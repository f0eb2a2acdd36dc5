//! Values from the configuration file, the environment and the command line. Each layer overrides the one before.
//!
//! A variable and a flag are each read as a small file with one value, so that the same shapes check them and their
//! problems are reported in the same form.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use tollgate_document::shape::{RenamedKey, rename_keys};
use tollgate_document::{
    Colour, Entry, Kind as NodeKind, Node, Problem, Problems, Severity, Source, SourceSpan, Text, Value,
};
use tollgate_document::{check, parse, suggest};

use super::settings::{Kind, RENAMED, SETTINGS, Setting, flag_name, variable_name};
use super::{CONFIG_VARIABLE, shapes};

/// Variables that client commands read. A server ignores them.
const CLIENT_VARIABLES: [&str; 4] =
    ["TOLLGATE_SERVER", "TOLLGATE_TOKEN", "TOLLGATE_TOKEN_FILE", "TOLLGATE_STORE_USER_PASSWORD"];

/// Where a value comes from. A later variant overrides an earlier one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    Default,
    File { name: String, line: usize },
    Variable(String),
    Flag(String),
}

impl Origin {
    /// The number of the layer, for comparisons.
    pub(super) fn layer(&self) -> u8 {
        match self {
            Origin::Default => 0,
            Origin::File { .. } => 1,
            Origin::Variable(_) => 2,
            Origin::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { name, line } => write!(f, "{name}:{line}"),
            Origin::Variable(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// The value of a setting, and its origin.
#[derive(Clone, Debug)]
pub(super) struct SettingValue {
    pub(super) node: Node,
    pub(super) origin: Origin,
    /// Index of the text that contains it.
    text: usize,
}

/// The text of a file, a variable or a flag, with its problems.
struct LayerText {
    source: Source,
    problems: Problems,
    /// Secrets, which must not be printed.
    hidden: Vec<SourceSpan>,
}

/// The value of every given setting in its highest layer, and the problems of all layers.
#[derive(Default)]
pub(super) struct Layers {
    values: BTreeMap<&'static str, SettingValue>,
    texts: Vec<LayerText>,
    /// The base of relative paths in the configuration file.
    folder: Option<PathBuf>,
}

impl Layers {
    /// Adds the configuration file.
    pub(super) fn add_file(&mut self, path: &Path, source: Source) {
        let mut problems = Problems::new();
        let mut hidden = Vec::new();
        let root = parse(&source, &mut problems);
        // A file that contains only comments is valid.
        if let Some(mut root) = root.filter(|root| root.kind() != NodeKind::Null) {
            for (span, renamed) in rename_keys(RENAMED, &mut root, &mut problems) {
                problems.push(renamed_problem(
                    span,
                    &format!("`{}`", renamed.old),
                    &format!("`{}`", renamed.new),
                    &renamed,
                ));
            }
            check(shapes::file(), &root, &mut problems);
            shapes::find_secrets(&root, &mut hidden);
            for Entry { key, value } in root.entries() {
                let Some(setting) = SETTINGS.iter().find(|setting| Some(setting.name) == key.text()) else {
                    continue;
                };
                if setting.kind != Kind::Secret {
                    shapes::check_bounds(setting.kind, value, &mut problems);
                    let line = source.position(key.span.start).line;
                    let origin = Origin::File { name: source.name().to_owned(), line };
                    let value = SettingValue { node: value.clone(), origin, text: self.texts.len() };
                    self.values.insert(setting.name, value);
                }
            }
        }
        self.texts.push(LayerText { source, problems, hidden });
        self.folder = path.parent().map(Path::to_owned);
    }

    /// Adds the environment variables that start with `TOLLGATE_`. An empty variable counts as unset.
    pub(super) fn add_variables(&mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) {
        let mut variables: Vec<(String, OsString)> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, value)| name.starts_with("TOLLGATE_") && !value.is_empty())
            .filter(|(name, _)| name != CONFIG_VARIABLE && !CLIENT_VARIABLES.contains(&name.as_str()))
            .collect();
        // The environment has no order; the output must have one.
        variables.sort();
        for (name, value) in variables {
            let found = find(|setting| variable_name(setting) == name);
            let found = found.filter(|(setting, _)| setting.variable().is_some());
            match (found, value.into_string()) {
                (Some((setting, renamed)), Ok(value)) => {
                    self.add(setting, renamed, Origin::Variable(name), &value);
                }
                (Some(_), Err(_)) => {
                    let message = format!("{name} is not valid UTF-8");
                    let problem = |span| {
                        Problem::error("not-text", span, message).help("write it in UTF-8, or unset it")
                    };
                    self.report_name(&name, problem);
                }
                (None, _) if is_set_by_kubernetes(&name) => (),
                (None, _) => {
                    let message = format!("unknown variable {name}");
                    let help = unknown_variable_help(&name);
                    self.report_name(&name, |span| {
                        Problem::error("unknown-variable", span, message).help(help)
                    });
                }
            }
        }
    }

    /// Adds the flags, each by the name of its setting.
    pub(super) fn add_flags<'a>(&mut self, flags: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (name, value) in flags {
            if let Some((setting, renamed)) = find(|setting| setting == name) {
                self.add(setting, renamed, Origin::Flag(flag_name(name)), value);
            }
        }
    }

    /// Adds a variable or a flag. `renamed` is set if it has an old name.
    fn add(&mut self, setting: &Setting, renamed: Option<&RenamedKey>, origin: Origin, value: &str) {
        let is_secret = setting.kind == Kind::Secret;
        let source = Source::new(origin.to_string(), if is_secret { b"(secret)" } else { value.as_bytes() });
        let node = parse_value(setting.kind, value, source.text().len());
        let (mut problems, mut hidden) = (Problems::new(), Vec::new());
        shapes::check_value(setting.kind, &node, &mut problems);
        if !is_secret {
            shapes::find_secrets(&node, &mut hidden);
        }
        let same_layer = self.values.get(setting.name).filter(|other| other.origin.layer() == origin.layer());
        if let Some(other) = same_layer {
            let message = format!("duplicate setting: {} and {origin} are two names of it", other.origin);
            let help = "remove the old name";
            problems.push(Problem::error("duplicate-setting", node.span, message).help(help));
        } else if let Some(renamed) = renamed {
            let new = match origin {
                Origin::Flag(_) => flag_name(renamed.new),
                _ => variable_name(renamed.new),
            };
            problems.push(renamed_problem(node.span, &origin.to_string(), &new, renamed));
        }
        self.values.insert(setting.name, SettingValue { node, origin, text: self.texts.len() });
        self.texts.push(LayerText { source, problems, hidden });
    }

    /// Reports a problem at a name, without its value.
    fn report_name(&mut self, name: &str, problem: impl FnOnce(SourceSpan) -> Problem) {
        let source = Source::new("environment", name.as_bytes());
        let mut problems = Problems::new();
        problems.push(problem(SourceSpan::new(0, source.text().len())));
        self.texts.push(LayerText { source, problems, hidden: Vec::new() });
    }

    /// Returns the value of a setting, or `None` if no layer has one.
    pub(super) fn get(&self, name: &str) -> Option<&SettingValue> {
        self.values.get(name)
    }

    /// Returns the origin of a setting's value.
    pub(super) fn origin(&self, name: &str) -> Origin {
        self.get(name).map_or(Origin::Default, |value| value.origin.clone())
    }

    /// Returns the path in a setting. Relative paths in the configuration file start in its folder.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        let SettingValue { node, origin, .. } = self.get(name)?;
        let path = Path::new(node.text()?);
        match (origin, &self.folder) {
            (Origin::File { .. }, Some(folder)) => Some(folder.join(path)),
            _ => Some(path.to_owned()),
        }
    }

    /// Reports a problem with the value of a setting. `at` is the affected part; `None` means all of the value.
    pub(super) fn report(
        &mut self,
        name: &str,
        at: Option<SourceSpan>,
        problem: impl FnOnce(SourceSpan) -> Problem,
    ) {
        match self.values.get(name) {
            Some(SettingValue { node, text, .. }) => {
                if let Some(read) = self.texts.get_mut(*text) {
                    read.problems.push(problem(at.unwrap_or(node.span)));
                }
            }
            // The problem is a default that does not fit the other settings.
            None => self.report_name(name, problem),
        }
    }

    /// Returns the number of errors; warnings do not count.
    pub(super) fn error_count(&self) -> usize {
        let errors = |problems: &Problems| {
            let listed = problems.in_order();
            listed.iter().filter(|problem| problem.severity == Severity::Error).count() + problems.left_out()
        };
        self.texts.iter().map(|text| errors(&text.problems)).sum()
    }

    /// Formats all problems for a terminal.
    pub(super) fn render(&self, colour: Colour) -> String {
        self.texts
            .iter()
            .map(|text| text.problems.render(&redact(&text.source, &text.hidden), colour))
            .collect()
    }
}

/// Returns the setting that has this name, or had it before it was renamed.
fn find(is: impl Fn(&str) -> bool) -> Option<(&'static Setting, Option<&'static RenamedKey>)> {
    if let Some(setting) = SETTINGS.iter().find(|setting| is(setting.name)) {
        return Some((setting, None));
    }
    let renamed = RENAMED.iter().find(|renamed| is(renamed.old))?;
    let setting = SETTINGS.iter().find(|setting| setting.name == renamed.new)?;
    Some((setting, Some(renamed)))
}

/// A warning about an old name, where `old` and `new` are written as in that layer.
fn renamed_problem(span: SourceSpan, old: &str, new: &str, renamed: &RenamedKey) -> Problem {
    Problem::warning("renamed-setting", span, format!("{old} was renamed to {new}"))
        .help(format!("use the new name; release {} does not accept the old one", renamed.until))
}

/// Replaces the hidden parts of a text by asterisks of the same length.
fn redact(source: &Source, hidden: &[SourceSpan]) -> Source {
    if hidden.is_empty() {
        return source.clone();
    }
    let mut bytes = source.text().as_bytes().to_vec();
    for span in hidden {
        bytes.get_mut(span.start..span.end).unwrap_or_default().fill(b'*');
    }
    Source::new(source.name(), &bytes)
}

/// Converts the value of a variable or flag to a node. `length` is the length of its printed text.
fn parse_value(kind: Kind, value: &str, length: usize) -> Node {
    let text = |text: &str| Value::Text(Text { text: text.to_owned(), quoted: false });
    let span = SourceSpan::new(0, length);
    match (kind, value) {
        (Kind::Bool, "true" | "false") => Node { value: Value::Bool(value == "true"), span },
        (Kind::CidrBlocks | Kind::Scopes | Kind::AttributeNames, _) => {
            let mut at = 0;
            let items = value.split(',').map(|item| {
                let blanks = item.len() - item.trim_start().len();
                let start = at + blanks;
                at += item.len() + 1;
                Node { value: text(item.trim()), span: SourceSpan::new(start, start + item.trim().len()) }
            });
            Node { value: Value::List(items.collect()), span }
        }
        _ => Node { value: text(value), span },
    }
}

fn unknown_variable_help(name: &str) -> String {
    let key = name.trim_start_matches("TOLLGATE_").to_ascii_lowercase();
    if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == key) {
        return format!("set `{}` in the configuration file; no variable is accepted for it", setting.name);
    }
    let known: Vec<String> = SETTINGS.iter().filter_map(Setting::variable).collect();
    match suggest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near}?"),
        None => "unset it; `tollgate config` lists all settings".to_owned(),
    }
}

/// Whether Kubernetes sets this variable for a service whose name begins with `tollgate`.
fn is_set_by_kubernetes(name: &str) -> bool {
    let numbered = || {
        let after = name.split("_PORT_").nth(1);
        after.is_some_and(|after| after.starts_with(|c: char| c.is_ascii_digit()))
    };
    ["_PORT", "_SERVICE_HOST", "_SERVICE_PORT"].iter().any(|end| name.ends_with(end))
        || name.contains("_SERVICE_PORT_")
        || numbered()
}
