//! Presets: ready-made rules for common cases, like `use: login-protection`.

use tollgate_core::rules::RuleSet;

use tollgate_document::{Problems, Source};

/// A named set of rules.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name after `use:`.
    pub name: &'static str,
    /// Its purpose, in a sentence.
    pub summary: &'static str,
    /// Its rules file.
    pub text: &'static str,
}

/// All presets, in the order of the reference page.
pub const ALL: &[Preset] = &[
    Preset {
        name: "public-endpoint",
        summary: "A public API: a burst and a rate per key or address, and a rate per address whatever the key.",
        text: include_str!("presets/public-endpoint.yaml"),
    },
    Preset {
        name: "login-protection",
        summary: "Login: growing waits per account, and a rate per address.",
        text: include_str!("presets/login-protection.yaml"),
    },
    Preset {
        name: "gateway-tenant",
        summary: "A gateway: a rate per tenant, and a total for all tenants.",
        text: include_str!("presets/gateway-tenant.yaml"),
    },
    Preset {
        name: "expensive-export",
        summary: "Exports: rows and exports per month and tenant, and two exports at a time.",
        text: include_str!("presets/expensive-export.yaml"),
    },
    Preset {
        name: "webhook-shaping",
        summary: "Outbound webhooks and workers: evenly spaced calls to each target.",
        text: include_str!("presets/webhook-shaping.yaml"),
    },
    Preset {
        name: "llm-tokens",
        summary: "LLM token budget: per minute and per month, reserved before or booked after each request.",
        text: include_str!("presets/llm-tokens.yaml"),
    },
    Preset {
        name: "admin-endpoints",
        summary: "Admin endpoints: few changes, many reads.",
        text: include_str!("presets/admin-endpoints.yaml"),
    },
];

/// Finds a preset by its name.
pub fn find(name: &str) -> Option<&'static Preset> {
    ALL.iter().find(|preset| preset.name == name)
}

impl Preset {
    /// The rules of the preset and how they prepare attributes. The ids of its rules are the suffixes that follow the id
    /// of the entry with `use`.
    pub(super) fn rule_set(&self) -> RuleSet {
        let source = Source::new(format!("preset {}", self.name), self.text.as_bytes());
        super::load(&source, &mut Problems::new()).unwrap_or_default()
    }
}
