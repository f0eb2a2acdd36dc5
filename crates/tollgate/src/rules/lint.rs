//! The linter: what a rules file allows to be written and its author probably did not mean, or should know.
//!
//! It reads a file that was found to be right, side by side with the [`RuleSet`] it stands for, and adds to the same
//! list of [`Problems`] as the reader. It never refuses a file. Each finding says what follows from the rules as they
//! are, in numbers, and what to write instead:
//!
//! - a *warning* is probably a mistake, and the file can be written so that it goes away without giving anything up;
//! - a *note* is a property of what was chosen, which may be exactly right.
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

mod attributes;
mod claims;
mod company;
mod context;
mod limits;
mod overrides;
mod protection;
mod reach;
mod subjects;

use tollgate_core::Time;
use tollgate_core::rules::RuleSet;

use context::Context;
use tollgate_document::{Node, Problem, Problems, Source, SourceSpan};

/// Attributes that the edge sets, or that people usually set, as long as [`LintOptions`] does not say otherwise.
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

/// What the linter must be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LintOptions {
    /// The instant by which overrides have ended or not.
    pub now: Time,
    /// All attributes that requests can have.
    pub known_attributes: Vec<String>,
    /// Whether the rules will run on a Redis Cluster.
    pub cluster: bool,
}

impl LintOptions {
    /// At `now`, with [`KNOWN_ATTRIBUTES`], not on a cluster.
    pub fn new(now: Time) -> LintOptions {
        let known_attributes = KNOWN_ATTRIBUTES.iter().map(|&name| name.to_owned()).collect();
        LintOptions { now, known_attributes, cluster: false }
    }
}

/// One thing the linter looks for.
#[derive(Clone, Copy, Debug)]
pub struct LintInfo {
    /// The code of its findings: stable, in kebab-case.
    pub code: &'static str,
    /// What it finds.
    pub summary: &'static str,
    /// Why that matters.
    pub why: &'static str,
    run: fn(&Context<'_>, &mut Findings<'_>),
}

/// Everything the linter looks for.
pub const LINTS: &[LintInfo] = &[
    LintInfo {
        code: "bucket-burst",
        summary: "A token bucket, or a leaky bucket with a capacity, that can admit more than its rate in \
                  its own period.",
        why: "What was saved up comes on top of what comes in: at most B + floor((D - 1) * rate) in a span \
              of D ticks.",
        run: limits::bucket_burst,
    },
    LintInfo {
        code: "window-edge-burst",
        summary: "A fixed window, which can admit twice its limit around an edge.",
        why: "All of one window at its end and all of the next at its start lie within one window's length.",
        run: limits::window_edge_burst,
    },
    LintInfo {
        code: "estimated-count",
        summary: "A sliding window with interpolated counting, which is an estimate.",
        why: "Whoever times requests to hurt gets almost twice the limit, with any number of buckets.",
        run: limits::estimated_count,
    },
    LintInfo {
        code: "log-memory",
        summary: "A sliding log that can take more than 1 MiB for one subject.",
        why: "Each instant that still counts is 16 bytes in the store, for every subject.",
        run: limits::log_memory,
    },
    LintInfo {
        code: "log-entries",
        summary: "A sliding log that may remember fewer instants than its limit has units.",
        why: "A request that needs one more entry is refused, although the limit is not reached.",
        run: limits::log_entries,
    },
    LintInfo {
        code: "quota-without-zone",
        summary: "A calendar quota without `zone`.",
        why: "It follows UTC, so its days and months begin at other hours than those of the people who pay \
              for it.",
        run: limits::quota_without_zone,
    },
    LintInfo {
        code: "free-of-charge",
        summary: "A rule under which every request costs 0.",
        why: "Cost 0 writes nothing: the count never moves and the rule never refuses.",
        run: reach::free_of_charge,
    },
    LintInfo {
        code: "rule-off",
        summary: "A rule with `mode: off`.",
        why: "It is as if it were not there. Easily forgotten after the incident for which it was switched \
              off.",
        run: reach::rule_off,
    },
    LintInfo {
        code: "rollout-nobody",
        summary: "An enforced rule with `rollout: 0%`.",
        why: "It is counted for everybody and refuses nobody, although its mode says that it is enforced.",
        run: reach::rollout_nobody,
    },
    LintInfo {
        code: "never-matches",
        summary: "A rule whose conditions contradict each other.",
        why: "No request can meet them all, so the rule protects nothing.",
        run: reach::never_matches,
    },
    LintInfo {
        code: "value-never-seen",
        summary: "A condition on `method` or `path` that no request has: a method in small letters, a path \
                  without `/`.",
        why: "Methods are told apart by case and paths begin with a slash, so the condition never holds.",
        run: reach::value_never_seen,
    },
    LintInfo {
        code: "unreachable-rule",
        summary: "A rule all of whose requests are on the `deny` or the `bypass` list, or refused by a \
                  `limit: deny`.",
        why: "These answer before the rule is asked.",
        run: reach::unreachable_rule,
    },
    LintInfo {
        code: "shadowed-rule",
        summary: "A rule that another rule with a stricter limit covers: same algorithm, same subject, no \
                  fewer requests.",
        why: "The stricter one always refuses first, so the numbers of the other never matter.",
        run: reach::shadowed_rule,
    },
    LintInfo {
        code: "unknown-attribute",
        summary: "An attribute that nobody is known to set.",
        why: "A condition on an absent attribute never holds, and a subject that is absent is not counted.",
        run: attributes::unknown_attribute,
    },
    LintInfo {
        code: "absent-subject",
        summary: "A rule that skips requests without a subject, and does not say that it means to.",
        why: "Whoever leaves the attribute out is not limited at all.",
        run: subjects::absent_subject,
    },
    LintInfo {
        code: "counted-by-address",
        summary: "Rules that count by `ip`.",
        why: "Whoever can choose the address starts afresh with each one: by a forged header, or within an \
              IPv6 block.",
        run: subjects::counted_by_address,
    },
    LintInfo {
        code: "open-login",
        summary: "A rule that guards a login, a password or a code and lets everything pass when the store \
                  fails.",
        why: "An outage, or an attack that causes one, becomes the time for guessing without limit.",
        run: protection::open_login,
    },
    LintInfo {
        code: "penalty-without-account",
        summary: "A penalty that nobody counts by account.",
        why: "Guesses at one account that come from many addresses never add up, and one guesser locks \
              others out.",
        run: protection::penalty_without_account,
    },
    LintInfo {
        code: "expired-override",
        summary: "An override whose `until` has passed.",
        why: "It does nothing any more, and hides which numbers are in force.",
        run: overrides::expired,
    },
    LintInfo {
        code: "override-never-applies",
        summary: "An override whose conditions contradict those of its rule.",
        why: "The rule's own numbers stay in force for everybody.",
        run: overrides::never_applies,
    },
    LintInfo {
        code: "unreachable-override",
        summary: "An override that another one always beats, or that says the same twice.",
        why: "One with `until` beats one without, more conditions beat fewer, and the later of equals wins.",
        run: overrides::unreachable,
    },
    LintInfo {
        code: "several-slots",
        summary: "On a cluster: rules that meet in one request and lie in different slots.",
        why: "Their Plan is not one step: it may refuse too early, and a crash in between loses a charge.",
        run: company::several_slots,
    },
    LintInfo {
        code: "shaper-with-others",
        summary: "A rule with a `queue` that meets other rules in one request.",
        why: "The others count the request when it asks, not when its delay is over and it goes ahead.",
        run: company::shaper_with_others,
    },
    LintInfo {
        code: "lease-ends-in-queue",
        summary: "A concurrency rule whose lease can end while the same request still waits in a queue.",
        why: "The span is given to somebody else before the work has begun.",
        run: company::lease_ends_in_queue,
    },
    // The last, because it says whether the others could finish.
    LintInfo {
        code: "lint-incomplete",
        summary: "A file too large for all its rules to be compared with each other.",
        why: "What compares rules may have missed something.",
        run: context::incomplete,
    },
];

/// Adds what there is to say about a file that was read without errors: `root` is its tree, `set` what it stands for.
///
/// The work is bounded, whatever the file holds.
pub fn lint(source: &Source, root: &Node, set: &RuleSet, options: &LintOptions, problems: &mut Problems) {
    let context = Context::new(source, root, set, options);
    for lint in LINTS {
        (lint.run)(&context, &mut Findings { code: lint.code, problems });
    }
}

/// Where one lint puts what it finds.
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
