//! Which keys are used most: by the server's own counter, or by looking several times whether their values change.

use std::cmp::Reverse;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tollgate::store::redis::{InspectedServer, RedisError, RedisReply};

use super::super::info::is_denied;
use super::HotKey;

/// Keys that are listed.
const LISTED_MAX: usize = 10;
/// A key with more accesses on the logarithmic counter of Redis: some tens of thousands, lately.
const FREQUENCY_HOT: u64 = 128;
/// Writes per second from which one key is a bottleneck.
const PER_SECOND_HOT: u64 = 200;
/// Seconds of looks that the candidates may take.
const CANDIDATES_S: u32 = 2;
/// Intervals between looks before a part of the keys is left out.
const SIFTING_LOOKS: u32 = 4;
/// Intervals between looks at the keys that are left.
const LOOKS: u32 = 64;
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Bytes of a value that are compared. States change at their start with every admission.
const COMPARED: &[u8] = b"255";
/// Keys of one pipeline.
const STEP: usize = 20;

/// Keys with a number: the larger, the busier.
type Ranked = Vec<(u64, Vec<u8>)>;
/// The start of each key's value; `None` if it is gone.
type Values = Vec<Option<Vec<u8>>>;

/// What the scan noted about the use of keys.
pub(super) struct HotKeys {
    has_lfu: bool,
    /// The first error that means a missing permission.
    denied: Option<RedisError>,
    /// With an LFU policy: the keys with the largest counters.
    counted: Ranked,
    /// Without: the keys that were used in the last second.
    candidates: Vec<Vec<u8>>,
    candidates_max: usize,
    sampled: Ranked,
}

impl HotKeys {
    /// `rate` is the number of keys that may be looked at in a second.
    pub(super) fn new(has_lfu: bool, rate: u32) -> HotKeys {
        HotKeys {
            has_lfu,
            denied: None,
            counted: Vec::new(),
            candidates: Vec::new(),
            candidates_max: (rate * CANDIDATES_S) as usize,
            sampled: Vec::new(),
        }
    }

    /// The command that says how a key is used.
    pub(super) fn command<'k>(&self, key: &'k [u8]) -> Vec<&'k [u8]> {
        let what: &'static [u8] = if self.has_lfu { b"FREQ" } else { b"IDLETIME" };
        vec![&b"OBJECT"[..], what, key]
    }

    /// Notes the reply to this command.
    pub(super) fn note(&mut self, key: &[u8], reply: Option<Result<RedisReply, RedisError>>) {
        match reply {
            Some(Ok(reply)) => match (self.has_lfu, reply.number::<u64>()) {
                (true, Some(frequency)) => {
                    self.counted.push((frequency, key.to_owned()));
                    if self.counted.len() >= 2 * LISTED_MAX {
                        keep_largest(&mut self.counted, LISTED_MAX);
                    }
                }
                (false, Some(0..=1)) if self.candidates.len() < self.candidates_max => {
                    self.candidates.push(key.to_owned());
                }
                _ => (),
            },
            Some(Err(error)) if is_error_of_rights(&error) => self.denied = Some(error),
            // The key is gone meanwhile.
            Some(Err(_)) | None => (),
        }
    }

    /// Looks at the candidates of one server several times, keeps those that change most, and estimates how often they do.
    ///
    /// The fewer keys are left, the more often each is looked at: keys that changed in every look differ in a later round.
    pub(super) async fn sample(&mut self, server: &mut InspectedServer, rate: u32) -> Result<(), RedisError> {
        let mut keys = std::mem::take(&mut self.candidates);
        while keys.len() > LISTED_MAX && self.denied.is_none() {
            let Some((mut changed, _)) = self.changes(server, keys, SIFTING_LOOKS, rate).await? else {
                return Ok(());
            };
            let kept = (changed.len() / 4).max(LISTED_MAX);
            changed.retain(|(changes, _)| *changes > 0);
            keep_largest(&mut changed, kept);
            keys = changed.into_iter().map(|(_, key)| key).collect();
        }
        if keys.is_empty() || self.denied.is_some() {
            return Ok(());
        }
        if let Some((changed, interval)) = self.changes(server, keys, LOOKS, rate).await? {
            let rates = changed.into_iter().map(|(changes, key)| (per_second(changes, LOOKS, interval), key));
            self.sampled.extend(rates);
            keep_largest(&mut self.sampled, LISTED_MAX);
        }
        Ok(())
    }

    /// In how many intervals between looks each key has changed, and the length of an interval in seconds.
    async fn changes(
        &mut self,
        server: &mut InspectedServer,
        keys: Vec<Vec<u8>>,
        intervals: u32,
        rate: u32,
    ) -> Result<Option<(Ranked, f64)>, RedisError> {
        let Some(mut last) = self.look(server, &keys, rate).await? else { return Ok(None) };
        let (mut changes, began) = (vec![0; keys.len()], Instant::now());
        for _ in 0..intervals {
            let Some(now) = self.look(server, &keys, rate).await? else { return Ok(None) };
            for (changes, (last, now)) in changes.iter_mut().zip(last.iter().zip(&now)) {
                *changes += u64::from(last != now);
            }
            last = now;
        }
        let interval = began.elapsed().as_secs_f64() / f64::from(intervals);
        Ok(Some((changes.into_iter().zip(keys).collect(), interval)))
    }

    /// The values of all keys at the capped rate; `None` if the user may not read them.
    async fn look(
        &mut self,
        server: &mut InspectedServer,
        keys: &[Vec<u8>],
        rate: u32,
    ) -> Result<Option<Values>, RedisError> {
        let mut values = Vec::with_capacity(keys.len());
        for part in keys.chunks(STEP) {
            let pause = Duration::from_secs(1) * part.len() as u32 / rate.max(1);
            let next = Instant::now() + pause.max(PAUSE_MIN);
            let commands: Vec<Vec<&[u8]>> =
                part.iter().map(|key| vec![&b"GETRANGE"[..], key, b"0", COMPARED]).collect();
            for reply in server.pipeline(&commands).await? {
                match reply {
                    Ok(value) => values.push(value.bytes().map(<[u8]>::to_vec)),
                    Err(error) if is_error_of_rights(&error) => {
                        self.denied = Some(error);
                        return Ok(None);
                    }
                    Err(_) => values.push(None),
                }
            }
            sleep_until(next).await;
        }
        Ok(Some(values))
    }

    /// The busiest keys first, or what the user may not do.
    pub(super) fn into_list(self, rule: impl Fn(&[u8]) -> Option<String>) -> Result<Vec<HotKey>, RedisError> {
        if let Some(error) = self.denied {
            return Err(error);
        }
        let HotKeys { has_lfu, mut counted, mut sampled, .. } = self;
        keep_largest(&mut counted, LISTED_MAX);
        keep_largest(&mut sampled, LISTED_MAX);
        let listed = if has_lfu { counted } else { sampled };
        let hot = listed.into_iter().filter(|(number, _)| *number > 0).map(|(number, key)| HotKey {
            rule: rule(&key),
            key: super::shown(&key),
            per_second: (!has_lfu).then_some(number),
            frequency: has_lfu.then_some(number),
        });
        Ok(hot.collect())
    }
}

impl HotKey {
    /// Whether it is so busy that it may become a bottleneck.
    pub(super) fn is_hot(&self) -> bool {
        self.frequency.is_some_and(|frequency| frequency >= FREQUENCY_HOT)
            || self.per_second.is_some_and(|writes| writes >= PER_SECOND_HOT)
    }

    /// The key, and how busy it is.
    pub(super) fn described(&self) -> String {
        match (self.per_second, self.frequency) {
            (Some(writes), _) => format!("{} (about {writes} writes a second)", self.key),
            (None, Some(frequency)) => format!("{} (access counter {frequency} of 255)", self.key),
            (None, None) => self.key.clone(),
        }
    }
}

fn is_error_of_rights(error: &RedisError) -> bool {
    matches!(error, RedisError::ErrorReply(reply) if is_denied(reply))
}

fn keep_largest(keys: &mut Ranked, kept: usize) {
    keys.sort_by_key(|(number, _)| Reverse(*number));
    keys.truncate(kept);
}

/// The rate of random events of which at least one fell into `hits` of `intervals` intervals of this many seconds.
///
/// If it was every interval, the rate is a lower bound.
fn per_second(hits: u64, intervals: u32, interval: f64) -> u64 {
    let intervals = f64::from(intervals.max(1));
    let quiet = (intervals - hits as f64).max(0.5) / intervals;
    (-quiet.ln() / interval.max(1e-6)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_from_the_share_of_quiet_intervals() {
        // e^-1 of the intervals are quiet at one event per interval.
        assert_eq!(per_second(632, 1_000, 0.01), 100);
        assert_eq!(per_second(0, 64, 0.01), 0);
        // All intervals had events: at least this many.
        assert_eq!(per_second(64, 64, 0.001), 4_852);
    }
}
