//! The settings that were given, layer by layer: the file, above it the environment, above that the command line.
//!
//! A variable and a flag are read as if each were a small file with one value in it, so that all of them are checked by
//! the same shapes and their problems look alike.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use tollgate_document::{
    Colour, Entry, Kind as NodeKind, Node, Problem, Problems, Source, SourceSpan, Text, Value,
};
use tollgate_document::{check, parse, suggest};

use super::settings::{Kind, SETTINGS, Setting};
use super::{CONFIG_VARIABLE, shapes};

/// Where a value comes from. A later layer beats an earlier one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    Default,
    File { name: String, line: usize },
    Variable(String),
    Flag(String),
}

impl Origin {
    /// The layer's number.
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

/// A value that was given.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) node: Node,
    pub(super) origin: Origin,
    /// In which of the texts it stands.
    text: usize,
}

/// A text, and what is wrong with it.
struct Read {
    source: Source,
    problems: Problems,
    /// What must not be shown.
    hidden: Vec<SourceSpan>,
}

/// Every setting that was given, as its highest layer has it, and every problem of all layers.
#[derive(Default)]
pub(super) struct Layers {
    values: BTreeMap<&'static str, Given>,
    texts: Vec<Read>,
    /// Where the paths in the file start.
    folder: Option<PathBuf>,
}

impl Layers {
    /// Adds what a file says. `path` is where it lies.
    pub(super) fn add_file(&mut self, path: &Path, source: Source) {
        let mut problems = Problems::new();
        let mut hidden = Vec::new();
        let root = parse(&source, &mut problems);
        // A file of comments says nothing, and that is fine.
        if let Some(root) = root.filter(|root| root.kind() != NodeKind::Null) {
            check(shapes::file(), &root, &mut problems);
            shapes::secrets(&root, &mut hidden);
            for Entry { key, value } in root.entries() {
                let Some(setting) = SETTINGS.iter().find(|setting| Some(setting.name) == key.text()) else {
                    continue;
                };
                if setting.kind != Kind::Secret {
                    shapes::check_bounds(setting.kind, value, &mut problems);
                    let line = source.position(key.span.start).line;
                    let origin = Origin::File { name: source.name().to_owned(), line };
                    self.values
                        .insert(setting.name, Given { node: value.clone(), origin, text: self.texts.len() });
                }
            }
        }
        self.texts.push(Read { source, problems, hidden });
        self.folder = path.parent().map(Path::to_owned);
    }

    /// Adds what the environment says. Variables that are empty count as none.
    pub(super) fn add_variables(&mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) {
        let mut variables: Vec<(String, OsString)> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, value)| {
                name.starts_with("TOLLGATE_") && name != CONFIG_VARIABLE && !value.is_empty()
            })
            .collect();
        // The environment has no order, and people want the same words twice.
        variables.sort();
        for (name, value) in variables {
            let setting = SETTINGS.iter().find(|setting| setting.variable().as_ref() == Some(&name));
            match (setting, value.into_string()) {
                (Some(setting), Ok(value)) => self.add(setting, Origin::Variable(name), &value),
                (Some(_), Err(_)) => {
                    let message = format!("the value of {name} is no text");
                    let problem = |span| {
                        Problem::error("not-text", span, message).help("write it in UTF-8, or unset it")
                    };
                    self.refuse(&name, problem);
                }
                (None, _) if is_of_cluster(&name) => (),
                (None, _) => {
                    let message = format!("no setting has the variable {name}");
                    let help = instead_of(&name);
                    self.refuse(&name, |span| Problem::error("unknown-variable", span, message).help(help));
                }
            }
        }
    }

    /// Adds what the command line says, each setting by its name.
    pub(super) fn add_flags<'a>(&mut self, flags: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (name, value) in flags {
            if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name)
                && let Some(flag) = setting.flag()
            {
                self.add(setting, Origin::Flag(flag), value);
            }
        }
    }

    fn add(&mut self, setting: &Setting, origin: Origin, value: &str) {
        let is_secret = setting.kind == Kind::Secret;
        let source = Source::new(origin.to_string(), if is_secret { b"(secret)" } else { value.as_bytes() });
        let node = node(setting.kind, value, source.text().len());
        let (mut problems, mut hidden) = (Problems::new(), Vec::new());
        shapes::check_value(setting.kind, &node, &mut problems);
        if !is_secret {
            shapes::secrets(&node, &mut hidden);
        }
        self.values.insert(setting.name, Given { node, origin, text: self.texts.len() });
        self.texts.push(Read { source, problems, hidden });
    }

    /// Notes a problem with a variable whose value is not to be shown, or of no use.
    fn refuse(&mut self, name: &str, problem: impl FnOnce(SourceSpan) -> Problem) {
        let source = Source::new("environment", name.as_bytes());
        let mut problems = Problems::new();
        problems.push(problem(SourceSpan::new(0, source.text().len())));
        self.texts.push(Read { source, problems, hidden: Vec::new() });
    }

    /// What was given for a setting.
    pub(super) fn given(&self, name: &str) -> Option<&Given> {
        self.values.get(name)
    }

    /// Where a setting comes from.
    pub(super) fn origin(&self, name: &str) -> Origin {
        self.given(name).map_or(Origin::Default, |given| given.origin.clone())
    }

    /// The path that a setting names. Those in a file start in its folder.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        let Given { node, origin, .. } = self.given(name)?;
        let path = Path::new(node.text()?);
        match (origin, &self.folder) {
            (Origin::File { .. }, Some(folder)) => Some(folder.join(path)),
            _ => Some(path.to_owned()),
        }
    }

    /// Notes a problem with what was given for a setting; `at` is the part it is about, if not the whole.
    pub(super) fn report(
        &mut self,
        name: &str,
        at: Option<SourceSpan>,
        problem: impl FnOnce(SourceSpan) -> Problem,
    ) {
        match self.values.get(name) {
            Some(Given { node, text, .. }) => {
                if let Some(read) = self.texts.get_mut(*text) {
                    read.problems.push(problem(at.unwrap_or(node.span)));
                }
            }
            // A default that does not go with what was given elsewhere.
            None => self.refuse(name, problem),
        }
    }

    /// How many problems there are.
    pub(super) fn problems(&self) -> usize {
        self.texts.iter().map(|read| read.problems.len()).sum()
    }

    /// All problems, for people.
    pub(super) fn render(&self, colour: Colour) -> String {
        self.texts
            .iter()
            .map(|read| read.problems.render(&redacted(&read.source, &read.hidden), colour))
            .collect()
    }
}

/// The text without what must not be shown, at the same places.
fn redacted(source: &Source, hidden: &[SourceSpan]) -> Source {
    if hidden.is_empty() {
        return source.clone();
    }
    let mut bytes = source.text().as_bytes().to_vec();
    for span in hidden {
        bytes.get_mut(span.start..span.end).unwrap_or_default().fill(b'*');
    }
    Source::new(source.name(), &bytes)
}

/// What a variable or a flag stands for. `length` is that of the text that is shown of it.
fn node(kind: Kind, value: &str, length: usize) -> Node {
    let text = |text: &str| Value::Text(Text { text: text.to_owned(), quoted: false });
    let span = SourceSpan::new(0, length);
    match (kind, value) {
        (Kind::Switch, "true" | "false") => Node { value: Value::Bool(value == "true"), span },
        (Kind::Blocks | Kind::Scopes | Kind::Names, _) => {
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

/// What to do about a variable that nobody reads.
fn instead_of(name: &str) -> String {
    let meant = name.trim_start_matches("TOLLGATE_").to_ascii_lowercase();
    if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == meant) {
        return format!("`{}` stands in the file only", setting.name);
    }
    let known: Vec<String> = SETTINGS.iter().filter_map(Setting::variable).collect();
    match suggest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near}?"),
        None => "unset it; `tollgate config` lists all settings".to_owned(),
    }
}

/// Whether Kubernetes may have set it, for a service whose name begins with `tollgate`.
fn is_of_cluster(name: &str) -> bool {
    let numbered = || {
        let after = name.split("_PORT_").nth(1);
        after.is_some_and(|after| after.starts_with(|c: char| c.is_ascii_digit()))
    };
    ["_PORT", "_SERVICE_HOST", "_SERVICE_PORT"].iter().any(|end| name.ends_with(end))
        || name.contains("_SERVICE_PORT_")
        || numbered()
}
