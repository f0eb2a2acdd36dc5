//! Lints about rules that protect secrets: logins, passwords, codes.

use tollgate_core::rules::{Mode, Rule, RuleLimit, Test};
use tollgate_core::{Limit, OnFailure};

use crate::rules::lint::Findings;
use crate::rules::lint::context::{Context, WrittenRule, names};

/// Words that mark a rule as protecting a secret.
const LOGIN_WORDS: [&str; 18] = [
    "2fa",
    "auth",
    "authenticate",
    "authentication",
    "login",
    "logins",
    "logon",
    "mfa",
    "oauth",
    "otp",
    "passwd",
    "password",
    "passwords",
    "signin",
    "signon",
    "signup",
    "token",
    "totp",
];

/// Attributes that identify one account, independent of the client.
const ACCOUNT_ATTRIBUTES: [&str; 8] =
    ["account", "api_key", "card", "email", "phone", "user", "user_id", "username"];

pub(in crate::rules::lint) fn open_login(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        let Some(policy) = permissive_policy(written.rule) else { continue };
        let Some(sign) = sign_of_a_login(written) else { continue };
        let message = format!(
            "rule `{}` protects a secret ({sign}), but its failure policy is {policy}: while the store cannot \
             answer, guesses are not counted",
            written.id(),
        );
        let fix = "`closed` refuses during an outage";
        found.push(found.warning(written.span_of("on_failure"), message, fix));
    }
}

/// The failure policy of a rule, if it allows everything for at least some requests.
fn permissive_policy(rule: &Rule) -> Option<&'static str> {
    let special = rule.on_failure.by.iter().flat_map(|(_, policies)| policies.values());
    // A fixed order, because the order of a map's values changes from run to run and a message must not.
    let policies: Vec<OnFailure> = special.copied().chain([rule.on_failure.default]).collect();
    [(OnFailure::Open, "open"), (OnFailure::Degraded, "degraded")]
        .into_iter()
        .find_map(|(policy, name)| policies.contains(&policy).then_some(name))
}

/// Why a rule seems to protect a secret.
fn sign_of_a_login(written: &WrittenRule<'_>) -> Option<String> {
    let rule = written.rule;
    if is_penalty(rule) {
        return Some("it is a penalty".to_owned());
    }
    if let Some(word) = login_word(written.id()) {
        return Some(format!("`{word}` in its id"));
    }
    if let Some(word) = rule.tags.iter().find_map(|tag| login_word(tag)) {
        return Some(format!("`{word}` in its tags"));
    }
    let word = written.conditions.iter().find_map(|condition| {
        let in_value = match condition.test.required() {
            Test::OneOf(values) => values.iter().find_map(|value| login_word(value)),
            Test::Prefix(text) | Test::Glob(text) => login_word(text),
            Test::Path(_) => condition.path.and_then(login_word),
            Test::Address(_) | Test::Except(_) | Test::Hashed(_) => None,
        };
        in_value.or_else(|| login_word(condition.attribute))
    });
    word.map(|word| format!("`{word}` in its conditions"))
}

/// The first of [`LOGIN_WORDS`] in a text. `sign-in` counts as `signin`; `token-bucket` does not count.
fn login_word(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.iter().enumerate().find_map(|(at, word)| {
        let next = words.get(at + 1).copied().unwrap_or_default();
        let joined = [*word, next].concat();
        let is_bucket = *word == "token" && next == "bucket";
        LOGIN_WORDS.into_iter().find(|known| (known == word && !is_bucket) || *known == joined)
    })
}

pub(in crate::rules::lint) fn penalty_without_account(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live().filter(|written| is_penalty(written.rule) && !is_by_account(written.rule)) {
        let counted: Vec<&str> = written.rule.per.parts.iter().flatten().map(String::as_str).collect();
        let message = if counted.is_empty() {
            format!(
                "rule `{}` adds up the failures of all clients: one attacker makes all others wait",
                written.id()
            )
        } else {
            let by_account = |other: &&WrittenRule<'_>| {
                other.rule.mode == Mode::Enforce
                    && is_by_account(other.rule)
                    && context.can_match_together(written, other)
            };
            if context.live().find(by_account).is_some() {
                continue;
            }
            format!(
                "failures of one account are not added up: rule `{}` counts by {}",
                written.id(),
                names(counted),
            )
        };
        let fix = "add a rule for the same requests that counts by account; `use: login-protection` does";
        found.push(found.warning(written.span_of("per"), message, fix));
    }
}

fn is_penalty(rule: &Rule) -> bool {
    matches!(rule.limit, RuleLimit::Fixed(Limit::Penalty(_)))
}

fn is_by_account(rule: &Rule) -> bool {
    rule.per.parts.iter().flatten().any(|name| ACCOUNT_ATTRIBUTES.contains(&name.as_str()))
}
