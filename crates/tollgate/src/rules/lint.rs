//! The linter finds rules that are valid but probably not what their author wants.
//!
//! It reads a valid file together with its `RuleSet`, and adds findings to the same list of [`Problems`] as the
//! loader. It never rejects a file. Each finding states the consequence in numbers, and what to write instead:
//!
//! - a *warning* is probably a mistake, and the file can be changed to remove it without any loss;
//! - a *note* is a property of the chosen limit, which may be intended.
//!
//! ```
//! use tollgate::core::Time;
//! use tollgate::rules::lint::LintOptions;
//! use tollgate::rules::load_and_lint;
//! use tollgate_document::{Problems, Source};
//!
//! let text = b"version: 1\nrules:\n  - { id: a, per: all, limit: { token-bucket: 100/min, burst: 20 } }";
//! let (source, mut problems) = (Source::new("rules.yaml", text), Problems::new());
//! let now = Time::from_us(1_800_000_000_000_000);
//! let rules = load_and_lint(&source, &LintOptions::new(now), &mut problems);
//! assert!(rules.is_some());
//! assert!(problems.in_order()[0].message.contains("can admit 119 in 1min, not 100"));
//! ```

mod checks;
mod conditions;
mod context;
pub(super) mod effect;

use tollgate_core::Time;

use super::LoadedFile;
use checks::{
    attributes, dead_rules, failure_policies, interactions, ledger, limits, old_keys, overrides, protection,
    slices, subjects, unmatched,
};
use context::Context;
use tollgate_document::{Problem, Problems, Source, SourceSpan};

/// The default of [`LintOptions::known_attributes`]: attributes that the edge or callers usually set.
pub const KNOWN_ATTRIBUTES: &[&str] = &[
    "account",
    "action",
    "api_key",
    "descriptor",
    "domain",
    "host",
    "ip",
    "method",
    "model",
    "path",
    "plan",
    "service",
    "target",
    "tenant",
    "tokens",
    "user",
];

/// Options of the linter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LintOptions {
    /// The time that overrides are compared with to find expired ones.
    pub now: Time,
    /// The attributes that requests can have.
    pub known_attributes: Vec<String>,
    /// Whether the rules will run on a Redis Cluster.
    pub cluster: bool,
}

impl LintOptions {
    /// Options for the time `now`, with [`KNOWN_ATTRIBUTES`], without a cluster.
    pub fn new(now: Time) -> LintOptions {
        let known_attributes = KNOWN_ATTRIBUTES.iter().map(|&name| name.to_owned()).collect();
        LintOptions { now, known_attributes, cluster: false }
    }
}

/// One lint.
#[derive(Clone, Copy, Debug)]
pub struct LintInfo {
    /// The code of its findings: stable, in kebab-case.
    pub code: &'static str,
    /// What it reports.
    pub summary: &'static str,
    /// Why it matters.
    pub why: &'static str,
    run: fn(&Context<'_>, &mut Findings<'_>),
}

/// All lints.
pub const LINTS: &[LintInfo] = &[
    LintInfo {
        code: "bucket-burst",
        summary: "A bucket that can admit more than its rate within one period.",
        why: "Saved units add to the refill: up to B + floor((D - 1) * rate) in D ticks, for a capacity B.",
        run: limits::bucket_burst,
    },
    LintInfo {
        code: "window-edge-burst",
        summary: "A fixed window, which can admit twice its limit around a window edge.",
        why: "A full limit on each side of the edge falls within one window length.",
        run: limits::window_edge_burst,
    },
    LintInfo {
        code: "estimated-count",
        summary: "A sliding window with `counting: interpolated`, which is an estimate.",
        why: "A client that times its requests gets almost twice the limit, with any `buckets`.",
        run: limits::estimated_count,
    },
    LintInfo {
        code: "log-memory",
        summary: "A sliding log that can use more than 1 MiB for one subject.",
        why: "The store keeps 16 bytes per counted request, for every subject.",
        run: limits::log_memory,
    },
    LintInfo {
        code: "log-entries",
        summary: "A sliding log with fewer `entries` than its limit admits requests.",
        why: "A request that needs one more entry is refused before the limit is reached.",
        run: limits::log_entries,
    },
    LintInfo {
        code: "early-refusals",
        summary: "A rule with `slices`, which may refuse earlier than without them.",
        why: "Units that one server has booked and not spent are refused to the others until they are returned.",
        run: slices::early_refusals,
    },
    LintInfo {
        code: "shadow-slices",
        summary: "A shadow rule with `slices`.",
        why: "A shadow rule must count what the store would decide, so it asks the store each time.",
        run: slices::of_shadow,
    },
    LintInfo {
        code: "shadow-ledger",
        summary: "A shadow rule with `ledger`.",
        why: "What a shadow rule counts is not consumption, so the ledger leaves it out.",
        run: ledger::of_shadow,
    },
    LintInfo {
        code: "quota-without-zone",
        summary: "A calendar quota without `zone`.",
        why: "It follows UTC, so its days and months start at other hours than in the customer's time zone.",
        run: limits::quota_without_zone,
    },
    LintInfo {
        code: "free-of-charge",
        summary: "A rule under which every request costs 0.",
        why: "Cost 0 consumes nothing, so the rule never refuses.",
        run: dead_rules::free_of_charge,
    },
    LintInfo {
        code: "rule-off",
        summary: "A rule with `mode: off`.",
        why: "The rule has no effect. It is easily forgotten after the incident for which it was switched off.",
        run: dead_rules::rule_off,
    },
    LintInfo {
        code: "empty-rollout",
        summary: "An enforced rule with `rollout: 0%`.",
        why: "The rule counts all subjects and refuses none, although its mode is `enforce`.",
        run: dead_rules::empty_rollout,
    },
    LintInfo {
        code: "never-matches",
        summary: "A rule whose conditions contradict each other.",
        why: "No request meets all conditions, so the rule protects nothing.",
        run: dead_rules::never_matches,
    },
    LintInfo {
        code: "value-never-seen",
        summary: "A condition on a `method` in lowercase, or a `path` without `/`.",
        why: "Methods are uppercase and paths start with a slash, so it never holds.",
        run: dead_rules::value_never_seen,
    },
    LintInfo {
        code: "unreachable-rule",
        summary: "A rule whose requests are all denied, bypassed, or refused by a `limit: deny`.",
        why: "These are decided before the rule is checked.",
        run: dead_rules::unreachable_rule,
    },
    LintInfo {
        code: "shadowed-rule",
        summary: "A rule covered by a stricter one: same algorithm, same subject, no fewer requests.",
        why: "The stricter rule always refuses first.",
        run: dead_rules::shadowed_rule,
    },
    LintInfo {
        code: "unknown-attribute",
        summary: "An attribute that is not among the known attributes.",
        why: "A condition on it never holds, and a subject without it is not counted.",
        run: attributes::unknown_attribute,
    },
    LintInfo {
        code: "absent-subject",
        summary: "A rule that skips requests without a subject because `missing` is not set.",
        why: "A request that omits the attribute is not limited at all.",
        run: subjects::absent_subject,
    },
    LintInfo {
        code: "counted-by-address",
        summary: "Rules that count by `ip`.",
        why: "A client that changes its address, by a forged header or in an IPv6 block, gets a new count.",
        run: subjects::counted_by_address,
    },
    LintInfo {
        code: "unverified-key",
        summary: "A rule that counts by `api_key | ip` without a rule that counts the same requests by `ip`.",
        why: "Unless the key was verified before the check, every invented key gets a fresh count.",
        run: subjects::unverified_key,
    },
    LintInfo {
        code: "open-login",
        summary: "A rule for a login, a password or a code that allows all when the store fails.",
        why: "An outage, or an attack that causes one, allows unlimited guessing.",
        run: protection::open_login,
    },
    LintInfo {
        code: "penalty-without-account",
        summary: "A penalty without a rule that counts by account.",
        why: "Guesses from many addresses never add up, and one attacker locks others out.",
        run: protection::penalty_without_account,
    },
    LintInfo {
        code: "expired-override",
        summary: "An override whose `until` has passed.",
        why: "It has no effect, and hides which numbers are in force.",
        run: overrides::expired,
    },
    LintInfo {
        code: "override-never-applies",
        summary: "An override whose conditions contradict those of its rule.",
        why: "The rule's own numbers stay in force for all requests.",
        run: overrides::never_applies,
    },
    LintInfo {
        code: "unreachable-override",
        summary: "An override that another one always takes precedence over.",
        why: "`until` beats no `until`, more conditions beat fewer, and of equals the later wins.",
        run: overrides::unreachable,
    },
    LintInfo {
        code: "temporary-lowering",
        summary: "An override with `until` that lowers a limit.",
        why: "It takes precedence over every override without `until`, also over one that grants more.",
        run: overrides::temporary_lowering,
    },
    LintInfo {
        code: "raise-that-lowers",
        summary: "An override without `until` that raises the rule's own limit, and lowers that of another override.",
        why: "It takes precedence over the other one, so requests that meet both get less than before.",
        run: overrides::raise_that_lowers,
    },
    LintInfo {
        code: "indivisible-limit",
        summary: "`on_failure: local` on a limit that cannot be divided: concurrency, a queue, a penalty.",
        why: "A share of such a limit means nothing, so requests would be refused while the store does not answer.",
        run: failure_policies::indivisible,
    },
    LintInfo {
        code: "unmatched-refuse",
        summary: "`unmatched: refuse` that refuses every request, or none.",
        why: "Without a rule in force nothing is allowed; with a rule for every request nothing is unmatched.",
        run: unmatched::refuse,
    },
    LintInfo {
        code: "several-slots",
        summary: "On a cluster: rules that match one request in different hash slots.",
        why: "The check is not atomic: it may refuse too early, and a crash may lose a charge.",
        run: interactions::several_slots,
    },
    LintInfo {
        code: "shaper-with-others",
        summary: "A rule with a `queue` that matches the same requests as other rules.",
        why: "The others count a request before its delay, not after it.",
        run: interactions::shaper_with_others,
    },
    LintInfo {
        code: "lease-ends-in-queue",
        summary: "A lease that can end while its request still waits in a queue.",
        why: "Another request gets the lease before the work has started.",
        run: interactions::lease_ends_in_queue,
    },
    LintInfo {
        code: "lease-behind-gateway",
        summary: "A concurrency rule for requests of Envoy's rate limit service.",
        why: "Envoy cannot release a lease, so the server refuses these requests.",
        run: interactions::lease_behind_gateway,
    },
    LintInfo {
        code: "renamed-key",
        summary: "A key that has a new name.",
        why: "The old name is accepted for one release only.",
        run: old_keys::renamed_key,
    },
    // Last, because it reports whether the other lints could finish.
    LintInfo {
        code: "lint-incomplete",
        summary: "A file with too many rules or conditions to compare all of them.",
        why: "Lints that compare rules may have missed something.",
        run: context::incomplete,
    },
];

/// Runs all lints on a file without errors.
///
/// The time is bounded for any file.
pub(super) fn lint(source: &Source, file: &LoadedFile, options: &LintOptions, problems: &mut Problems) {
    let context = Context::new(source, file, options);
    for lint in LINTS {
        (lint.run)(&context, &mut Findings { code: lint.code, problems });
    }
}

/// The findings of one lint.
struct Findings<'p> {
    code: &'static str,
    problems: &'p mut Problems,
}

impl Findings<'_> {
    fn warning(&self, span: SourceSpan, message: String, fix: impl Into<String>) -> Problem {
        Problem::warning(self.code, span, message).help(fix)
    }

    fn note(&self, span: SourceSpan, message: String, fix: impl Into<String>) -> Problem {
        Problem::note(self.code, span, message).help(fix)
    }

    fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }
}

#[cfg(test)]
mod tests;
