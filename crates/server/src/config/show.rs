//! The settings in force, each with where it comes from.

use serde_json::{Value, json};

use super::layers::{Given, Layers, Origin};
use super::settings::{Kind, SETTINGS, Setting};
use super::{Config, TOKEN_PREFIX};

/// A setting in force.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) name: &'static str,
    /// As it would be written; secrets only by there being one; `None` for nothing.
    pub(crate) value: Option<String>,
    pub(crate) origin: Origin,
}

impl Shown {
    pub(crate) fn to_json(&self) -> Value {
        let mut origin = match &self.origin {
            Origin::Default => json!({ "from": "default" }),
            Origin::File { name, line } => json!({ "from": "file", "file": name, "line": line }),
            Origin::Variable(name) => json!({ "from": "variable", "variable": name }),
            Origin::Flag(name) => json!({ "from": "flag", "flag": name }),
        };
        origin["name"] = json!(self.name);
        origin["value"] = json!(self.value);
        origin
    }
}

/// All of them, in the order of the table.
pub(super) fn all(layers: &Layers, config: &Config) -> Vec<Shown> {
    let shown = |setting: &Setting| {
        let value = match layers.given(setting.name) {
            Some(given) => Some(of_given(setting, given, layers)),
            None => of_default(setting, config),
        };
        Shown { name: setting.name, value, origin: layers.origin(setting.name) }
    };
    SETTINGS.iter().map(shown).collect()
}

fn of_given(setting: &Setting, Given { node, .. }: &Given, layers: &Layers) -> String {
    match setting.kind {
        Kind::Secret => "(secret)".to_owned(),
        Kind::File => layers.path(setting.name).unwrap_or_default().display().to_string(),
        Kind::Tokens => {
            let token = |item: &tollgate_document::Node| {
                let text = |key: &str| item.get(key).map(texts).unwrap_or_default();
                format!("{} ({})", text("name"), text("scopes"))
            };
            node.list().unwrap_or_default().iter().map(token).collect::<Vec<_>>().join("; ")
        }
        Kind::Blocks | Kind::Scopes | Kind::Names => texts(node),
        _ => node.scalar().filter(|text| !text.starts_with(TOKEN_PREFIX)).unwrap_or_default().to_owned(),
    }
}

fn texts(node: &tollgate_document::Node) -> String {
    node.one_or_many().iter().filter_map(|item| item.text()).collect::<Vec<_>>().join(", ")
}

/// What holds where nothing is given. Some depends on the machine or on other settings.
fn of_default(setting: &Setting, config: &Config) -> Option<String> {
    match setting.name {
        "threads" => Some(config.threads.to_string()),
        "anonymous" => Some(config.anonymous.to_string()),
        _ => Some(setting.default.to_owned()).filter(|default| !default.is_empty()),
    }
}
