//! Tests of the lints about rules that protect secrets.

use super::*;

#[test]
fn rules_that_protect_secrets_are_recognised_by_words() {
    for (rule, warned) in [
        ("id: sign-in, limit: { sliding-log: 5/s }", true),
        ("id: x, tags: [OTP], limit: { sliding-log: 5/s }", true),
        ("id: x, match: { action: [browse, reset_password] }, limit: { sliding-log: 5/s }", true),
        ("id: x, match: { path: '/v1/{tenant}/auth/{*rest}' }, limit: { sliding-log: 5/s }", true),
        ("id: x, match: { path: '/oauth/*' }, limit: { sliding-log: 5/s }", true),
        ("id: issue-token, limit: { sliding-log: 5/s }", true),
        ("id: author, limit: { sliding-log: 5/s }", false),
        ("id: token-bucket, limit: { sliding-log: 5/s }", false),
        ("id: llm-tokens, limit: { sliding-log: 5/s }", false),
    ] {
        for (policy, passes) in [
            ("open", true),
            ("degraded", true),
            ("{ default: closed, by: { method: { GET: open } } }", true),
            ("closed", false),
            ("cap 5/s", false),
        ] {
            let text = file(&format!("  - {{ {rule}, per: all, on_failure: {policy} }}"));
            assert_eq!(codes(&text, false).contains("open-login"), warned && passes, "{rule} {policy}");
        }
    }
    let penalty = file("  - { id: x, per: user, missing: refuse, limit: { penalty: 1s }, on_failure: open }");
    assert_eq!(codes(&penalty, false), BTreeSet::from(["open-login"]));
}

#[test]
fn a_penalty_by_address_needs_an_enforced_rule_by_account() {
    let text = |account: &str| {
        file(&format!(
            "  - {{ id: address, per: ip, match: {{ action: login }}, limit: {{ penalty: 1s }} }}\n  - {{ \
             id: account, \
             per: account, missing: refuse, limit: {{ sliding-log: 5/min }}, {account} }}"
        ))
    };
    for (account, warned) in
        [("match: { action: login }", false), ("match: { action: pay }", true), ("mode: shadow", true)]
    {
        assert_eq!(codes(&text(account), false).contains("penalty-without-account"), warned, "{account}");
    }
}
