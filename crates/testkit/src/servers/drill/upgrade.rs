//! Two builds of the server side by side on one Redis and one PostgreSQL, as during an upgrade from one server to the next.
//!
//! Requests go to either build at random. Every answer is compared with a model that counts: the builds must decide as one.

mod builds;

use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::DrillError;
use crate::random::Random;
use builds::Builds;

/// Units of every limit.
const LIMIT: u64 = 5;
/// Checks of a subject: some of them are refused.
const CHECKS: u64 = 8;
/// How long a live change may take until it is in force on the other build.
const SPREAD_MAX: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);
/// Limits without a window that could end during the drill.
const KINDS: [(&str, &str); 5] = [
    ("log", "sliding-log: 5/30d"),
    ("window", "sliding-window: 5/30d, buckets: 6, counting: strict"),
    ("bucket", "token-bucket: 1/30d, burst: 5"),
    ("quota", "quota: 5/year"),
    ("leases", "concurrency: 5, lease: 1h"),
];
const WRONG_MAX: usize = 20;

/// The figures of the drill.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Upgraded {
    /// Answers that were compared with the model.
    pub answers: u64,
    /// Live changes that one build wrote and the other one applied.
    pub changes: u64,
    /// The longest time until a live change was in force on the other build.
    pub spread_max: Duration,
    /// Answers that differ from the model, and live changes that were late: the first ones.
    pub wrong: Vec<String>,
}

impl fmt::Display for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Upgraded { answers, changes, spread_max, wrong } = self;
        let spread = spread_max.as_millis();
        write!(
            f,
            "{answers} answers, {} wrong; {changes} live changes, in force after at most {spread} ms",
            wrong.len()
        )
    }
}

impl Upgraded {
    fn expect(&mut self, what: impl FnOnce() -> String, found: &Value, expected: &Value) {
        self.answers += 1;
        if found != expected && self.wrong.len() < WRONG_MAX {
            self.wrong.push(format!("{}: expected {expected}, found {found}", what()));
        }
    }
}

/// Runs both binaries side by side, then replaces the previous one, as an upgrade does, and back.
pub fn upgrade(previous: &str, current: &str, subjects: u64, seed: u64) -> Result<Upgraded, DrillError> {
    let mut found = Upgraded::default();
    let mut random = Random::new(seed);
    let mut builds = Builds::start(previous, current)?;
    for subject in 0..subjects {
        for (kind, _) in KINDS {
            count(&mut builds, &mut random, kind, subject, &mut found)?;
        }
        repeat_and_return(&mut builds, &mut random, subject, &mut found)?;
    }
    for number in 0..subjects.min(20) {
        change(&mut builds, number, &mut found)?;
    }
    // The upgrade goes on: the last old server ends, and then it is taken back.
    for binary in [current, previous] {
        builds.replace_first(binary)?;
        for subject in 0..subjects {
            for (kind, _) in KINDS {
                let peeked = builds.check("/v1/peek", 0, &request(kind, subject))?;
                found.expect(
                    || format!("{kind} of {subject} after a restart"),
                    &peeked["allowed"],
                    &json!(false),
                );
            }
        }
    }
    Ok(found)
}

fn request(kind: &str, subject: u64) -> Value {
    json!({ "attributes": { "action": kind, "user": format!("u-{subject}") } })
}

/// The first checks are admitted, with what remains, and all others are refused.
fn count(
    builds: &mut Builds,
    random: &mut Random,
    kind: &str,
    subject: u64,
    found: &mut Upgraded,
) -> Result<(), DrillError> {
    for number in 0..CHECKS {
        let at = random.below(2);
        let answer = builds.check("/v1/check", at, &request(kind, subject))?;
        let is_admitted = number < LIMIT;
        let expected = json!([is_admitted, LIMIT.saturating_sub(number + 1)]);
        let what = || format!("check {number} of {kind} by {subject} on server {at}: {answer}");
        found.expect(what, &json!([answer["allowed"], answer["remaining"]]), &expected);
    }
    Ok(())
}

/// A request id is charged once, whichever server gets it again, and a receipt of one server is returned on the other.
fn repeat_and_return(
    builds: &mut Builds,
    random: &mut Random,
    subject: u64,
    found: &mut Upgraded,
) -> Result<(), DrillError> {
    let mut body = request("log", subject);
    body["attributes"]["user"] = json!(format!("repeats-{subject}"));
    // A peek answers as a check of one unit would: that unit no longer remains.
    let remaining = |builds: &mut Builds, at: usize, body: &Value| -> Result<Value, DrillError> {
        Ok(builds.check("/v1/peek", at, body)?["remaining"].clone())
    };
    let first = random.below(2);
    let mut with_id = body.clone();
    with_id["id"] = json!(format!("id-{subject}"));
    let one = builds.check("/v1/check", first, &with_id)?;
    let again = builds.check("/v1/check", 1 - first, &with_id)?;
    let numbers = |answer: &Value| json!([answer["allowed"], answer["remaining"]]);
    found.expect(|| format!("id {subject} again on the other server"), &numbers(&again), &numbers(&one));
    let left = remaining(builds, first, &body)?;
    found.expect(|| format!("id {subject} charged once"), &left, &json!(LIMIT - 2));
    let refund = json!({ "receipt": one["receipt"] });
    let refunded = builds.call(1 - first, "POST", "/v1/refund", &refund, None)?;
    found.expect(|| format!("refund of {subject} on the other server"), &json!(refunded.status), &json!(200));
    let left = remaining(builds, first, &body)?;
    found.expect(|| format!("units of {subject} after the refund"), &left, &json!(LIMIT - 1));
    Ok(())
}

/// One build writes a live change. It is in force on both within a second, and so is its end.
fn change(builds: &mut Builds, number: u64, found: &mut Upgraded) -> Result<(), DrillError> {
    let (writer, user) = ((number % 2) as usize, format!("raised-{number}"));
    let id = format!("o-{number}");
    let body = json!({ "id": id, "rule": "log", "when": { "user": user }, "scale": 2, "permanent": true, "reason": "upgrade" });
    let added = builds.call(writer, "POST", "/v1/overrides", &body, None)?;
    found.expect(
        || format!("override {id} written by server {writer}: {}", added.json),
        &json!(added.status),
        &json!(201),
    );
    let peek = json!({ "attributes": { "action": "log", "user": user } });
    in_force(builds, &peek, LIMIT * 2, &id, found)?;
    let etag = added.etag.unwrap_or_default();
    let path = format!("/v1/overrides/{id}");
    let removed = builds.call(1 - writer, "DELETE", &path, &json!({ "reason": "over" }), Some(&etag))?;
    found.expect(
        || format!("override {id} removed by the other server: {}", removed.json),
        &json!(removed.status),
        &json!(200),
    );
    in_force(builds, &peek, LIMIT, &id, found)
}

fn in_force(
    builds: &mut Builds,
    peek: &Value,
    limit: u64,
    id: &str,
    found: &mut Upgraded,
) -> Result<(), DrillError> {
    let committed = Instant::now();
    for at in 0..2 {
        while builds.check("/v1/peek", at, peek)?["limit"] != limit {
            if committed.elapsed() > SPREAD_MAX {
                found.wrong.push(format!("{id} is not in force on server {at} after {SPREAD_MAX:?}"));
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }
    found.changes += 1;
    found.spread_max = found.spread_max.max(committed.elapsed());
    Ok(())
}
