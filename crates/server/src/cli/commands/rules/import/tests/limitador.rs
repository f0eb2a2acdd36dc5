use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::Clock;

use super::super::limitador::convert;
use super::generator::Generator;
use super::{Entries, Imported, import, shown};

struct Limit {
    name: String,
    max: u64,
    seconds: u64,
    /// The descriptor that conditions and variables name.
    index: usize,
    conditions: Vec<Condition>,
    variables: Vec<&'static str>,
}

struct Condition {
    key: &'static str,
    test: Test,
}

enum Test {
    Is(&'static str),
    IsNot(&'static str),
    In([&'static str; 2]),
    NotIn([&'static str; 2]),
    StartsWith(&'static str),
    DoesNotStartWith(&'static str),
    EndsWith(&'static str),
}

const KEYS: [&str; 3] = ["user", "m.x", "path"];
const VALUES: [&str; 7] = ["", "a", "ab", "b", "a*", "{x}", "é"];

fn generate_test(generator: &mut Generator) -> Test {
    let (one, two) = (generator.pick(&VALUES), generator.pick(&VALUES));
    match generator.below(8) {
        0 | 1 => Test::Is(one),
        2 => Test::IsNot(one),
        3 => Test::In([one, two]),
        4 => Test::NotIn([one, two]),
        5 => Test::StartsWith(one),
        6 => Test::DoesNotStartWith(one),
        _ => Test::EndsWith("b"),
    }
}

fn generate(generator: &mut Generator) -> Vec<Limit> {
    let mut limits: Vec<Limit> = Vec::new();
    for number in 0..=generator.below(4) {
        let conditions = KEYS.iter().filter(|_| generator.one_in(3)).copied().collect::<Vec<_>>();
        let conditions = conditions.into_iter().map(|key| Condition { key, test: generate_test(generator) });
        let conditions: Vec<Condition> = conditions.collect();
        let variables: Vec<&str> = KEYS.iter().filter(|_| generator.one_in(3)).copied().collect();
        // Without a descriptor to name, a limit counts requests.
        let index =
            if conditions.is_empty() && variables.is_empty() { 0 } else { generator.below(3) as usize };
        let max = 1 + generator.below(4);
        // Different lengths, so that no two limits are the same.
        let seconds = 10 + number * 7;
        limits.push(Limit { name: format!("limit-{number}"), max, seconds, index, conditions, variables });
    }
    limits
}

fn written(limits: &[Limit]) -> String {
    let limit = |limit: &Limit| {
        let entry = |key: &str| match key {
            "user" => format!("descriptors[{}].user", limit.index),
            key => format!("descriptors[{}]['{key}']", limit.index),
        };
        let condition = |Condition { key, test }: &Condition| {
            let entry = entry(key);
            match test {
                Test::Is(value) => format!("{entry} == '{value}'"),
                Test::IsNot(value) => format!("\"{value}\" != {entry}"),
                Test::In([one, two]) => format!("{entry} in ['{one}', '{two}']"),
                Test::NotIn([one, two]) => format!("!({entry} in ['{one}', '{two}'])"),
                Test::StartsWith(value) => format!("{entry}.startsWith('{value}')"),
                Test::DoesNotStartWith(value) => format!("!({entry}.startsWith('{value}'))"),
                Test::EndsWith(value) => format!("{entry}.endsWith('{value}')"),
            }
        };
        let conditions: Vec<String> = limit.conditions.iter().map(condition).collect();
        // As one condition or as several.
        let conditions = if limit.max.is_multiple_of(2) && !conditions.is_empty() {
            vec![conditions.join(" && ")]
        } else {
            conditions
        };
        json!({
            "namespace": "shop", "name": limit.name, "max_value": limit.max, "seconds": limit.seconds,
            "conditions": conditions,
            "variables": limit.variables.iter().map(|key| entry(key)).collect::<Vec<_>>(),
        })
    };
    limits.iter().map(limit).collect::<Value>().to_string()
}

impl Limit {
    /// The values of its variables, if it applies to a request.
    fn applies(&self, descriptors: &[Entries]) -> Option<Vec<String>> {
        let empty = Entries::new();
        let descriptor: BTreeMap<&str, &str> = match descriptors.get(self.index) {
            Some(entries) => entries.iter().map(|(key, value)| (*key, value.as_str())).collect(),
            None if self.conditions.is_empty() && self.variables.is_empty() => {
                empty.iter().map(|(key, value)| (*key, value.as_str())).collect()
            }
            None => return None,
        };
        let holds = |Condition { key, test }: &Condition| {
            descriptor.get(key).is_some_and(|value| match test {
                Test::Is(other) => value == other,
                Test::IsNot(other) => value != other,
                Test::In(others) => others.contains(value),
                Test::NotIn(others) => !others.contains(value),
                Test::StartsWith(prefix) => value.starts_with(prefix),
                Test::DoesNotStartWith(prefix) => !value.starts_with(prefix),
                Test::EndsWith(suffix) => value.ends_with(suffix),
            })
        };
        if !self.conditions.iter().all(holds) {
            return None;
        }
        self.variables.iter().map(|key| descriptor.get(key).map(|value| (*value).to_owned())).collect()
    }
}

#[test]
fn imported_limitador_rules_decide_as_the_original() {
    let (mut limited, mut unmatched, mut refused) = (0, 0, 0);
    for seed in 0..300 {
        let mut generator = Generator::new(seed);
        let limits = generate(&mut generator);
        let half = limits.len() / 2;
        let (one, two) = (written(&limits[..half]), written(&limits[half..]));
        let rules = import(convert, &[&one, &two]).unwrap_or_else(|error| panic!("{one}\n{two}\n{error}"));
        let imported = Imported::new(&rules);
        // Count and end of the window, by limit and variables.
        let mut counters: BTreeMap<(usize, Vec<String>), (u64, u64)> = BTreeMap::new();
        for _ in 0..60 {
            if generator.one_in(4) {
                imported.clock.advance(Duration::from_secs(generator.below(20)));
            }
            let now = imported.clock.now().us();
            let descriptors: Vec<Entries> = (0..=generator.below(3))
                .map(|_| {
                    let keys: Vec<&str> = KEYS.iter().filter(|_| !generator.one_in(3)).copied().collect();
                    let keys = if keys.is_empty() { vec!["other"] } else { keys };
                    keys.into_iter().map(|key| (key, generator.pick(&VALUES).to_owned())).collect()
                })
                .collect();
            let hits = generator.below(3);
            let mut applied: Vec<(usize, Vec<String>)> = Vec::new();
            for (number, limit) in limits.iter().enumerate() {
                applied.extend(limit.applies(&descriptors).map(|values| (number, values)));
            }
            counters.retain(|_, (_, end)| now < *end);
            let count = |key: &(usize, Vec<String>)| counters.get(key).map_or(0, |(count, _)| *count);
            let allowed = applied.iter().all(|key| count(key) + hits.max(1) <= limits[key.0].max);
            let never = applied.iter().any(|key| hits.max(1) > limits[key.0].max);
            if never {
                // A cost above the capacity: both refuse, and neither counts.
                continue;
            }
            if allowed {
                for key in &applied {
                    let end = now + limits[key.0].seconds * 1_000_000;
                    counters.entry(key.clone()).or_insert((0, end)).0 += hits.max(1);
                }
            }
            let decisions = imported.decide("shop", &descriptors, hits as u32);
            let context = format!("seed {seed}: {}\n{one}\n{two}\n{rules}", shown(&descriptors));
            assert_eq!(decisions.iter().all(|decision| decision.allowed()), allowed, "{context}");
            let mut found: Vec<String> = decisions
                .iter()
                .flat_map(|decision| decision.rules())
                .map(|rule| rule.id().to_owned())
                .collect();
            found.sort();
            let expected: Vec<String> =
                applied.iter().map(|(number, _)| limits[*number].name.clone()).collect();
            assert_eq!(found, expected, "{context}");
            limited += applied.len();
            unmatched += usize::from(applied.is_empty());
            refused += u32::from(!allowed);
        }
    }
    assert!(limited > 5_000 && unmatched > 1_000 && refused > 500, "{limited} {unmatched} {refused}");
}

#[test]
fn what_cannot_be_expressed_is_refused_with_file_line_and_reason() {
    let limit = |rest: &str| format!("- namespace: d\n  max_value: 1\n  seconds: 1\n{rest}");
    for (text, place, reason) in [
        (limit("  conditions: [\"method == 'GET'\"]"), ":4:", "it names no descriptor"),
        (limit("  variables: [user_id]"), ":4:", "it names no descriptor"),
        (
            limit("  conditions: [\"descriptors[0].a == 'x' || descriptors[0].a == 'y'\"]"),
            ":4:",
            "unsupported condition",
        ),
        (limit("  conditions: [\"descriptors[0].a.matches('x')\"]"), ":4:", "unsupported condition"),
        (
            limit("  conditions: [\"descriptors[0].a == 'x'\"]\n  variables: ['descriptors[1].b']"),
            ":5:",
            "several descriptors",
        ),
        (limit("  variables: ['descriptors[32].b']"), ":4:", "at most 32 descriptors"),
        (limit("  variables: ['descriptors[0].domain']"), ":4:", "its own attributes"),
        (limit("  variables: [\"descriptors[0]['a b']\"]"), ":4:", "1 to 64 letters"),
        (
            limit("  conditions: [\"descriptors[0].a == 'x'\", \"descriptors[0].a == 'y'\"]"),
            ":4:",
            "no value meets all conditions",
        ),
        (limit(&limit("")), ":4:", "duplicate limit"),
        (limit("  burst: 3"), ":4:", "unknown key \"burst\""),
        (
            "- { namespace: d, max_value: 9007199254740992, seconds: 1 }".to_owned(),
            ":1:",
            "whole number up to",
        ),
        ("- { namespace: d, max_value: 1, seconds: 99999999 }".to_owned(), ":1:", "whole number up to"),
    ] {
        let problems = import(convert, &["[]", &text]).expect_err(&text);
        assert!(problems.contains(reason), "{text}\n{problems}");
        assert!(problems.contains(&format!("two.yaml{place}")), "{text}\n{problems}");
    }
    let one = limit("");
    let problems = import(convert, &[&one, &one]).expect_err("a duplicate in another file");
    assert!(problems.contains("two.yaml:1:") && problems.contains("one.yaml:1"), "{problems}");
}

#[test]
fn a_maximum_of_zero_refuses_everything() {
    let rules =
        import(convert, &["[{ namespace: d, name: none, max_value: 0, seconds: 60 }]"]).expect("valid");
    let decisions =
        Imported::new(&rules).decide("d", &[vec![("k", "v".to_owned())], vec![("k", "w".to_owned())]], 0);
    assert!(decisions.iter().any(|decision| !decision.allowed()), "{rules}");
}
