//! What rules see of a request: readings of its path, whole addresses, normal forms; and what a file may say about it.

use tollgate_core::rules::Planned;

use super::*;

/// The codes and the text of the problems of a file.
fn problems_of(text: &str) -> (Vec<&'static str>, String) {
    let source = Source::new("rules.yaml", text.as_bytes());
    let mut problems = Problems::new();
    assert!(load(&source, &mut problems).is_none(), "it is invalid: {text}");
    let codes = problems.in_order().iter().map(|problem| problem.code).collect();
    (codes, problems.render(&source, Colour::Plain))
}

const PATHS: &str = "
version: 1
rules:
  - { id: search, match: { path: /search }, per: ip, limit: { fixed-window: 5/min } }
  - { id: projects, match: { path: '/projects/{id}' }, per: ip, limit: { fixed-window: 5/min } }
  - { id: by-path, match: { path: '/by/*' }, per: path, limit: { fixed-window: 5/min } }
overrides:
  - { rule: search, when: { path: /search, plan: pro }, limit: { fixed-window: 50/min } }
  - { rule: projects, when: { path: /projects/secret }, limit: deny }
deny:
  - when: { path: /admin }
bypass:
  - when: { path: '/health*' }
";

/// The rules that charge a request for a target; `denied` and `bypassed` for the lists.
fn charged_by(rules: &RuleSet, target: &'static str) -> Vec<String> {
    match plan(rules, &[("ip", "192.0.2.1"), ("path", target)]) {
        Planned::Denied(_) => vec!["denied".to_owned()],
        Planned::Bypassed(_) => vec!["bypassed".to_owned()],
        Planned::Refused { rule, .. } => vec![format!("{} refuses", rule.keyspace.rule())],
        planned => items(planned).into_iter().map(|(rule, ..)| rule).collect(),
    }
}

/// `tollgate reset` uses one rule alone, and must find the subject that the whole set counts.
#[test]
fn a_rule_alone_counts_the_same_normal_forms() {
    let all = rules(
        "version: 1\nattributes: { user: { normalize: [lower, trim] } }\nrules:\n  \
         - { id: login, per: user, limit: { fixed-window: 5/min } }\n  \
         - { id: other, per: all, limit: { fixed-window: 5/min } }\n",
    );
    let only = all.only("login").expect("the rule");
    let mut attributes = Attributes::new();
    attributes.set("user", " Jane ");
    for rules in [&all, &only] {
        let values = rules.prepare(&attributes).expect("a normal form");
        assert_eq!(values.replace_in(&attributes).get("user"), Some("jane"));
    }
}

#[test]
fn rules_and_deny_apply_in_any_reading_of_a_path_and_bypass_only_in_all() {
    let rules = rules(PATHS);
    for (target, expected) in [
        ("/search", &["search"][..]),
        ("/search?q=1", &["search"]),
        ("/x%2f..%2fsearch", &["search"]),
        ("/x%5c..%5csearch", &["search"]),
        ("/x/..;/search", &["search"]),
        ("/x%252f..%252fsearch", &["search"]),
        ("/health/..%2fsearch", &["search"]),
        ("/health/../search", &["search"]),
        ("/health/..;/search", &["search"]),
        ("/Search", &[]),
        ("/x%2f..%2fadmin", &["denied"]),
        ("/health/..%2fadmin", &["denied"]),
        ("/admin;x", &["denied"]),
        ("/health", &["bypassed"]),
        ("/health/live", &["bypassed"]),
        ("/health/a%2fb", &["bypassed"]),
        ("//health", &[]),
        ("/projects/group%2Fname", &["projects"]),
        ("/projects/x%2f..%2fsecret", &["projects refuses"]),
    ] {
        assert_eq!(charged_by(&rules, target), expected, "{target}");
    }
}

#[test]
fn an_override_with_other_numbers_applies_only_if_every_reading_matches() {
    let rules = rules(PATHS);
    let capacity =
        |target| items(plan(&rules, &[("ip", "192.0.2.1"), ("plan", "pro"), ("path", target)]))[0].2;
    assert_eq!((capacity("/search"), capacity("/x%2f..%2fsearch")), (50, 5));
}

#[test]
fn spellings_of_a_path_are_one_subject() {
    let rules = rules(PATHS);
    let key = |target| match plan(&rules, &[("path", target)]) {
        Planned::Plan { plan, .. } => plan.items()[0].key.to_string(),
        planned => panic!("{target}: {planned:?}"),
    };
    for target in ["/by/x?q", "/by//x", "/by/./x", "/by/y%2f..%2fx", "/by/x;v=1", "/by/%78", "/by%2fx"] {
        assert_eq!(key(target), key("/by/x"), "{target}");
    }
    assert_ne!(key("/by/y"), key("/by/x"));
}

#[test]
fn ambiguous_paths_can_be_refused_and_case_ignored() {
    let strict = rules(&PATHS.replace("version: 1\n", "version: 1\nambiguous_paths: refuse\n"));
    for (target, expected) in [
        ("/search", &["search"][..]),
        ("/%73earch?q", &["search"]),
        ("/projects/a%20b", &["projects"]),
        ("/projects/group%2Fname", &["denied"]),
        ("//other", &["denied"]),
    ] {
        assert_eq!(charged_by(&strict, target), expected, "{target}");
    }
    let insensitive = rules(&PATHS.replace("version: 1\n", "version: 1\npath_case: insensitive\n"));
    for target in ["/search", "/Search", "/SEARCH?Q", "/x%2F..%2FSEARCH", "/%53earch"] {
        assert_eq!(charged_by(&insensitive, target), ["search"], "{target}");
    }
}

#[test]
fn the_highest_cost_of_all_readings_is_charged() {
    let rules = rules(
        "
version: 1
rules:
  - id: table
    per: all
    limit: { fixed-window: 1000/min }
    cost: { by: { path: { /search: 10 } } }
  - id: expression
    per: all
    limit: { fixed-window: 1000/min }
    cost: { expression: \"path == '/search' ? 20 : 1\", default: 100 }
",
    );
    let costs = |target| -> Vec<u64> {
        items(plan(&rules, &[("path", target)])).into_iter().map(|item| item.1).collect()
    };
    for target in ["/search", "/x%2f..%2fsearch", "/search;x", "/search/../search"] {
        assert_eq!(costs(target), [10, 20], "{target}");
    }
    assert_eq!(costs("/other%2fx"), [1, 1]);
}

#[test]
fn a_path_in_another_than_its_canonical_form_is_an_error_with_the_fix() {
    for (path, fix) in [
        ("/%73earch", "/search"),
        ("//x", "/x"),
        ("/a/../b", "/b"),
        ("/straße", "/stra%C3%9Fe"),
        ("/a%2fb", "/a%2Fb"),
        ("/x?q=1", "/x"),
        ("/%78/{id}", "/x/{id}"),
        ("//x/*", "/x/"),
        ("/a b/*c", "/a%20b/*c"),
    ] {
        let file = format!(
            "version: 1\nrules:\n  - {{ id: a, match: {{ path: \"{path}\" }}, per: all, limit: {{ fixed-window: 5/min }} }}\n"
        );
        let (codes, text) = problems_of(&file);
        assert_eq!(codes, ["not-canonical"], "{text}");
        assert!(text.contains(&format!("write \"{fix}\"")), "{path}: {text}");
    }
    let (codes, _) = problems_of(
        "version: 1\npath_case: insensitive\nrules:\n  - { id: a, match: { path: /Search }, per: all, limit: deny }\n",
    );
    assert_eq!(codes, ["not-canonical"]);
    let (codes, _) = problems_of(
        "version: 1\nrules:\n  - { id: a, per: all, limit: { fixed-window: 5/min }, cost: { by: { path: { //x: 2 } } } }\n",
    );
    assert_eq!(codes, ["not-canonical"]);
}

#[test]
fn conditions_on_ip_take_addresses_and_blocks() {
    let rules = rules(
        "
version: 1
rules:
  - { id: office, match: { ip: [192.0.2.0/24, '2001:db8::7'] }, per: all, limit: { fixed-window: 5/min } }
deny:
  - when: { ip: '2001:db8:bad::/48' }
",
    );
    let of = |ip: &'static str| match plan(&rules, &[("ip", ip)]) {
        Planned::Denied(_) => "denied",
        planned => {
            if items(planned).is_empty() {
                "free"
            } else {
                "office"
            }
        }
    };
    for (ip, expected) in [
        ("192.0.2.9", "office"),
        ("::ffff:192.0.2.9", "office"),
        ("192.0.3.9", "free"),
        ("2001:db8:0:0::7", "office"),
        ("2001:db8::8", "free"),
        ("2001:db8:bad:1::/64", "denied"),
        ("2001:db8:bad::1", "denied"),
    ] {
        assert_eq!(of(ip), expected, "{ip}");
    }
    for (wrong, why) in [
        ("192.0.2", "invalid address block"),
        ("192.0.2.1/24", "the block with that address is `192.0.2.0/24`"),
        ("'2001:db8::/129'", "has a length from 0 to 128"),
        ("office", "`{ is: … }` compares other text"),
    ] {
        let file = format!("version: 1\nrules: []\ndeny:\n  - when: {{ ip: {wrong} }}\n");
        let (codes, text) = problems_of(&file);
        assert_eq!(codes, ["bad-address"], "{text}");
        assert!(text.contains(why), "{wrong}: {text}");
    }
}

#[test]
fn an_expression_without_a_default_is_an_error() {
    let (codes, text) = problems_of(
        "version: 1\nrules:\n  - { id: a, per: all, limit: { fixed-window: 5/min }, cost: { expression: int(tokens) } }\n",
    );
    assert_eq!(codes, ["no-default-cost"], "{text}");
    assert!(text.contains("`default: 1000`"), "{text}");
}

#[test]
fn a_failing_expression_charges_the_stated_default() {
    let rules = rules(
        "
version: 1
rules:
  - id: tokens
    per: all
    limit: { quota: 1000000/month }
    cost: { expression: \"int(tokens) * 100\", default: 5000 }
",
    );
    for tokens in ["92233720368547758", "92233720368547758070", "-1", "many", "", "1.5"] {
        let planned = plan(&rules, &[("tokens", tokens)]);
        let Planned::Plan { cost_failed, .. } = &planned else { panic!("{planned:?}") };
        assert_eq!((*cost_failed, items(planned.clone())[0].1), (1, 5000), "{tokens:?}");
    }
    assert_eq!(items(plan(&rules, &[("tokens", "3")]))[0].1, 300);
}

const DECLARED: &str = "
version: 1
partition: tenant
attributes:
  tenant: {}
  tokens: { description: Number of tokens. }
  account: { normalize: [nfkc, lower, trim] }
rules:
  - id: a
    match: { path: /x, method: GET, account: jane }
    per: [tenant, account | ip]
    limit: { fixed-window: 5/min }
    cost: { expression: \"int(tokens)\", default: 5 }
    on_failure: { default: closed, by: { host: { a: open } } }
overrides:
  - { rule: a, when: { tenant: acme }, limit: { fixed-window: 9/min } }
deny:
  - when: { ip: 192.0.2.1 }
";

#[test]
fn an_undeclared_attribute_is_an_error_with_a_suggestion() {
    let text = DECLARED;
    assert_eq!(rules(text).rules().len(), 1);
    for (from, to, name, near) in [
        ("partition: tenant", "partition: tenat", "tenat", "tenant"),
        ("account: jane }", "acount: jane }", "acount", "account"),
        ("per: [tenant,", "per: [tennant,", "tennant", "tenant"),
        ("account | ip]", "account | pi]", "pi", "ip"),
        ("int(tokens)", "int(token)", "token", "tokens"),
        ("by: { host:", "by: { hots:", "hots", "host"),
        ("when: { tenant:", "when: { tenants:", "tenants", "tenant"),
        ("when: { ip: 192.0.2.1 }", "when: { methd: GET }", "methd", "method"),
    ] {
        assert!(text.contains(from), "{from}");
        let (codes, rendered) = problems_of(&text.replace(from, to));
        assert_eq!(codes, ["undeclared-attribute"], "{rendered}");
        assert!(rendered.contains(&format!("undeclared attribute \"{name}\"")), "{rendered}");
        assert!(rendered.contains(&format!("did you mean `{near}`?")), "{rendered}");
    }
    // Without the section, any name is possible, and a preset declares its own.
    let undeclared = "version: 1\nrules:\n  - { id: a, per: anything, limit: { fixed-window: 5/min } }\n";
    assert_eq!(rules(undeclared).rules().len(), 1);
    let preset =
        "version: 1\nattributes: {}\nrules:\n  - { use: login-protection, match: { path: /login } }\n";
    assert_eq!(rules(preset).rules().len(), 2);
}

#[test]
fn a_value_that_is_not_in_normal_form_is_an_error() {
    let text = DECLARED;
    let (codes, rendered) = problems_of(&text.replace("account: jane }", "account: Jane }"));
    assert_eq!(codes, ["not-canonical"], "{rendered}");
    assert!(rendered.contains("write \"jane\""), "{rendered}");
}

#[test]
fn the_login_preset_counts_spellings_of_one_account_together() {
    let rules = rules("version: 1\nrules: [{ use: login-protection }]\n");
    let subject = |account| match plan(&rules, &[("ip", "192.0.2.1"), ("account", account)]) {
        Planned::Plan { plan, .. } => plan.items()[0].key.to_string(),
        planned => panic!("{planned:?}"),
    };
    for account in ["Jane@Example.com", " jane@example.com ", "\u{FF2A}ANE@example.com"] {
        assert_eq!(subject(account), subject("jane@example.com"), "{account}");
    }
    assert_ne!(subject("june@example.com"), subject("jane@example.com"));
    // The file's own declaration takes precedence.
    let own = super::rules(
        "version: 1\nattributes: { account: { normalize: [trim] } }\nrules: [{ use: login-protection }]\n",
    );
    assert_eq!(own.preparation().normal("account", " Jane "), "Jane");
}
