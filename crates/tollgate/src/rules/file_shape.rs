//! What may be written in a rules file, in one place: the check, the messages and the JSON Schema all come from here.

use std::sync::LazyLock;

use tollgate_core::EXACT_MAX;
use tollgate_core::algorithm::{concurrency, penalty, sliding_log, sliding_window};

use super::words;
use tollgate_document::Shape;
use tollgate_document::shape::{Fields, TextShape, choice, fields, list, map_of, number, one_of, text};

/// The shape of a rules file.
pub fn file_shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
        fields("a rules file")
            .required("version", number(1, 1), "The version of this format: 1.")
            .optional("namespace", name("a namespace"), "Product and environment, part of every key. Default: `default`.")
            .optional(
                "partition",
                list(attribute()).or_one(),
                "Attributes by which subjects share a slot in Redis Cluster, so that their rules are one step.",
            )
            .optional(
                "slots",
                number(1, 16_384),
                "Divides all subjects into so many slots of Redis Cluster, so that checks of different subjects travel \
                 together. Default: a slot for each subject or partition. Another number starts counts afresh.",
            )
            .required("rules", list(rule()), "The rules. A request meets every rule it matches, all or nothing.")
            .optional("overrides", list(change()), "Other numbers for some requests under a rule.")
            .optional("deny", list(exception()), "Requests that are refused before anything is counted.")
            .optional("bypass", list(exception()), "Requests that pass without being counted.")
            .into()
    });
    &SHAPE
}

/// The shape of a limit by itself.
pub fn limit_shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(limit);
    &SHAPE
}

fn rule() -> Shape {
    let written = fields("a rule")
        .required(
            "id",
            name("an id"),
            "What the rule is called: in keys, metrics and answers. A new id starts afresh.",
        )
        .required("limit", limit(), "How much is allowed.")
        .required(
            "per",
            one_of("a subject")
                .or("Everybody together.", choice(&[("all", "One count for everybody.")]))
                .or("One part.", chain())
                .or("Several parts.", list(chain()).at_least(1)),
            "Who is counted. `a | b` takes the first that is there; the kind found is part of who it is.",
        );
    let preset = fields("a preset")
        .required("use", name("a preset"), "The name of a preset; `tollgate presets` lists them.")
        .optional("id", name("an id"), "What its rules are called instead: `id` or `id-suffix`.")
        .optional("match", conditions(), "Conditions on top of the preset's own.")
        .optional("mode", mode(), "In span of the preset's own.");
    one_of("a rule or a preset").or("A rule.", common(written)).or("A preset.", preset).into()
}

/// What a rule may have besides what it must have.
fn common(rule: Fields) -> Fields {
    rule.optional("description", text("a sentence"), "What it is for. People read it.")
        .optional(
            "match",
            conditions(),
            "Which requests. All conditions must hold; without any, every request.",
        )
        .optional(
            "missing",
            choice(&[("skip", "The rule does not apply."), ("refuse", "The request is refused.")]),
            "What a request gets in which nobody to count is found. Default: skip.",
        )
        .optional(
            "ip_subjects_max",
            number(1, u64::from(u32::MAX)),
            "How many subjects known by nothing but their address (`ip`) are counted one by one. Further ones share \
             one count, so that made-up addresses cannot fill the store. Default: no cap of the rule's own.",
        )
        .optional("cost", cost(), "What a request costs. Default: what the caller says, or 1.")
        .optional("on_failure", on_failure(), "What happens when the store cannot answer. Default: closed.")
        .optional("mode", mode(), "Whether it counts. Default: enforce.")
        .optional(
            "rollout",
            text("a percentage").checked(|text| words::rollout(text).map(drop)).examples(&["10%", "12.5%"]),
            "The share of subjects for which it is enforced; for the others it is a shadow. Default: 100%.",
        )
        .optional("tags", list(text("a tag")).or_one(), "For people and metrics.")
}

fn mode() -> Shape {
    choice(&[
        ("enforce", "It refuses."),
        ("shadow", "It is counted and never refuses."),
        ("off", "As if it were not there."),
    ])
}

fn limit() -> Shape {
    let rated = |what, key, doc| fields(what).required(key, rate(), doc);
    one_of("a limit")
        .or("Refuses everything.", choice(&[("deny", "Nothing is allowed.")]))
        .or("Fixed window.", rated("a fixed window", "fixed-window", "At most this much per aligned window."))
        .or(
            "Sliding window.",
            rated("a sliding window", "sliding-window", "At most this much over the last window.")
                .optional(
                    "buckets",
                    number(1, sliding_window::BUCKETS_MAX),
                    "Parts it is counted in. Default: 6.",
                )
                .optional(
                    "counting",
                    choice(&[
                        ("strict", "The oldest part counts whole: never too much."),
                        ("interpolated", "The oldest part counts by its overlap: an estimate."),
                    ]),
                    "How the oldest part counts. Default: strict.",
                ),
        )
        .or(
            "Sliding log.",
            rated("a sliding log", "sliding-log", "At most this much in any window, exactly.").optional(
                "entries",
                number(1, sliding_log::ENTRIES_MAX),
                "The most instants remembered.",
            ),
        )
        .or(
            "Token bucket.",
            rated("a token bucket", "token-bucket", "This much comes back over time.").optional(
                "burst",
                amount(),
                "The most that can be saved up. Default: the amount of the rate.",
            ),
        )
        .or(
            "Leaky bucket: with `capacity` a meter that refuses, with `queue` a shaper that delays.",
            rated("a leaky bucket", "leaky-bucket", "This much drains over time.")
                .optional("capacity", amount(), "The meter: refuses above this.")
                .optional("queue", amount(), "The shaper: delays, with at most this many waiting."),
        )
        .or(
            "Concurrency.",
            fields("a concurrency limit")
                .required("concurrency", number(1, concurrency::LEASES_MAX), "At most this many at once.")
                .required("lease", span(), "How long a holder may be silent before its span is free again."),
        )
        .or(
            "Quota.",
            fields("a quota")
                .required(
                    "quota",
                    text("an amount per period like 1000000/month")
                        .no_number()
                        .checked(|text| words::quota(text).map(drop))
                        .pattern(r"^\s*[0-9_]+\s*/.*$")
                        .examples(&["1000000/month", "500/day"]),
                    "So much per hour, day, week, month or year of the calendar, or per a length of time.",
                )
                .optional(
                    "period",
                    choice(&[("rolling", "It starts with the first use.")]),
                    "For a length of time.",
                )
                .optional("zone", text("a time zone like Europe/Berlin"), "Whose calendar. Default: UTC.")
                .optional(
                    "starts",
                    text("a day"),
                    "A day of the month (1-31), a weekday, or a date like 04-06 for years.",
                )
                .optional("grace", text("an amount or a percentage"), "Admitted on top, but not promised."),
        )
        .or(
            "Meter.",
            fields("a meter")
                .required(
                    "meter",
                    one_of("what a meter counts to")
                        .or("Without limit.", choice(&[("unlimited", "It only counts.")]))
                        .or("Up to this.", amount()),
                    "A plain counter.",
                )
                .optional("expiry", span(), "Forgotten when untouched for this long. Default: ten years."),
        )
        .or(
            "Penalty.",
            fields("a penalty")
                .required("penalty", span(), "The first wait.")
                .optional("free", number(0, penalty::FREE_MAX), "Failures without consequence. Default: 3.")
                .optional(
                    "factor",
                    number(1, penalty::FACTOR_MAX),
                    "How much longer each next wait is. Default: 2.",
                )
                .optional("longest", span(), "No wait is longer. Default: 15min.")
                .optional("memory", span(), "How long failures are remembered after a wait. Default: 1h.")
                .optional(
                    "count_refused",
                    Shape::Bool,
                    "Whether asking while refused is a failure too. Default: false.",
                ),
        )
        .into()
}

fn cost() -> Shape {
    let cost = || number(0, EXACT_MAX);
    let by_value = || map_of("costs by value", text("a value"), cost());
    one_of("a cost")
        .or("Always this.", cost())
        .or(
            "By the value of an attribute.",
            fields("costs by value")
                .required(
                    "by",
                    map_of("an attribute and its costs", attribute(), by_value()),
                    "One attribute.",
                )
                .optional("default", cost(), "For other values. Default: 1."),
        )
        .or(
            "By an expression over the attributes.",
            fields("an expression")
                .required(
                    "expression",
                    text("a CEL expression like `int(tokens) / 10`"),
                    "A whole number in CEL.",
                )
                .optional("default", cost(), "If the expression fails. Default: 1."),
        )
        .into()
}

fn on_failure() -> Shape {
    let policy = || {
        text(words::FAILURE_FORMS).checked(|text| words::on_failure(text).map(drop)).examples(&[
            "open",
            "closed",
            "degraded",
            "local 25%",
            "cap 10/s",
        ])
    };
    let by_value = map_of("policies by value", text("a value"), policy());
    one_of("a failure policy")
        .or("Always this.", policy())
        .or(
            "By the value of an attribute.",
            fields("failure policies by value").required("default", policy(), "For other values.").required(
                "by",
                map_of("an attribute and its policies", attribute(), by_value),
                "One attribute.",
            ),
        )
        .into()
}

fn change() -> Shape {
    fields("an override")
        .required("rule", name("a rule's id"), "The rule whose numbers change.")
        .required("when", conditions(), "For which requests. More conditions beat fewer.")
        .required("limit", limit(), "The numbers in span of the rule's.")
        .optional(
            "until",
            text("an instant like 2026-12-01T00:00:00Z").examples(&["2026-12-01T00:00:00Z"]),
            "When it ends by itself. An override that ends beats all that do not.",
        )
        .optional("reason", text("a sentence"), "Why. People read it.")
        .into()
}

fn exception() -> Shape {
    fields("an exception")
        .required("when", conditions(), "Which requests. All conditions must hold.")
        .optional("reason", text("a sentence"), "Why. People read it.")
        .into()
}

/// Attributes and what their values must be.
fn conditions() -> Shape {
    let value = || text("a value");
    let test = one_of("a condition")
        .or("This value, or one of this form if it has a `*`; a path may have {names}.", value())
        .or("One of these.", list(value()).at_least(1))
        .or(
            "Exactly this, whatever characters it has.",
            fields("a value").required("is", value(), "The value."),
        )
        .or("Anything that starts so.", fields("a prefix").required("prefix", value(), "The start."));
    map_of("attributes and what they must be", attribute(), test).into()
}

fn name(what: &'static str) -> TextShape {
    text(what).checked(words::id).pattern("^[A-Za-z0-9._-]{1,64}$")
}

fn attribute() -> TextShape {
    text("an attribute's name").checked(words::attribute_name).pattern("^[A-Za-z0-9._-]{1,64}$")
}

fn chain() -> TextShape {
    text("an attribute, or several with `|` between them")
        .checked(|text| words::chain(text).map(drop))
        .pattern(r"^\s*[A-Za-z0-9._-]{1,64}\s*(\|\s*[A-Za-z0-9._-]{1,64}\s*)*$")
        .examples(&["tenant", "api_key | user | ip"])
}

fn rate() -> TextShape {
    text("a rate like 100/min")
        .no_number()
        .checked(words::rate)
        .pattern(r"^\s*[0-9_]+\s*/.*$")
        .examples(&["2/s", "100/min", "5/10min"])
}

fn span() -> TextShape {
    text("a length of time like 30s")
        .no_number()
        .checked(words::span)
        .pattern(r"^\s*[0-9_]*\s*(us|ms|s|sec|seconds?|min|m|minutes?|h|hours?|d|days?|w|weeks?)\s*$")
        .examples(&["30s", "10min", "1h"])
}

fn amount() -> Shape {
    number(1, EXACT_MAX)
}
