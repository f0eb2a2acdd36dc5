//! A scan of the keys: small steps at a capped rate, so that checks do not notice it.

mod counts;
mod hot;

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tollgate::core::rules::{Rule, RuleLimit, RuleSet};
use tollgate::store::redis::{Footprint, InspectedServer, Inspection, Records, RedisError, RedisReply};
use tollgate::{Clock, SystemClock};

use super::info::{Info, could_not_look};
use super::{Finding, Patient, Report, Scan};
use crate::serve::fleet;
use counts::Tally;
pub(crate) use counts::{HotKey, KeyCounts};
use hot::HotKeys;

/// The checks that need a scan.
pub(crate) const CHECKS: [&str; 4] = ["keys-without-ttl", "keys-oversized", "keys-hot", "keys-unexplained"];
/// Keys of one step. A step takes the server about as long as one check.
const STEP: u32 = 20;
/// Keys that a finding names.
const NAMED_MAX: usize = 3;
/// A key that no rule explains is large from here on.
const BYTES_MAX: u64 = 65_536;

/// A few names, and how many there are.
#[derive(Default)]
struct Named {
    count: u64,
    names: Vec<String>,
}

impl Named {
    fn add(&mut self, name: impl FnOnce() -> String) {
        self.count += 1;
        if self.names.len() < NAMED_MAX {
            self.names.push(name());
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
    by_rule: Tally,
    without_ttl: Result<Named, RedisError>,
    oversized: Result<Named, RedisError>,
    hot: HotKeys,
    unexplained: Named,
}

/// Scans the keys of all servers, and adds what it finds to the report.
pub(super) async fn examine(
    inspection: &mut Inspection,
    patient: &Patient<'_>,
    report: &mut Report,
    progress: &mut impl FnMut(u64, u64),
) {
    let prefix = format!("{}tg:1:{}:", inspection.prefix, fleet::namespace(patient.rules));
    let (mut has_lfu, mut total) = (true, 0);
    for server in &mut inspection.servers {
        if let Ok(info) = Info::of(server).await {
            total += info.keys();
            has_lfu &= info.text("maxmemory_policy").is_some_and(|policy| policy.contains("lfu"));
        } else {
            has_lfu = false;
        }
    }
    let mut examination = Examination {
        rules: sizes(patient.rules, inspection.prefix.len()),
        prefix,
        counts: KeyCounts { total, ..KeyCounts::default() },
        by_rule: Tally::default(),
        without_ttl: Ok(Named::default()),
        oversized: Ok(Named::default()),
        hot: HotKeys::new(has_lfu, patient.scan.rate),
        unexplained: Named::default(),
    };
    let servers = inspection.servers.len().max(1) as u64;
    for server in &mut inspection.servers {
        let keys_max = (patient.scan.keys_max / servers).max(1);
        let scan = Scan { keys_max, ..patient.scan };
        let scanned = match examination.scan(server, scan, progress).await {
            Ok(()) => examination.hot.sample(server, patient.scan.rate).await,
            Err(error) => Err(error),
        };
        if let Err(error) = scanned {
            report.findings.extend(CHECKS.iter().map(|&check| could_not_look(check, &error, "+scan")));
            return;
        }
    }
    examination.conclude(report);
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

/// The rule of a key behind the prefix of the namespace, or the kind of a key that belongs to no single rule.
fn rule_of<'k>(key: &'k [u8], prefix: &str) -> Option<&'k str> {
    let rest = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?;
    // `{tag}:rule:subject`, or `{tag}:@kind…`.
    let (_, rest) = rest.strip_prefix('{')?.split_once("}:")?;
    rest.split(':').next()
}

impl Examination<'_> {
    /// Scans one server.
    async fn scan(
        &mut self,
        server: &mut InspectedServer,
        scan: Scan,
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
            let counts = &mut self.counts;
            counts.scanned = (counts.scanned + u64::from(STEP)).min(counts.total.max(u64::from(STEP)));
            let keys: Vec<&[u8]> = keys.list().iter().filter_map(RedisReply::bytes).collect();
            self.look_at(server, &keys).await?;
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

    /// Asks for the expiry, the size and the use of each key.
    async fn look_at(&mut self, server: &mut InspectedServer, keys: &[&[u8]]) -> Result<(), RedisError> {
        let mut commands: Vec<Vec<&[u8]>> = Vec::with_capacity(keys.len() * 3);
        for key in keys {
            commands.push(vec![&b"PTTL"[..], key]);
            commands.push(vec![&b"MEMORY"[..], b"USAGE", key]);
            commands.push(self.hot.command(key));
        }
        let mut replies = server.pipeline(&commands).await?.into_iter();
        for key in keys {
            let (ttl, bytes, used) = (replies.next(), replies.next(), replies.next());
            let size = bytes.as_ref().and_then(|bytes| bytes.as_ref().ok()?.number::<u64>());
            let explained = self.count(key, size.unwrap_or(0));
            note(&mut self.without_ttl, ttl, |found, ttl| {
                // -1: it has no expiry. -2: it is gone meanwhile.
                if ttl.number::<i64>() == Some(-1) {
                    found.add(|| shown(key));
                }
            });
            note(&mut self.oversized, bytes, |found, bytes| {
                if let Some(bytes) = bytes.number::<u64>().filter(|&bytes| bytes > explained) {
                    found.add(|| format!("{} ({bytes} bytes)", shown(key)));
                }
            });
            self.hot.note(key, used);
        }
        Ok(())
    }

    /// Counts a key by its rule. Returns the largest size that is explained.
    fn count(&mut self, key: &[u8], bytes: u64) -> u64 {
        self.counts.keys += 1;
        *self.counts.bytes.get_or_insert_default() += bytes;
        let known = rule_of(key, &self.prefix)
            .filter(|rule| rule.starts_with('@') || *rule == "CL.THROTTLE" || self.rules.contains_key(rule));
        let Some(rule) = known else {
            self.unexplained.add(|| shown(key));
            return BYTES_MAX;
        };
        self.by_rule.add(rule, bytes);
        self.rules.get(rule).copied().unwrap_or(BYTES_MAX)
    }

    fn conclude(self, report: &mut Report) {
        let Examination { prefix, mut counts, by_rule, without_ttl, oversized, hot, unexplained, .. } = self;
        let label = counts.label();
        counts.without_ttl = without_ttl.as_ref().ok().map(|named| named.count);
        counts.oversized = oversized.as_ref().ok().map(|named| named.count);
        counts.bytes = oversized.is_ok().then_some(counts.bytes.unwrap_or(0));
        counts.by_rule = by_rule.into_list();
        let hot = hot.into_list(|key| rule_of(key, &prefix).map(str::to_owned));
        report.findings.extend([
            expiry(&label, &without_ttl),
            size(&label, &oversized),
            busy(&label, &hot),
            explained(&label, &unexplained),
        ]);
        report.hot_keys = hot.ok();
        report.keys = Some(counts);
    }
}

fn expiry(label: &str, found: &Result<Named, RedisError>) -> Finding {
    const CHECK: &str = "keys-without-ttl";
    match found {
        Err(error) => could_not_look(CHECK, error, "+pttl"),
        Ok(found) if found.count == 0 => Finding::pass(CHECK, format!("{label}: all expire")),
        Ok(found) => Finding::fail(
            CHECK,
            format!("{label}: {} never expire, {}", found.count, found.such_as()),
            "Tollgate sets an expiry with every write, so another program wrote them or removed it: delete them with \
             UNLINK, and separate the programs by users or prefixes",
        ),
    }
}

fn size(label: &str, found: &Result<Named, RedisError>) -> Finding {
    const CHECK: &str = "keys-oversized";
    match found {
        Err(error) => could_not_look(CHECK, error, "+memory"),
        Ok(found) if found.count == 0 => {
            Finding::pass(CHECK, format!("{label}: none is larger than its rule explains"))
        }
        Ok(found) => Finding::warn(
            CHECK,
            format!("{label}: {} are larger than their rules explain, {}", found.count, found.such_as()),
            "if the limit was larger before, they shrink by themselves; otherwise another program wrote them",
        ),
    }
}

fn busy(label: &str, found: &Result<Vec<HotKey>, RedisError>) -> Finding {
    const CHECK: &str = "keys-hot";
    let found = match found {
        Err(error) => return could_not_look(CHECK, error, "+object|idletime, +object|freq and +getrange"),
        Ok(found) => found,
    };
    let hot: Vec<String> = found.iter().filter(|key| key.is_hot()).map(HotKey::described).collect();
    if hot.is_empty() {
        return Finding::pass(CHECK, format!("{label}: no key is a bottleneck"));
    }
    let named = hot.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    Finding::warn(
        CHECK,
        format!("{label}: {} are used very often, such as {named}", hot.len()),
        "let servers take slices of the limit (`slices:`), or count a smaller subject",
    )
}

fn explained(label: &str, unexplained: &Named) -> Finding {
    const CHECK: &str = "keys-unexplained";
    match unexplained.count {
        0 => Finding::pass(CHECK, format!("{label}: all belong to rules")),
        count => Finding::warn(
            CHECK,
            format!("{label}: {count} belong to no rule, {}", unexplained.such_as()),
            "keys of removed rules expire by themselves; delete others with UNLINK",
        ),
    }
}

/// Passes a reply on. After an error, such as a missing permission, nothing more is noted.
fn note(
    found: &mut Result<Named, RedisError>,
    reply: Option<Result<RedisReply, RedisError>>,
    add: impl FnOnce(&mut Named, &RedisReply),
) {
    let Ok(named) = found else { return };
    match reply {
        Some(Ok(reply)) => add(named, &reply),
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
