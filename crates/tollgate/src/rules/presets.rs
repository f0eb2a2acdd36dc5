//! Ready-made rules for the usual cases: `use: login-protection`.

use tollgate_core::rules::Rule;

use tollgate_document::{Problems, Source};

/// A named set of rules.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name after `use:`.
    pub name: &'static str,
    /// What it is for, in a sentence.
    pub summary: &'static str,
    /// Its rules file.
    pub text: &'static str,
}

/// All presets.
pub const ALL: &[Preset] = &[
    Preset {
        name: "public-endpoint",
        summary: "A public API: a burst and a rate per key or address.",
        text: include_str!("presets/public-endpoint.yaml"),
    },
    Preset {
        name: "login-protection",
        summary: "Login: growing waits per account, a rate per address, both together.",
        text: include_str!("presets/login-protection.yaml"),
    },
    Preset {
        name: "gateway-tenant",
        summary: "A gateway: a fair share per tenant and a ceiling for all.",
        text: include_str!("presets/gateway-tenant.yaml"),
    },
    Preset {
        name: "expensive-export",
        summary: "Exports: a monthly quota per tenant and two at a time.",
        text: include_str!("presets/expensive-export.yaml"),
    },
    Preset {
        name: "webhook-shaping",
        summary: "Outbound webhooks and workers: calls to one target spaced out.",
        text: include_str!("presets/webhook-shaping.yaml"),
    },
    Preset {
        name: "llm-tokens",
        summary: "LLM token budget: per minute and per month, priced by the request.",
        text: include_str!("presets/llm-tokens.yaml"),
    },
    Preset {
        name: "admin-endpoints",
        summary: "Admin: destructive calls few, reads many.",
        text: include_str!("presets/admin-endpoints.yaml"),
    },
];

/// The preset of this name.
pub fn find(name: &str) -> Option<&'static Preset> {
    ALL.iter().find(|preset| preset.name == name)
}

impl Preset {
    /// Its rules, whose ids are suffixes for the id of the entry that uses it.
    pub(super) fn rules(&self, namespace: &str) -> Vec<Rule> {
        let source = Source::new(format!("preset {}", self.name), self.text.as_bytes());
        let mut problems = Problems::new();
        let set = super::load(&source, &mut problems);
        let rules = set.map(|set| set.rules().to_vec()).unwrap_or_default();
        rules
            .into_iter()
            .filter_map(|mut rule| {
                rule.keyspace = tollgate_core::Keyspace::new(namespace, rule.keyspace.rule()).ok()?;
                Some(rule)
            })
            .collect()
    }
}
