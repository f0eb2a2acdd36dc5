//! The history as JSON.

use serde_json::{Map, Value, json};

use super::latency::percentile;
use super::rings::{Columns, Rings, SHAPES, Timeline, first_number};
use super::{History, Inner};

/// Points of a rule's line. A range with more slots adds neighbours up.
const LINE_POINTS_MAX: u64 = 90;

/// How far back a report reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    ring: usize,
    slots: u64,
}

impl Range {
    /// The names that a query may use.
    pub(crate) const NAMES: [&'static str; 4] = ["2m", "15m", "1h", "24h"];

    /// Returns the range of this name.
    pub(crate) fn of(name: &str) -> Option<Range> {
        Some(match name {
            "2m" => Range { ring: 0, slots: 120 },
            "15m" => Range { ring: 1, slots: 90 },
            "1h" => Range { ring: 1, slots: 360 },
            "24h" => Range { ring: 2, slots: 1_440 },
            _ => return None,
        })
    }

    fn step_s(self) -> u64 {
        SHAPES[self.ring].step_s
    }
}

impl History {
    /// Returns the columns of all checks, of the store and of every rule. A slot that was not sampled is `null`.
    pub(crate) fn report(&self, range: Range, rule: Option<&str>) -> Value {
        let inner = self.inner.lock();
        let Some(newest) = inner.timeline.newest(range.ring) else {
            return json!({ "step_s": range.step_s(), "from_ms": null, "total": {}, "store": {}, "rules": [] });
        };
        let first = newest.saturating_sub(range.slots - 1).max(first_number(newest, SHAPES[range.ring]));
        let window = Window { timeline: &inner.timeline, range, first, newest };
        let mut rules: Vec<(&str, &Rings<{ Columns::COUNT }>)> = inner
            .rules
            .iter()
            .map(|(name, series)| (&**name, &series.rings))
            .filter(|(name, _)| rule.is_none_or(|rule| rule == *name))
            .collect();
        rules.sort_unstable_by_key(|&(name, _)| name);
        let whole = rule.is_some();
        json!({
            "step_s": range.step_s(),
            "from_ms": first * range.step_s() * 1_000,
            "total": window.columns(&inner.total.rings),
            "store": window.store(&inner),
            "rules": rules.iter().map(|(name, rings)| window.rule(name, rings, whole)).collect::<Value>(),
        })
    }
}

impl History {
    /// Returns the newest second that is complete: all checks, the store, and the rules that were busy.
    pub(crate) fn latest_second(&self) -> Value {
        let inner = self.inner.lock();
        let Some(newest) = inner.timeline.newest(0) else { return Value::Null };
        let range = Range { ring: 0, slots: 1 };
        let second = Window { timeline: &inner.timeline, range, first: newest, newest };
        let counts = |rings: &Rings<{ Columns::COUNT }>| *rings.slot(0, newest);
        let named = |counts: [u32; Columns::COUNT]| {
            Columns::NAMES
                .iter()
                .zip(counts)
                .map(|(name, count)| ((*name).to_owned(), json!(count)))
                .collect::<Map<_, _>>()
        };
        let busy = inner.rules.iter().map(|(rule, series)| (rule, counts(&series.rings)));
        let busy = busy.filter(|(_, counts)| counts.iter().any(|&count| count > 0));
        json!({
            "at_ms": newest * 1_000,
            "total": named(counts(&inner.total.rings)),
            "store": second.store(&inner),
            "rules": busy.map(|(rule, counts)| (rule.to_string(), named(counts).into())).collect::<Map<_, _>>(),
        })
    }
}

/// The slots of a report.
struct Window<'h> {
    timeline: &'h Timeline,
    range: Range,
    first: u64,
    newest: u64,
}

impl Window<'_> {
    fn numbers(&self) -> impl Iterator<Item = Option<u64>> {
        (self.first..=self.newest)
            .map(|number| self.timeline.is_valid(self.range.ring, number).then_some(number))
    }

    /// Every column, slot by slot.
    fn columns(&self, rings: &Rings<{ Columns::COUNT }>) -> Value {
        let column = |column: usize| {
            let count =
                |number: Option<u64>| number.map(|number| rings.slot(self.range.ring, number)[column]);
            json!(self.numbers().map(count).collect::<Vec<_>>())
        };
        Columns::NAMES
            .iter()
            .enumerate()
            .map(|(number, name)| ((*name).to_owned(), column(number)))
            .collect::<Map<_, _>>()
            .into()
    }

    /// The sums of a rule, and its refusals over time.
    fn rule(&self, name: &str, rings: &Rings<{ Columns::COUNT }>, whole: bool) -> Value {
        let mut sums = [0_u64; Columns::COUNT];
        for number in self.numbers().flatten() {
            for (sum, count) in sums.iter_mut().zip(rings.slot(self.range.ring, number)) {
                *sum += u64::from(*count);
            }
        }
        let mut fields: Map<String, Value> =
            Columns::NAMES.iter().zip(sums).map(|(name, sum)| ((*name).to_owned(), json!(sum))).collect();
        fields.insert("rule".to_owned(), json!(name));
        fields.insert("line".to_owned(), json!(self.line(rings)));
        if whole {
            fields.insert("columns".to_owned(), self.columns(rings));
        }
        fields.into()
    }

    /// Refusals over time, in at most [`LINE_POINTS_MAX`] points.
    fn line(&self, rings: &Rings<{ Columns::COUNT }>) -> Vec<Option<u64>> {
        let numbers: Vec<Option<u64>> = self.numbers().collect();
        let width = self.range.slots.div_ceil(LINE_POINTS_MAX) as usize;
        let refused = |number: &u64| u64::from(rings.slot(self.range.ring, *number)[Columns::REFUSED]);
        let point = |slots: &[Option<u64>]| {
            let known: Vec<u64> = slots.iter().flatten().map(refused).collect();
            (!known.is_empty()).then(|| known.iter().sum())
        };
        numbers.chunks(width).map(point).collect()
    }

    /// Calls of the store and their latency, slot by slot.
    fn store(&self, inner: &Inner) -> Value {
        let slot = |number: Option<u64>| {
            number.map(|number| inner.store.rings.slot(self.range.ring, number).map(u64::from))
        };
        let slots: Vec<_> = self.numbers().map(slot).collect();
        let calls: Vec<Option<u64>> = slots.iter().map(|slot| slot.map(|slot| slot.iter().sum())).collect();
        let percentiles = |share: f64| {
            let of = |slot: &Option<[u64; _]>| slot.as_ref().and_then(|slot| percentile(slot, share));
            slots.iter().map(of).collect::<Vec<Option<u64>>>()
        };
        json!({
            "calls": calls,
            "p50_us": percentiles(0.5),
            "p99_us": percentiles(0.99),
            "p999_us": percentiles(0.999),
        })
    }
}
