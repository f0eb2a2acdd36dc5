//! A scan of the keys: small steps at a capped rate, so that checks do not notice it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tollgate::core::rules::{Rule, RuleLimit, RuleSet};
use tollgate::store::redis::{Footprint, InspectedServer, Inspection, Records, RedisError, RedisReply};
use tollgate::{Clock, SystemClock};

use super::info::{Info, could_not_look};
use super::{Finding, Patient, Scan};
use crate::serve::fleet;

pub(super) const CHECKS: &[&str] = &["keys-without-ttl", "keys-oversized", "keys-hot", "keys-unexplained"];
/// Keys of one step. A step takes the server about as long as one check.
const STEP: u32 = 20;
/// Keys that a finding names.
const NAMED_MAX: usize = 3;
/// A key that no rule explains is large from here on.
const BYTES_MAX: u64 = 65_536;
/// Redis counts accesses logarithmically, from 0 to 255. A key with tens of thousands of accesses has more than this.
const HOT_FROM: u64 = 128;
/// Rules of which keys are counted; the others together.
const RULES_COUNTED_MAX: usize = 1_024;

/// What a scan has counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct KeyCounts {
    /// Keys of the namespace that were looked at.
    pub(crate) keys: u64,
    /// All keys that the scan passed, those of other programs included.
    pub(crate) scanned: u64,
    /// Keys that the servers have.
    pub(crate) total: u64,
    /// Whether the scan ended before it had seen all keys.
    pub(crate) is_sample: bool,
    /// `None` if the user may not run PTTL.
    pub(crate) without_ttl: Option<u64>,
    pub(crate) oversized: Option<u64>,
    /// By rule, or by the kind of other keys.
    pub(crate) by_rule: BTreeMap<String, u64>,
}

impl KeyCounts {
    pub(crate) fn to_json(&self) -> Value {
        let KeyCounts { keys, scanned, total, is_sample, without_ttl, oversized, by_rule } = self;
        json!({
            "keys": keys,
            "scanned": scanned,
            "total": total,
            "sample": is_sample,
            "without_ttl": without_ttl,
            "oversized": oversized,
            "by_rule": by_rule,
        })
    }

    /// How the findings are labelled.
    fn label(&self) -> String {
        if self.is_sample {
            format!("a sample of {} of about {} keys", self.scanned, self.total)
        } else {
            format!("{} keys", self.keys)
        }
    }
}

/// A few names, and how many there are.
#[derive(Default)]
struct Named {
    count: u64,
    names: Vec<String>,
}

impl Named {
    fn add(&mut self, name: String) {
        self.count += 1;
        if self.names.len() < NAMED_MAX {
            self.names.push(name);
        }
    }

    fn such_as(&self) -> String {
        format!("such as {}", self.names.join(", "))
    }
}

/// What a scan looks for.
struct Examination<'p> {
    /// What is in front of every key of the namespace.
    prefix: String,
    /// The largest explained size of each rule's keys.
    rules: HashMap<&'p str, u64>,
    counts: KeyCounts,
    without_ttl: Result<Named, RedisError>,
    oversized: Result<Named, RedisError>,
    hot: Named,
    unexplained: Named,
}

/// Scans the keys of all servers. Returns what it counted, unless the user may not scan.
pub(super) async fn examine(
    inspection: &mut Inspection,
    patient: &Patient<'_>,
    findings: &mut Vec<Finding>,
    progress: &mut impl FnMut(u64, u64),
) -> Option<KeyCounts> {
    let prefix = format!("{}tg:1:{}:", inspection.prefix, fleet::namespace(patient.rules));
    let mut examination = Examination {
        rules: sizes(patient.rules, inspection.prefix.len()),
        prefix,
        counts: KeyCounts::default(),
        without_ttl: Ok(Named::default()),
        oversized: Ok(Named::default()),
        hot: Named::default(),
        unexplained: Named::default(),
    };
    let mut has_lfu = true;
    for server in &mut inspection.servers {
        if let Ok(info) = Info::of(server).await {
            examination.counts.total += info.keys();
            has_lfu &= info.text("maxmemory_policy").is_some_and(|policy| policy.contains("lfu"));
        } else {
            has_lfu = false;
        }
    }
    let servers = inspection.servers.len().max(1) as u64;
    for server in &mut inspection.servers {
        let keys_max = (patient.scan.keys_max / servers).max(1);
        let scan = Scan { keys_max, ..patient.scan };
        if let Err(error) = examination.scan(server, scan, has_lfu, progress).await {
            findings.extend(CHECKS.iter().map(|&check| could_not_look(check, &error, "+scan")));
            return None;
        }
    }
    Some(examination.conclude(has_lfu, findings))
}

/// The largest size of each rule's keys: that of a subject at its limit, and some room.
fn sizes(rules: &RuleSet, prefix: usize) -> HashMap<&str, u64> {
    let (footprint, now) = (Footprint::default(), SystemClock.now());
    let size = |rule: &Rule, limit: &RuleLimit| -> u64 {
        let Some(limit) = limit.at(now) else { return 0 };
        let records = Records::of(&limit).map_or(1, |records| records.most);
        footprint.subject(prefix, &rule.keyspace, &limit, records).total()
    };
    let each = rules.rules().iter().enumerate().map(|(index, rule)| {
        let overrides = rules.overrides_of(index).iter().map(|change| size(rule, &change.limit));
        let largest = overrides.chain([size(rule, &rule.limit)]).max().unwrap_or(0);
        (rule.keyspace.rule(), largest + largest / 4 + 1_024)
    });
    each.collect()
}

impl Examination<'_> {
    /// Scans one server.
    async fn scan(
        &mut self,
        server: &mut InspectedServer,
        scan: Scan,
        has_lfu: bool,
        progress: &mut impl FnMut(u64, u64),
    ) -> Result<(), RedisError> {
        let pattern = format!("{}*", escape_glob(&self.prefix));
        let step = STEP.to_string();
        let pause = Duration::from_secs(1) * STEP / scan.rate.max(1);
        let (mut cursor, mut here) = ("0".to_owned(), 0);
        loop {
            let next = Instant::now() + pause;
            let words: [&[u8]; 6] =
                [b"SCAN", cursor.as_bytes(), b"MATCH", pattern.as_bytes(), b"COUNT", step.as_bytes()];
            let reply = server.command(&words).await?;
            let [found, keys] = reply.list() else {
                return Err(RedisError::UnexpectedReply("the reply to SCAN is not understood"));
            };
            cursor = found.text().unwrap_or_default();
            here += u64::from(STEP);
            let is_over = cursor == "0" || cursor.is_empty();
            self.counts.scanned =
                (self.counts.scanned + u64::from(STEP)).min(self.counts.total.max(u64::from(STEP)));
            let keys: Vec<&[u8]> = keys.list().iter().filter_map(RedisReply::bytes).collect();
            self.look_at(server, &keys, has_lfu).await?;
            progress(self.counts.scanned, self.counts.total);
            if is_over {
                return Ok(());
            }
            if here >= scan.keys_max {
                self.counts.is_sample = true;
                return Ok(());
            }
            sleep_until(next).await;
        }
    }

    /// Asks for the expiry and the size of each key.
    async fn look_at(
        &mut self,
        server: &mut InspectedServer,
        keys: &[&[u8]],
        has_lfu: bool,
    ) -> Result<(), RedisError> {
        let mut commands: Vec<Vec<&[u8]>> = Vec::with_capacity(keys.len() * 3);
        for key in keys {
            commands.push(vec![&b"PTTL"[..], key]);
            commands.push(vec![&b"MEMORY"[..], b"USAGE", key]);
            if has_lfu {
                commands.push(vec![&b"OBJECT"[..], b"FREQ", key]);
            }
        }
        let mut replies = server.pipeline(&commands).await?.into_iter();
        for key in keys {
            let name = || shown(key);
            let explained = self.count(key);
            // -1: it has no expiry. -2: it is gone meanwhile.
            note(&mut self.without_ttl, replies.next(), |ttl| (ttl.number::<i64>() == Some(-1)).then(name));
            note(&mut self.oversized, replies.next(), |bytes| {
                let bytes = bytes.number::<u64>().filter(|&bytes| bytes > explained)?;
                Some(format!("{} ({bytes} bytes)", shown(key)))
            });
            if has_lfu && let Some(Ok(count)) = replies.next() {
                let is_hot = count.number::<u64>().is_some_and(|count| count >= HOT_FROM);
                if is_hot {
                    self.hot.add(name());
                }
            }
        }
        Ok(())
    }

    /// Counts a key by its rule. Returns the largest size that is explained.
    fn count(&mut self, key: &[u8]) -> u64 {
        self.counts.keys += 1;
        let rest = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(self.prefix.as_str()));
        // `{tag}:rule:subject`, or `{tag}:@kind:…` for what belongs to no single rule.
        let parts = rest.and_then(|rest| rest.strip_prefix('{')?.split_once("}:"));
        let rule = parts.map(|(_, rest)| rest.split(':').next().unwrap_or(rest));
        let known = rule
            .filter(|rule| rule.starts_with('@') || *rule == "CL.THROTTLE" || self.rules.contains_key(rule));
        match known {
            Some(rule) => {
                if self.counts.by_rule.len() < RULES_COUNTED_MAX || self.counts.by_rule.contains_key(rule) {
                    *self.counts.by_rule.entry(rule.to_owned()).or_default() += 1;
                }
                self.rules.get(rule).copied().unwrap_or(BYTES_MAX)
            }
            None => {
                self.unexplained.add(shown(key));
                BYTES_MAX
            }
        }
    }

    fn conclude(self, has_lfu: bool, findings: &mut Vec<Finding>) -> KeyCounts {
        let Examination { mut counts, without_ttl, oversized, hot, unexplained, .. } = self;
        let label = counts.label();
        counts.without_ttl = without_ttl.as_ref().ok().map(|named| named.count);
        counts.oversized = oversized.as_ref().ok().map(|named| named.count);
        findings.push(match without_ttl {
            Err(error) => could_not_look("keys-without-ttl", &error, "+pttl"),
            Ok(found) if found.count == 0 => Finding::pass("keys-without-ttl", format!("{label}: all expire")),
            Ok(found) => Finding::fail(
                "keys-without-ttl",
                format!("{label}: {} never expire, {}", found.count, found.such_as()),
                "Tollgate sets an expiry with every write, so another program wrote them or removed it: delete them with \
                 UNLINK, and separate the programs by users or prefixes",
            ),
        });
        findings.push(match oversized {
            Err(error) => could_not_look("keys-oversized", &error, "+memory"),
            Ok(found) if found.count == 0 => {
                Finding::pass("keys-oversized", format!("{label}: none is larger than its rule explains"))
            }
            Ok(found) => Finding::warn(
                "keys-oversized",
                format!("{label}: {} are larger than their rules explain, {}", found.count, found.such_as()),
                "if the limit was larger before, they shrink by themselves; otherwise another program wrote them",
            ),
        });
        findings.push(match (has_lfu, hot.count) {
            (false, _) => Finding::skip(
                "keys-hot",
                "the server counts accesses only with an LFU policy; `tollgate top` shows the busiest subjects of a server",
            ),
            (true, 0) => Finding::pass("keys-hot", format!("{label}: none is used much more than others")),
            (true, count) => Finding::warn(
                "keys-hot",
                format!("{label}: {count} are used very often, {}", hot.such_as()),
                "let servers take slices of the limit (`slices:`), or count a smaller subject",
            ),
        });
        findings.push(match unexplained.count {
            0 => Finding::pass("keys-unexplained", format!("{label}: all belong to rules")),
            count => Finding::warn(
                "keys-unexplained",
                format!("{label}: {count} belong to no rule, {}", unexplained.such_as()),
                "keys of removed rules expire by themselves; delete others with UNLINK",
            ),
        });
        counts
    }
}

/// Notes the key of a reply that `name` names. After an error, such as a missing permission, nothing more is noted.
fn note(
    found: &mut Result<Named, RedisError>,
    reply: Option<Result<RedisReply, RedisError>>,
    name: impl FnOnce(&RedisReply) -> Option<String>,
) {
    let Ok(named) = found else { return };
    match reply {
        Some(Ok(reply)) => {
            if let Some(name) = name(&reply) {
                named.add(name);
            }
        }
        Some(Err(error)) => *found = Err(error),
        None => (),
    }
}

/// A key as text. It has hashes instead of values.
fn shown(key: &[u8]) -> String {
    crate::text::excerpt(&String::from_utf8_lossy(key), 120)
}

/// Escapes what SCAN takes as a pattern.
fn escape_glob(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
