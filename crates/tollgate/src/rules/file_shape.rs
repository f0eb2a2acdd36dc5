//! The shape of a rules file. The check, its messages, the reference page and the JSON Schema are generated from it.

use std::sync::LazyLock;

use tollgate_core::EXACT_MAX;
use tollgate_core::limit::part::Shards;
use tollgate_core::limit::scale::Scale;

mod limit;
mod scalars;

use self::limit::limit;
use self::scalars::{DURATION, attribute, chain, name};
use super::renamed_keys::RULE_KEYS;
use super::{notation, slices};
use tollgate_document::Shape;
use tollgate_document::shape::{Fields, choice, fields, list, map_of, number, one_of, text};

/// The shape of a rules file.
pub fn file_shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
        fields("a rules file")
            .required("version", number(1, 1), "The version of this format: 1.")
            .optional(
                "namespace",
                name("a namespace"),
                "Product and environment. It is part of every key. Default: `default`.",
            )
            .optional(
                "partition",
                list(attribute()).or_one(),
                "Subjects with the same values of these attributes share a hash slot in Redis Cluster, so that \
                 their rules are checked in one atomic step.",
            )
            .optional(
                "slots",
                number(1, 16_384),
                "Number of hash slots in Redis Cluster that all subjects are divided into, so that checks of \
                 different subjects can be sent together. Default: one slot per subject or partition. Changing \
                 the number resets all counts.",
            )
            .optional(
                "unmatched",
                choice(&[
                    ("allow", "The request is allowed and not counted."),
                    ("refuse", "The request is refused with status 403 and the code `unmatched`."),
                ]),
                "What happens to a request that no rule counts: none matches, or every rule that matches skips it \
                 because its `per` attribute is missing. Default: allow.",
            )
            .optional(
                "attributes",
                map_of("attributes", attribute(), declared_attribute()),
                "The attributes that requests have. If the file declares any, the use of another one is an error. \
                 `ip`, `method`, `path`, `host`, `domain` and `descriptor` are always known.",
            )
            .optional(
                "ambiguous_paths",
                choice(&[
                    ("match", "Rules and `deny` apply if one reading matches, `bypass` only if all do."),
                    ("refuse", "The request is denied."),
                ]),
                "What happens to a request whose path servers read in several ways, like `/x%2F..%2Fsearch`. \
                 Default: match.",
            )
            .optional(
                "path_case",
                choice(&[
                    ("sensitive", "`/Search` and `/search` are different paths."),
                    ("insensitive", "They are the same path; rules are written in lower case."),
                ]),
                "Whether the case of ASCII letters in a path matters. Default: sensitive.",
            )
            .required(
                "rules",
                list(rule()),
                "The rules. A request is charged under all rules that it matches, or under none of them.",
            )
            .optional("overrides", list(override_of_a_rule()), "Other numbers for some requests under a rule.")
            .optional("deny", list(exception()), "Requests that are denied before any limit is checked.")
            .optional("bypass", list(exception()), "Requests that are allowed without being counted.")
            .into()
    });
    &SHAPE
}

/// The shape of a single limit.
pub fn limit_shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(limit);
    &SHAPE
}

fn declared_attribute() -> Shape {
    fields("an attribute")
        .optional("description", text("a sentence"), "What it is, for people.")
        .optional(
            "normalize",
            list(choice(&[
                ("nfkc", "Unicode compatibility composition: full-width and other variants of a character become one."),
                ("lower", "Lower case."),
                ("trim", "No white space at either end."),
            ]))
            .at_least(1)
            .or_one(),
            "The normal form of its values, before rules match and count them. The order does not matter.",
        )
        .optional(
            "secret",
            Shape::Bool,
            "Whether its values are secrets: live changes keep only their keyed hashes. Those of `api_key` always are. Default: \
             false.",
        )
        .into()
}

fn rule() -> Shape {
    let written = fields("a rule")
        .required(
            "id",
            name("an id"),
            "The name of the rule in keys, metrics and responses. Changing the id resets its counts.",
        )
        .required("limit", limit(), "The algorithm and its numbers.")
        .required(
            "per",
            one_of("a subject")
                .or("One count for all requests.", choice(&[("all", "One count for all requests.")]))
                .or("One attribute, or alternatives.", chain())
                .or("Several attributes, each with alternatives.", list(chain()).at_least(1)),
            "The attributes to count by. `a | b` uses the first attribute that is present; its name is part of \
             the subject.",
        );
    let preset = fields("a preset")
        .required("use", name("a preset"), "The name of a preset; `tollgate presets` lists them.")
        .optional(
            "id",
            name("an id"),
            "Prefix of the ids of its rules: `id-suffix`. Default: the name of the preset.",
        )
        .optional("match", conditions(), "Conditions in addition to those of the preset.")
        .optional("mode", mode(), "Replaces the mode of the preset's rules.");
    one_of("a rule or a preset").or("A rule.", with_optional_keys(written)).or("A preset.", preset).into()
}

/// Adds the optional keys of a rule.
fn with_optional_keys(rule: Fields) -> Fields {
    rule.renamed(RULE_KEYS)
        .optional("description", text("a sentence"), "The purpose of the rule, for people.")
        .optional(
            "match",
            conditions(),
            "Which requests the rule applies to. All conditions must hold. Default: every request.",
        )
        .optional(
            "missing",
            choice(&[("skip", "The rule does not apply."), ("refuse", "The request is refused.")]),
            "What happens when no `per` attribute is present. Default: skip.",
        )
        .optional(
            "ip_subjects_max",
            number(1, u64::from(u32::MAX)),
            "Maximum number of subjects, known only by their address (`ip`), that are counted separately. Further \
             ones share one count, so that forged addresses cannot fill the store. Default: no cap for this rule.",
        )
        .optional(
            "cost",
            cost(),
            "The cost of a request. Default: the cost in the request, or 1; under a concurrency limit always 1.",
        )
        .optional(
            "postpaid",
            Shape::Bool,
            "Whether costs are known only after the work, like tokens or bytes. A request without a cost asks with cost \
             0: it is admitted while anything is left. A cost is booked without asking, also above the limit. Default: \
             false.",
        )
        .optional(
            "slices",
            slices(),
            "Lets a server book a part of the limit in Redis and spend it without asking, for keys with many checks per \
             second. Never admits more; near the limit it may refuse earlier. Default: every check asks.",
        )
        .optional(
            "shards",
            number(Shards::MIN, Shards::MAX),
            "Divides the limit over this number of keys, so that one hot subject does not load one hash slot only. Each \
             request is counted by one of them. Never admits more; may refuse earlier. Changing the number resets all \
             counts. Default: one key.",
        )
        .optional(
            "ledger",
            ledger(),
            "Records what the rule admits in a database, exactly once, so that people can bill on it. Only for quotas and \
             meters; the server needs `database`. Default: not recorded.",
        )
        .optional("on_failure", on_failure(), "What happens when the store cannot answer. Default: closed.")
        .optional(
            "prefilter",
            text(notation::PREFILTER_FORM)
                .checked(|text| notation::prefilter(text).map(drop))
                .examples(&["150%", "300%"]),
            "Refuses a flood without asking a remote store: each server counts all attempts against this share of the \
             limit, and nothing is given back. Default: no prefilter.",
        )
        .optional(
            "refusal_memory",
            choice(&[("on", "Refusals are remembered."), ("off", "A remote store is asked every time.")]),
            "Whether a server repeats a remote store's refusal for as long as it holds, at most a second. Default: on.",
        )
        .optional("mode", mode(), "Whether the rule counts and refuses. Default: enforce.")
        .optional(
            "rollout",
            text("a percentage").checked(|text| notation::rollout(text).map(drop)).examples(&["10%", "12.5%"]),
            "The share of subjects for which the rule is enforced. For the others it is a shadow. Default: 100%.",
        )
        .optional("tags", list(text("a tag")).or_one(), "Labels for people and metrics.")
        .optional(
            "show",
            list(attribute()).or_one(),
            "Attributes whose values are shown beside the hash of a subject where refused subjects are listed. Never name secrets.",
        )
}

fn slices() -> Shape {
    fields("slices")
        .required(
            "hold",
            text("a duration like 250ms")
                .no_number()
                .checked(slices::check_hold)
                .pattern(DURATION)
                .examples(&["250ms", "1s"]),
            "How long a server may spend a part that it has booked, from 10ms to 10s. A bucket runs at its capacity minus \
             what it refills in this time.",
        )
        .into()
}

fn ledger() -> Shape {
    fields("ledger")
        .optional(
            "detail",
            choice(&[
                ("entries", "Every charge is one row."),
                ("totals", "The charges of one second are one row per kind."),
            ]),
            "What the database keeps. Default: entries.",
        )
        .optional(
            "wait",
            Shape::Bool,
            "Whether an answer waits for the commit in the database, for at most 500 ms; then the failure policy answers. \
             Default: false: the answer waits for the journal on the server's disk.",
        )
        .optional(
            "when_down",
            choice(&[
                ("queue", "Charges go on; the journal keeps them, for at most 15 minutes or 1 GiB."),
                ("refuse", "The failure policy answers after three seconds."),
            ]),
            "What happens while the database does not answer. Default: queue.",
        )
        .optional(
            "name",
            attribute(),
            "The attribute whose value is kept as the name of the account, readable in the database. Without it, the database has \
             hashes only. Never name a secret.",
        )
        .into()
}

fn mode() -> Shape {
    choice(&[
        ("enforce", "The rule counts and refuses."),
        ("shadow", "The rule counts and reports, but never refuses."),
        ("off", "The rule has no effect."),
    ])
}

fn cost() -> Shape {
    let cost = || number(0, EXACT_MAX);
    let by_value = || map_of("costs by value", text("a value"), cost());
    one_of("a cost")
        .or("A fixed cost.", cost())
        .or(
            "The cost in the request.",
            choice(&[("request", "The cost in the request, or 1; for a concurrency limit with weights.")]),
        )
        .or(
            "A cost for each value of an attribute.",
            fields("costs by value")
                .required(
                    "by",
                    map_of("an attribute and its costs", attribute(), by_value()),
                    "One attribute, and a cost for each value.",
                )
                .optional("default", cost(), "The cost for other values. Default: 1."),
        )
        .or(
            "An expression over the attributes.",
            fields("an expression")
                .required(
                    "expression",
                    text("a CEL expression like `int(tokens) / 10`"),
                    "A CEL expression. Its result is a whole number.",
                )
                .optional(
                    "default",
                    cost(),
                    "The cost if the expression fails or overflows. Required: write what an expensive request costs.",
                ),
        )
        .into()
}

fn on_failure() -> Shape {
    let policy = || {
        text(notation::FAILURE_FORMS).checked(|text| notation::on_failure(text).map(drop)).examples(&[
            "open",
            "closed",
            "degraded",
            "local 25%",
            "cap 10/s",
        ])
    };
    let by_value = map_of("policies by value", text("a value"), policy());
    one_of("a failure policy")
        .or("A fixed policy.", policy())
        .or(
            "A policy for each value of an attribute.",
            fields("failure policies by value")
                .required("default", policy(), "The policy for other values.")
                .required(
                    "by",
                    map_of("an attribute and its policies", attribute(), by_value),
                    "One attribute, and a policy for each value.",
                ),
        )
        .into()
}

fn override_of_a_rule() -> Shape {
    fields("an override")
        .required("rule", name("a rule's id"), "The rule whose numbers change.")
        .required(
            "when",
            conditions(),
            "Which requests it applies to. An override with more conditions takes precedence.",
        )
        .optional("limit", limit(), "The limit that replaces the rule's own. Either this or `scale` is required.")
        .optional(
            "scale",
            text("a number from 0.001 to 1000").checked(check_scale).examples(&["2", "0.5"]),
            "Multiplies what would otherwise apply: rate and capacity, rounded down, at least 1. Not for penalties and \
             `deny`.",
        )
        .optional(
            "until",
            text("an instant like 2026-12-01T00:00:00Z").examples(&["2026-12-01T00:00:00Z"]),
            "When the override ends. One with `until` takes precedence over one without.",
        )
        .optional("reason", text("a sentence"), "The reason, for people.")
        .into()
}

fn check_scale(text: &str) -> Result<(), String> {
    text.parse::<Scale>().map(drop).map_err(|error| error.to_string())
}

fn exception() -> Shape {
    fields("an exception")
        .required("when", conditions(), "Which requests it applies to. All conditions must hold.")
        .optional("reason", text("a sentence"), "The reason, for people.")
        .into()
}

/// Attributes and the conditions on their values.
pub(super) fn conditions() -> Shape {
    let value = || text("a value");
    let exact = || list(value()).at_least(1).or_one();
    let prefix = || fields("a prefix").required("prefix", value(), "The prefix.");
    let pattern =
        || fields("a pattern").required("pattern", value(), "The pattern; `*` stands for any characters.");
    let excluded = one_of("an excluded value")
        .or("A value, or a pattern if it contains `*`.", value())
        .or(
            "Exactly these values, with any characters.",
            fields("values").required("is", exact(), "The values."),
        )
        .or("Any value with this prefix.", prefix())
        .or("Any value that matches this pattern.", pattern());
    let excluded: Shape = list(excluded).at_least(1).or_one().into();
    const NOT: &str = "Values and patterns that are excluded.";
    let test = one_of("a condition")
        .or(
            "A value, or a pattern if it contains `*`. A path may contain {names}. `ip` takes an address or a block \
             like 2001:db8::/32.",
            value(),
        )
        .or("One of several values.", list(value()).at_least(1))
        .or(
            "Exactly this value or one of these, with any characters.",
            fields("a value").required("is", exact(), "The value, or a list of values."),
        )
        .or("Any value with this prefix.", prefix().optional("not", excluded.clone(), NOT))
        .or("Any value that matches this pattern.", pattern().optional("not", excluded.clone(), NOT))
        .or("Any value except these.", fields("an exclusion").required("not", excluded, NOT));
    map_of("attributes and their conditions", attribute(), test).into()
}
