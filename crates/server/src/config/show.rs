//! The effective settings, each with its origin.

use serde_json::{Value, json};
use tollgate_document::Node;

use super::layers::{Layers, Origin, SettingValue};
use super::settings::{Kind, SETTINGS, Setting};
use super::{Config, StoreConfig, TOKEN_PREFIX};

/// One effective setting.
#[derive(Clone, Debug)]
pub(crate) struct EffectiveSetting {
    pub(crate) name: &'static str,
    /// The value as it would be written; `(secret)` for a secret; `None` if there is no value.
    pub(crate) value: Option<String>,
    pub(crate) origin: Origin,
}

impl EffectiveSetting {
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

/// Returns all settings, in the order of the table.
pub(super) fn effective_settings(layers: &Layers, config: &Config) -> Vec<EffectiveSetting> {
    let effective = |setting: &Setting| {
        let value = match layers.get(setting.name) {
            Some(value) => Some(format_value(setting, value, layers)),
            None => default_value(setting, config),
        };
        EffectiveSetting { name: setting.name, value, origin: layers.origin(setting.name) }
    };
    SETTINGS.iter().map(effective).collect()
}

fn format_value(setting: &Setting, SettingValue { node, .. }: &SettingValue, layers: &Layers) -> String {
    match setting.kind {
        Kind::Secret => "(secret)".to_owned(),
        Kind::File => layers.path(setting.name).unwrap_or_default().display().to_string(),
        Kind::Tokens => {
            let token = |item: &Node| {
                let text = |key: &str| item.get(key).map(join_texts).unwrap_or_default();
                format!("{} ({})", text("name"), text("scopes"))
            };
            node.list().unwrap_or_default().iter().map(token).collect::<Vec<_>>().join("; ")
        }
        Kind::CidrBlocks | Kind::Scopes | Kind::AttributeNames | Kind::Hosts => join_texts(node),
        _ => node.scalar().filter(|text| !text.starts_with(TOKEN_PREFIX)).unwrap_or_default().to_owned(),
    }
}

fn join_texts(node: &Node) -> String {
    node.one_or_many().iter().filter_map(|item| item.text()).collect::<Vec<_>>().join(", ")
}

/// The default of a setting. Some defaults depend on the machine or on other settings.
fn default_value(setting: &Setting, config: &Config) -> Option<String> {
    match setting.name {
        "threads" => Some(config.threads.to_string()),
        "own_keys_max" => match config.store {
            StoreConfig::Memory { own_keys_max, .. } => Some(own_keys_max.to_string()),
            StoreConfig::Redis(_) => None,
        },
        "connections_max_per_address" => Some(config.connections_max_per_address.to_string()),
        "anonymous" => Some(config.anonymous.to_string()),
        _ => Some(setting.default.to_owned()).filter(|default| !default.is_empty()),
    }
}
