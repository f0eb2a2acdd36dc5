//! One file for each lint with a finding, and the fixed file.

use super::*;

/// A file with a finding, and the same file with the fix.
struct Case {
    code: &'static str,
    severity: Severity,
    found: String,
    fixed: String,
    cluster: bool,
    /// Other findings that both files have.
    other_findings: &'static [&'static str],
}

impl Case {
    fn new(code: &'static str, severity: Severity, found: String, fixed: String) -> Case {
        Case { code, severity, found, fixed, cluster: false, other_findings: &[] }
    }
}

fn cases() -> Vec<Case> {
    let warning = |code, found: String, fixed: String| Case::new(code, Severity::Warning, found, fixed);
    let note = |code, found: String, fixed: String| Case::new(code, Severity::Note, found, fixed);
    let override_of_a = |rule: &str, changes: &str| one(rule) + &format!("overrides:\n{changes}\n");
    let searches = "match: { action: search }, limit: { sliding-log: 5/s }";
    let pair = |a: &str, b: &str| file(&format!("  - {{ id: a, {a} }}\n  - {{ id: b, {b} }}"));
    let globs = |length: usize| {
        override_of_a(
            &format!("match: {{ host: '{}' }}, limit: {{ sliding-log: 5/s }}", "a*".repeat(length)),
            &format!("  - {{ rule: a, when: {{ host: '{}' }}, limit: deny }}", "*b".repeat(length)),
        )
    };
    vec![
        note(
            "bucket-burst",
            one("limit: { token-bucket: 100/min, burst: 20 }"),
            one("limit: { token-bucket: 100/min, burst: 1 }"),
        ),
        note(
            "window-edge-burst",
            one("limit: { fixed-window: 100/min }"),
            one("limit: { sliding-log: 100/min }"),
        ),
        note(
            "estimated-count",
            one("limit: { sliding-window: 1000/min, counting: interpolated }"),
            one("limit: { sliding-window: 1000/min, counting: strict }"),
        ),
        warning(
            "log-memory",
            one("limit: { sliding-log: 1000000/h, entries: 1000000 }"),
            one("limit: { sliding-log: 1000000/h, entries: 1000000 }, cost: 100"),
        ),
        warning(
            "log-entries",
            one("limit: { sliding-log: 100000/h }"),
            one("limit: { sliding-log: 100000/h }, cost: 10"),
        ),
        note(
            "early-refusals",
            one("limit: { quota: 1000/month, zone: UTC }, slices: { hold: 1s }"),
            one("limit: { quota: 1000/month, zone: UTC }"),
        ),
        Case {
            other_findings: &["early-refusals"],
            ..warning(
                "shadow-slices",
                one("limit: { quota: 1000/month, zone: UTC }, slices: { hold: 1s }, mode: shadow"),
                one("limit: { quota: 1000/month, zone: UTC }, slices: { hold: 1s }"),
            )
        },
        warning(
            "shadow-ledger",
            one("limit: { quota: 1000/month, zone: UTC }, ledger: {}, mode: shadow"),
            one("limit: { quota: 1000/month, zone: UTC }, ledger: {}"),
        ),
        warning(
            "quota-without-zone",
            one("limit: { quota: 1000/month }"),
            one("limit: { quota: 1000/month, zone: UTC }"),
        ),
        warning(
            "free-of-charge",
            one("limit: { sliding-log: 5/s }, cost: { default: 0, by: { method: { POST: 0 } } }"),
            one("limit: { sliding-log: 5/s }, cost: { default: 0, by: { method: { POST: 1 } } }"),
        ),
        note(
            "rule-off",
            one("limit: { sliding-log: 5/s }, mode: off"),
            one("limit: { sliding-log: 5/s }, mode: shadow"),
        ),
        note(
            "empty-rollout",
            one("limit: { sliding-log: 5/s }, rollout: 0%"),
            one("limit: { sliding-log: 5/s }, rollout: 0.01%"),
        ),
        Case {
            other_findings: &["bucket-burst"],
            ..warning(
                "never-matches",
                file("  - { use: admin-endpoints, match: { method: OPTIONS } }"),
                file("  - { use: admin-endpoints, match: { path: /admin* } }"),
            )
        },
        warning(
            "value-never-seen",
            one("match: { method: post }, limit: { sliding-log: 5/s }"),
            one("match: { method: POST }, limit: { sliding-log: 5/s }"),
        ),
        warning(
            "unreachable-rule",
            one(searches) + "bypass:\n  - when: { action: [search, browse] }\n",
            one(searches) + "bypass:\n  - when: { action: search, service: probe }\n",
        ),
        warning(
            "shadowed-rule",
            pair("per: all, limit: { sliding-log: 5/s }", "per: all, limit: { sliding-log: 6/s }"),
            pair("per: all, limit: { sliding-log: 5/s }", "per: all, limit: { sliding-log: 6/min }"),
        ),
        warning(
            "unknown-attribute",
            one("match: { tennant: acme }, limit: { sliding-log: 5/s }"),
            one("match: { tenant: acme }, limit: { sliding-log: 5/s }"),
        ),
        warning(
            "absent-subject",
            file("  - { id: a, per: tenant, limit: { sliding-log: 5/s } }"),
            file("  - { id: a, per: tenant, missing: refuse, limit: { sliding-log: 5/s } }"),
        ),
        note(
            "counted-by-address",
            file("  - { id: a, per: user | ip, limit: { sliding-log: 5/s } }"),
            file("  - { id: a, per: user, missing: refuse, limit: { sliding-log: 5/s } }"),
        ),
        Case {
            other_findings: &["counted-by-address"],
            ..note(
                "unverified-key",
                file("  - { id: a, per: api_key | ip, limit: { sliding-log: 5/s } }"),
                pair(
                    "per: api_key | ip, limit: { sliding-log: 5/s }",
                    "per: ip, limit: { sliding-log: 50/s }",
                ),
            )
        },
        warning(
            "open-login",
            one("match: { path: /v1/login }, limit: { sliding-log: 5/s }, on_failure: open"),
            one("match: { path: /v1/login }, limit: { sliding-log: 5/s }, on_failure: closed"),
        ),
        warning(
            "penalty-without-account",
            one("limit: { penalty: 1s }"),
            file("  - { id: a, per: account, missing: refuse, limit: { penalty: 1s } }"),
        ),
        warning(
            "expired-override",
            override_of_a(searches, "  - { rule: a, when: {}, limit: deny, until: 2026-11-15T00:00:00Z }"),
            override_of_a(searches, "  - { rule: a, when: {}, limit: deny, until: 2026-11-15T00:00:01Z }"),
        ),
        warning(
            "override-never-applies",
            override_of_a(searches, "  - { rule: a, when: { action: export }, limit: deny }"),
            override_of_a(searches, "  - { rule: a, when: { action: search }, limit: deny }"),
        ),
        warning(
            "unreachable-override",
            override_of_a(
                searches,
                "  - { rule: a, when: { plan: pro }, limit: deny }\n  - { rule: a, when: { plan: pro }, \
                 limit: deny }",
            ),
            override_of_a(
                searches,
                "  - { rule: a, when: { plan: pro }, limit: deny }\n  - { rule: a, when: { tenant: x }, \
                 limit: deny }",
            ),
        ),
        warning(
            "temporary-lowering",
            override_of_a(
                searches,
                "  - { rule: a, when: { tenant: x }, limit: { sliding-log: 50/s } }\n  - { rule: a, when: { plan: pro }, \
                 limit: { sliding-log: 20/s }, until: 2099-01-01T00:00:00Z }",
            ),
            override_of_a(
                searches,
                "  - { rule: a, when: { tenant: x }, limit: { sliding-log: 50/s } }\n  - { rule: a, when: { tenant: y }, \
                 limit: { sliding-log: 20/s }, until: 2099-01-01T00:00:00Z }",
            ),
        ),
        note(
            "raise-that-lowers",
            override_of_a(
                searches,
                "  - { rule: a, when: { tenant: x }, limit: { sliding-log: 50/s } }\n  - { rule: a, when: { plan: pro }, \
                 limit: { sliding-log: 20/s } }",
            ),
            override_of_a(
                searches,
                "  - { rule: a, when: { tenant: x }, limit: { sliding-log: 50/s } }\n  - { rule: a, when: { plan: pro }, \
                 scale: 2 }",
            ),
        ),
        warning(
            "indivisible-limit",
            one(
                "limit: { concurrency: 5, lease: 10s }, on_failure: { default: open, by: { method: { POST: local 50% } } }",
            ),
            one(
                "limit: { concurrency: 5, lease: 10s }, on_failure: { default: open, by: { method: { POST: cap 5/s } } }",
            ),
        ),
        note(
            "unmatched-refuse",
            format!("unmatched: refuse\n{}", one("limit: { sliding-log: 5/s }")),
            format!("unmatched: refuse\n{}", one(searches)),
        ),
        Case {
            cluster: true,
            ..warning(
                "several-slots",
                pair(
                    "per: [tenant, user], missing: refuse, limit: { sliding-log: 5/s }",
                    "per: tenant, missing: refuse, limit: { sliding-log: 6/s }",
                ),
                pair(
                    "per: [tenant, user], missing: refuse, limit: { sliding-log: 5/s }",
                    "per: tenant, missing: refuse, limit: { sliding-log: 6/s }",
                ) + "partition: tenant\n",
            )
        },
        note(
            "shaper-with-others",
            pair(
                "per: all, limit: { leaky-bucket: 10/s, queue: 50 }",
                "per: all, limit: { sliding-log: 5/s }",
            ),
            pair(
                "per: all, limit: { leaky-bucket: 10/s, queue: 50 }, match: { action: send }",
                "per: all, limit: { sliding-log: 5/s }, match: { action: plan }",
            ),
        ),
        warning(
            "lease-ends-in-queue",
            pair(
                "per: all, limit: { leaky-bucket: 10/s, queue: 50 }",
                "per: all, limit: { concurrency: 5, lease: 5s }",
            ),
            pair(
                "per: all, limit: { leaky-bucket: 10/s, queue: 50 }, match: { action: send }",
                "per: all, limit: { concurrency: 5, lease: 5s }, match: { action: plan }",
            ),
        ),
        warning(
            "lease-behind-gateway",
            one("match: { domain: shop }, limit: { concurrency: 5, lease: 5s }"),
            one("match: { action: export }, limit: { concurrency: 5, lease: 5s }"),
        ),
        Case {
            other_findings: &["counted-by-address"],
            ..warning(
                "renamed-key",
                file("  - { id: a, per: user | ip, limit: { sliding-log: 5/s }, strangers_max: 100 }"),
                file("  - { id: a, per: user | ip, limit: { sliding-log: 5/s }, ip_subjects_max: 100 }"),
            )
        },
        note("lint-incomplete", globs(10_000), globs(10)),
    ]
}

#[test]
fn each_lint_reports_its_case_and_nothing_in_the_fixed_file() {
    for Case { code, severity, found, fixed, cluster, other_findings } in cases() {
        let (source, problems) = linted(&found, &options(cluster));
        let rendered = problems.render(&source, Colour::Plain);
        let mut expected: BTreeSet<&str> = other_findings.iter().copied().collect();
        assert_eq!(codes(&fixed, cluster), expected, "{code}: {fixed}");
        expected.insert(code);
        assert_eq!(codes(&found, cluster), expected, "{rendered}");
        for problem in problems.in_order() {
            assert!(problem.help.is_some(), "{rendered}");
            assert!(problem.code != code || problem.severity == severity, "{rendered}");
        }
    }
}

#[test]
fn every_lint_is_listed_once_and_has_a_case() {
    let cases: Vec<&str> = cases().iter().map(|case| case.code).collect();
    let listed: Vec<&str> = LINTS.iter().map(|lint| lint.code).collect();
    assert_eq!(cases, listed);
    assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), listed.len());
    for LintInfo { code, summary, why, .. } in LINTS {
        assert!(code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{code}");
        assert!(summary.ends_with('.') && why.ends_with('.'), "{code}");
    }
}
