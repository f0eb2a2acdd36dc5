//! Words of other rate limiters that users write in a rules file, and what to write instead.
//!
//! Each word belongs to a context: the noun of the map whose key it is, or the key whose value it is. Case, `_` and `-`
//! are ignored.

use tollgate_document::shape::WordHint;

use crate::shorthand;

/// A word, the allowed word with the same meaning in the same place, and what to write.
type ForeignWord = (&'static str, Option<&'static str>, &'static str);

const IN_LIMIT: &str = "numbers belong to the limit: `limit: { token-bucket: 10/s, burst: 20 }`";
const ALGORITHM: &str = "the algorithm is the key of the limit: `limit: { token-bucket: 10/s }`; `tollgate guide` helps to \
                         choose one";
const PER: &str = "`per` names the attributes to count by: `per: api_key`, or `per: [tenant, api_key | ip]`";
const MATCH: &str =
    "conditions belong to `match`: `match: { path: /v1/search, method: GET }`; all of them must hold";
const MODE: &str = "`mode: shadow` counts and reports but never refuses; `mode: off` switches the rule off";
const ON_FAILURE: &str =
    "`on_failure` is what happens when the store does not answer: `open`, `closed` or `degraded`";
const COST: &str =
    "`cost` is a number, costs by value, or an expression: `cost: { expression: int(tokens) }`";
const LISTS: &str = "write it at the top of the file: `deny: [{ when: { api_key: k-1 } }]`, or `bypass:` for requests that \
                     are not counted";
const RATE: &str =
    "an amount and a duration are written as one rate: `token-bucket: 100/min`, `fixed-window: 5/10s`";
const IMPORT: &str =
    "this is a key of Envoy's rate limit service; `tollgate import envoy FILE` converts such a file";
const OUTCOME: &str =
    "responses are not part of a rule; docs/reference/http.md describes status, body and headers";

/// Keys of a rules file.
const FILE: &[ForeignWord] = &[
    ("limits", Some("rules"), "the rules are a list: `rules: [{ id: search, per: api_key, limit: … }]`"),
    ("policies", Some("rules"), "the rules are a list: `rules: [{ id: search, per: api_key, limit: … }]`"),
    ("ratelimits", Some("rules"), "the rules are a list: `rules: [{ id: search, per: api_key, limit: … }]`"),
    ("domain", None, IMPORT),
    ("descriptors", None, IMPORT),
    ("whitelist", Some("bypass"), "requests that are not counted: `bypass: [{ when: { ip: 10.0.0.1 } }]`"),
    ("allowlist", Some("bypass"), "requests that are not counted: `bypass: [{ when: { ip: 10.0.0.1 } }]`"),
    ("allow", Some("bypass"), "requests that are not counted: `bypass: [{ when: { ip: 10.0.0.1 } }]`"),
    ("blacklist", Some("deny"), "requests that are always refused: `deny: [{ when: { api_key: k-1 } }]`"),
    ("blocklist", Some("deny"), "requests that are always refused: `deny: [{ when: { api_key: k-1 } }]`"),
    ("block", Some("deny"), "requests that are always refused: `deny: [{ when: { api_key: k-1 } }]`"),
    (
        "default",
        Some("unmatched"),
        "`unmatched: refuse` refuses requests that no rule matches; the default is allow",
    ),
    (
        "prefix",
        Some("namespace"),
        "`namespace` is part of every key; a prefix for all keys is part of the store's URL",
    ),
];

/// Keys of a rule.
const RULE: &[ForeignWord] = &[
    ("key", Some("per"), PER),
    ("keys", Some("per"), PER),
    ("by", Some("per"), PER),
    ("groupby", Some("per"), PER),
    ("limitby", Some("per"), PER),
    ("identifier", Some("per"), PER),
    ("discriminator", Some("per"), PER),
    ("subject", Some("per"), PER),
    ("scope", Some("per"), PER),
    ("zone", Some("per"), PER),
    ("remoteaddress", Some("per"), "to count by address, write `per: ip`"),
    ("name", Some("id"), "`id` is the name of the rule in keys, metrics and responses"),
    ("when", Some("match"), MATCH),
    ("if", Some("match"), MATCH),
    ("conditions", Some("match"), MATCH),
    ("filter", Some("match"), MATCH),
    ("path", Some("match"), MATCH),
    ("route", Some("match"), MATCH),
    ("url", Some("match"), MATCH),
    ("method", Some("match"), MATCH),
    ("methods", Some("match"), MATCH),
    ("host", Some("match"), MATCH),
    ("action", Some("match"), MATCH),
    ("algorithm", None, ALGORITHM),
    ("type", None, ALGORITHM),
    ("strategy", None, ALGORITHM),
    ("rate", Some("limit"), IN_LIMIT),
    ("ratelimit", Some("limit"), IN_LIMIT),
    ("requests", Some("limit"), IN_LIMIT),
    ("requestsperunit", Some("limit"), IN_LIMIT),
    ("requestspersecond", Some("limit"), IN_LIMIT),
    ("requestsperminute", Some("limit"), IN_LIMIT),
    ("rps", Some("limit"), IN_LIMIT),
    ("rpm", Some("limit"), IN_LIMIT),
    ("max", Some("limit"), IN_LIMIT),
    ("maxvalue", Some("limit"), IN_LIMIT),
    ("count", Some("limit"), IN_LIMIT),
    ("points", Some("limit"), IN_LIMIT),
    ("average", Some("limit"), IN_LIMIT),
    ("burst", None, IN_LIMIT),
    ("burstsize", None, IN_LIMIT),
    ("capacity", None, IN_LIMIT),
    ("window", None, IN_LIMIT),
    ("windowms", None, IN_LIMIT),
    ("windowsize", None, IN_LIMIT),
    ("period", None, IN_LIMIT),
    ("interval", None, IN_LIMIT),
    ("duration", None, IN_LIMIT),
    ("seconds", None, IN_LIMIT),
    ("unit", None, IN_LIMIT),
    ("timeunit", None, IN_LIMIT),
    ("refillrate", None, IN_LIMIT),
    ("quota", Some("limit"), "a quota is a limit: `limit: { quota: 1000000/month }`"),
    ("concurrency", Some("limit"), "write `limit: { concurrency: 10, lease: 1min }`"),
    (
        "delay",
        None,
        "to delay requests instead of refusing them, write `limit: { leaky-bucket: 10/s, queue: 20 }`",
    ),
    ("nodelay", None, "a token bucket never delays: `limit: { token-bucket: 10/s, burst: 20 }`"),
    ("dryrun", Some("mode"), MODE),
    ("shadow", Some("mode"), MODE),
    ("shadowmode", Some("mode"), MODE),
    ("enabled", Some("mode"), MODE),
    ("disabled", Some("mode"), MODE),
    ("enforce", Some("mode"), MODE),
    ("failopen", Some("on_failure"), ON_FAILURE),
    ("failclosed", Some("on_failure"), ON_FAILURE),
    ("failuremode", Some("on_failure"), ON_FAILURE),
    ("failuremodedeny", Some("on_failure"), ON_FAILURE),
    ("fallback", Some("on_failure"), ON_FAILURE),
    ("faulttolerant", Some("on_failure"), ON_FAILURE),
    ("weight", Some("cost"), COST),
    ("hits", Some("cost"), COST),
    ("hitsaddend", Some("cost"), COST),
    ("price", Some("cost"), COST),
    ("deny", None, LISTS),
    ("bypass", None, LISTS),
    ("skip", None, LISTS),
    ("whitelist", None, LISTS),
    ("allowlist", None, LISTS),
    ("blacklist", None, LISTS),
    ("blocklist", None, LISTS),
    (
        "overrides",
        None,
        "overrides are a list at the top of the file: `overrides: [{ rule: search, when: …, limit: … }]`",
    ),
    ("percentage", Some("rollout"), "`rollout: 10%` enforces the rule for a tenth of its subjects"),
    ("status", None, OUTCOME),
    ("statuscode", None, OUTCOME),
    ("message", None, OUTCOME),
    ("headers", None, OUTCOME),
];

const TOKEN_BUCKET: &str = "write `token-bucket: 10/s, burst: 20`: a refill rate, and a capacity for bursts";
const SLIDING: &str =
    "`sliding-window` counts in parts of the window; `sliding-log` is exact and keeps every request";
const CONCURRENCY: &str =
    "write `concurrency: 10, lease: 1min`: the lease of a crashed caller ends by itself";
const QUOTA: &str = "write `quota: 1000000/month`: an allowance per calendar hour, day, week, month or year";
const PENALTY: &str = "write `penalty: 2s, free: 5`: after five failures each further one doubles the wait";
const RATE_OF_AN_ALGORITHM: &str = "name an algorithm and give it a rate: `token-bucket: 10/s` allows bursts, `sliding-window: \
                                    10/s` counts the last second; `tollgate guide` helps to choose";

/// Keys of a limit that names no algorithm of ours.
const LIMIT: &[ForeignWord] = &[
    ("gcra", Some("token-bucket"), TOKEN_BUCKET),
    ("throttle", Some("token-bucket"), TOKEN_BUCKET),
    ("bucket", Some("token-bucket"), TOKEN_BUCKET),
    ("token", Some("token-bucket"), TOKEN_BUCKET),
    ("tokens", Some("token-bucket"), TOKEN_BUCKET),
    ("local", Some("token-bucket"), TOKEN_BUCKET),
    (
        "spikearrest",
        Some("leaky-bucket"),
        "write `leaky-bucket: 10/s, queue: 20` to delay, or `token-bucket: 10/s` to refuse",
    ),
    (
        "limitreq",
        Some("leaky-bucket"),
        "write `leaky-bucket: 10/s, queue: 20` to delay, or `token-bucket: 10/s` to refuse",
    ),
    (
        "leaky",
        Some("leaky-bucket"),
        "write `leaky-bucket: 10/s, queue: 20` to delay, or `capacity: 20` to refuse",
    ),
    ("fixed", Some("fixed-window"), "write `fixed-window: 100/min`"),
    (
        "window",
        Some("fixed-window"),
        "write `fixed-window: 100/min`; `sliding-window` has no burst at the window's edge",
    ),
    ("fixedwindowcounter", Some("fixed-window"), "write `fixed-window: 100/min`"),
    ("sliding", Some("sliding-window"), SLIDING),
    ("slidingwindowcounter", Some("sliding-window"), SLIDING),
    ("slidingcounter", Some("sliding-window"), SLIDING),
    ("rollingwindow", Some("sliding-window"), SLIDING),
    ("movingwindow", Some("sliding-log"), SLIDING),
    ("slidingwindowlog", Some("sliding-log"), SLIDING),
    ("log", Some("sliding-log"), SLIDING),
    ("semaphore", Some("concurrency"), CONCURRENCY),
    ("bulkhead", Some("concurrency"), CONCURRENCY),
    ("concurrent", Some("concurrency"), CONCURRENCY),
    ("maxconcurrent", Some("concurrency"), CONCURRENCY),
    ("maxinflight", Some("concurrency"), CONCURRENCY),
    ("inflight", Some("concurrency"), CONCURRENCY),
    ("connections", Some("concurrency"), CONCURRENCY),
    ("limitconn", Some("concurrency"), CONCURRENCY),
    ("budget", Some("quota"), QUOTA),
    ("allowance", Some("quota"), QUOTA),
    ("daily", Some("quota"), QUOTA),
    ("monthly", Some("quota"), QUOTA),
    ("usageplan", Some("quota"), QUOTA),
    (
        "counter",
        Some("meter"),
        "write `meter: unlimited`, or `meter: 1000` for a count that is never reset by itself",
    ),
    (
        "unlimited",
        Some("meter"),
        "to count without a limit write `meter: unlimited`; to leave requests uncounted use `bypass`",
    ),
    ("backoff", Some("penalty"), PENALTY),
    ("lockout", Some("penalty"), PENALTY),
    ("cooldown", Some("penalty"), PENALTY),
    ("rate", None, RATE_OF_AN_ALGORITHM),
    ("limit", None, RATE_OF_AN_ALGORITHM),
    ("max", None, RATE_OF_AN_ALGORITHM),
    ("requests", None, RATE_OF_AN_ALGORITHM),
    ("requestsperunit", None, RATE_OF_AN_ALGORITHM),
    ("requestspersecond", None, RATE_OF_AN_ALGORITHM),
    ("requestsperminute", None, RATE_OF_AN_ALGORITHM),
    ("rps", None, RATE_OF_AN_ALGORITHM),
    ("rpm", None, RATE_OF_AN_ALGORITHM),
    ("average", None, RATE_OF_AN_ALGORITHM),
    ("unit", None, RATE_OF_AN_ALGORITHM),
    ("period", None, RATE_OF_AN_ALGORITHM),
    ("interval", None, RATE_OF_AN_ALGORITHM),
    ("seconds", None, RATE_OF_AN_ALGORITHM),
    ("algorithm", None, ALGORITHM),
    ("type", None, ALGORITHM),
    ("strategy", None, ALGORITHM),
];

const BURST: &str = "`burst` is the capacity of the bucket: `token-bucket: 10/s, burst: 20`";
const BUCKETS: &str = "`buckets` is the number of parts that the window is counted in";

/// Keys of one algorithm.
const ALGORITHMS: &[(&str, &[ForeignWord])] = &[
    (
        "a token bucket",
        &[
            ("capacity", Some("burst"), BURST),
            ("burstsize", Some("burst"), BURST),
            ("maxburst", Some("burst"), BURST),
            ("maxtokens", Some("burst"), BURST),
            ("size", Some("burst"), BURST),
            ("refill", None, RATE),
            ("refillrate", None, RATE),
            ("fillinterval", None, RATE),
            ("tokensperfill", None, RATE),
            ("period", None, RATE),
            ("interval", None, RATE),
            ("per", None, RATE),
            ("unit", None, RATE),
        ],
    ),
    (
        "a leaky bucket",
        &[
            ("burst", Some("queue"), "`queue: 20` delays up to 20 requests; `capacity: 20` refuses above 20"),
            (
                "size",
                Some("capacity"),
                "`queue: 20` delays up to 20 requests; `capacity: 20` refuses above 20",
            ),
            ("period", None, RATE),
            ("interval", None, RATE),
            ("per", None, RATE),
        ],
    ),
    (
        "a fixed window",
        &[
            ("window", None, RATE),
            ("period", None, RATE),
            ("interval", None, RATE),
            ("per", None, RATE),
            ("unit", None, RATE),
            ("seconds", None, RATE),
            (
                "burst",
                None,
                "a fixed window has no burst; a token bucket has: `token-bucket: 10/s, burst: 20`",
            ),
        ],
    ),
    (
        "a sliding window",
        &[
            ("window", None, RATE),
            ("period", None, RATE),
            ("interval", None, RATE),
            ("per", None, RATE),
            ("unit", None, RATE),
            ("precision", Some("buckets"), BUCKETS),
            ("granularity", Some("buckets"), BUCKETS),
            ("slices", Some("buckets"), BUCKETS),
            ("segments", Some("buckets"), BUCKETS),
            (
                "burst",
                None,
                "a sliding window has no burst; a token bucket has: `token-bucket: 10/s, burst: 20`",
            ),
        ],
    ),
    (
        "a concurrency limit",
        &[
            (
                "ttl",
                Some("lease"),
                "`lease` is how long a slot stays taken if it is neither released nor renewed",
            ),
            (
                "timeout",
                Some("lease"),
                "`lease` is how long a slot stays taken if it is neither released nor renewed",
            ),
            (
                "expiry",
                Some("lease"),
                "`lease` is how long a slot stays taken if it is neither released nor renewed",
            ),
        ],
    ),
    (
        "a quota",
        &[
            ("timezone", Some("zone"), "`zone` is a time zone: `zone: Europe/Berlin`"),
            ("tz", Some("zone"), "`zone` is a time zone: `zone: Europe/Berlin`"),
            (
                "reset",
                Some("starts"),
                "`starts` is the first day of the period: `starts: 15`, `starts: monday`",
            ),
            (
                "anchor",
                Some("starts"),
                "`starts` is the first day of the period: `starts: 15`, `starts: monday`",
            ),
            ("billingday", Some("starts"), "`starts` is the first day of the period: `starts: 15`"),
            ("overage", Some("grace"), "`grace` is admitted beyond the allowance: `grace: 5%`"),
            ("softlimit", Some("grace"), "`grace` is admitted beyond the allowance: `grace: 5%`"),
        ],
    ),
    (
        "a penalty",
        &[
            ("attempts", Some("free"), "`free` is the number of failures without a wait"),
            ("threshold", Some("free"), "`free` is the number of failures without a wait"),
            ("maxattempts", Some("free"), "`free` is the number of failures without a wait"),
            ("multiplier", Some("factor"), "each wait is `factor` times as long as the one before"),
            ("max", Some("longest"), "`longest` is the longest wait"),
            ("maxdelay", Some("longest"), "`longest` is the longest wait"),
        ],
    ),
];

const SHADOW: &str = "the rule counts and reports, but never refuses";

/// Values of a key.
const VALUES: &[(&str, &[ForeignWord])] = &[
    (
        "mode",
        &[
            ("dryrun", Some("shadow"), SHADOW),
            ("test", Some("shadow"), SHADOW),
            ("log", Some("shadow"), SHADOW),
            ("logonly", Some("shadow"), SHADOW),
            ("monitor", Some("shadow"), SHADOW),
            ("detect", Some("shadow"), SHADOW),
            ("audit", Some("shadow"), SHADOW),
            ("report", Some("shadow"), SHADOW),
            ("count", Some("shadow"), SHADOW),
            ("simulate", Some("shadow"), SHADOW),
            ("permissive", Some("shadow"), SHADOW),
            ("disabled", Some("off"), "the rule has no effect"),
            ("enabled", Some("enforce"), "the rule counts and refuses; this is the default"),
            ("on", Some("enforce"), "the rule counts and refuses; this is the default"),
            ("live", Some("enforce"), "the rule counts and refuses; this is the default"),
            ("block", Some("enforce"), "the rule counts and refuses; this is the default"),
        ],
    ),
    (
        "on_failure",
        &[
            ("failopen", Some("open"), "while the store does not answer, requests are allowed"),
            ("allow", Some("open"), "while the store does not answer, requests are allowed"),
            ("pass", Some("open"), "while the store does not answer, requests are allowed"),
            ("failclosed", Some("closed"), "while the store does not answer, requests are refused"),
            ("deny", Some("closed"), "while the store does not answer, requests are refused"),
            ("refuse", Some("closed"), "while the store does not answer, requests are refused"),
            ("block", Some("closed"), "while the store does not answer, requests are refused"),
        ],
    ),
    (
        "missing",
        &[
            ("deny", Some("refuse"), "a request without the attributes of `per` is refused"),
            ("allow", Some("skip"), "the rule does not apply to a request without the attributes of `per`"),
            ("ignore", Some("skip"), "the rule does not apply to a request without the attributes of `per`"),
        ],
    ),
    (
        "unmatched",
        &[
            ("deny", Some("refuse"), "a request that no rule matches is refused"),
            ("block", Some("refuse"), "a request that no rule matches is refused"),
            ("closed", Some("refuse"), "a request that no rule matches is refused"),
            ("pass", Some("allow"), "a request that no rule matches is allowed"),
            ("open", Some("allow"), "a request that no rule matches is allowed"),
        ],
    ),
];

/// Returns what to write instead of a word of another rate limiter.
pub(super) fn find_hint(context: &str, word: &str) -> Option<WordHint> {
    if word.len() > 64 {
        return None;
    }
    if context == "limit" {
        return hint_for_a_bare_limit(word);
    }
    let words = match context {
        "a rules file" => FILE,
        "a rule" | "a rule or a preset" => RULE,
        "a limit" => LIMIT,
        _ => ALGORITHMS.iter().chain(VALUES).find(|(of, _)| *of == context)?.1,
    };
    let word = normalised(word);
    let (_, means, help) = words.iter().find(|(foreign, ..)| *foreign == word)?;
    Some(WordHint { means: *means, help: (*help).to_owned() })
}

/// Like [`find_hint`], for a limit that is not the value of a key.
pub(super) fn find_hint_in_limit(context: &str, word: &str) -> Option<WordHint> {
    find_hint(if context.is_empty() { "limit" } else { context }, word)
}

/// `limit: 10/s` and `limit: 100`: the algorithm is missing.
fn hint_for_a_bare_limit(text: &str) -> Option<WordHint> {
    if shorthand::rate(text).is_ok() {
        let rate = text.trim();
        let help = format!(
            "name an algorithm: `limit: {{ token-bucket: {rate} }}` allows bursts, `{{ sliding-window: {rate} }}` counts the \
             last window, `{{ fixed-window: {rate} }}` counts aligned windows; `tollgate guide` helps to choose"
        );
        return Some(WordHint { means: None, help });
    }
    if tollgate_document::number(text).is_ok() {
        let help = "name an algorithm and give it a rate: `limit: { token-bucket: 10/s }`, or `limit: { concurrency: 10, lease: \
                    1min }`; `tollgate guide` helps to choose";
        return Some(WordHint { means: None, help: help.to_owned() });
    }
    matches!(normalised(text).as_str(), "block" | "none" | "refuse" | "reject")
        .then(|| WordHint { means: Some("deny"), help: "`limit: deny` refuses every request".to_owned() })
}

/// A word without case, `_`, `-` and spaces.
fn normalised(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = (&'static str, &'static [ForeignWord])> {
        let maps = [("a rules file", FILE), ("a rule", RULE), ("a limit", LIMIT)];
        maps.into_iter().chain(ALGORITHMS.iter().chain(VALUES).copied())
    }

    #[test]
    fn every_word_is_normalised_and_occurs_once_per_context() {
        for (context, words) in all() {
            for (index, (word, ..)) in words.iter().enumerate() {
                assert_eq!(normalised(word), *word, "{context}");
                assert!(words[..index].iter().all(|(other, ..)| other != word), "{context}: {word} twice");
            }
        }
    }

    #[test]
    fn case_and_separators_do_not_matter() {
        for word in ["dry-run", "dry_run", "dryRun", "DRY RUN"] {
            assert_eq!(find_hint("mode", word).and_then(|hint| hint.means), Some("shadow"), "{word}");
        }
        assert_eq!(find_hint("a rule", "dry_run").and_then(|hint| hint.means), Some("mode"));
        assert_eq!(find_hint("mode", "shadow"), None);
    }
}
