//! Requests as the engine replays them: batches of records over one text.

use tollgate::core::{Attributes, Time};

/// Stands for a cost that a request does not state.
const NO_COST: u64 = u64::MAX;
/// Stands for a duration that a log does not have.
const NO_DURATION: u64 = u64::MAX;

/// The names of the attributes that some rule reads. Other attributes of a log are not kept.
pub(in crate::simulate) type Names = [String];

/// Requests in the order of their time. Their attribute values share one text, so that a request costs no allocation.
#[derive(Clone, Default, Debug)]
pub(in crate::simulate) struct Batch {
    text: String,
    values: Vec<Value>,
    records: Vec<Record>,
}

/// One request.
#[derive(Clone, Copy, Debug)]
struct Record {
    at: Time,
    duration_us: u64,
    cost: u64,
    /// The end of its values in `values`.
    values_end: u32,
    /// Whether `at` is a whole second only because the log has no fractions.
    whole_second: bool,
}

/// The value of one attribute.
#[derive(Clone, Copy, Debug)]
struct Value {
    name: u16,
    start: u32,
    end: u32,
}

/// What a log says about one request besides its attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::simulate) struct Facts {
    /// When it was decided.
    pub(in crate::simulate) at: Time,
    /// Whether the log has whole seconds only.
    pub(in crate::simulate) whole_second: bool,
    pub(in crate::simulate) duration_us: Option<u64>,
    pub(in crate::simulate) cost: Option<u64>,
}

/// One request of a batch.
#[derive(Clone, Copy, Debug)]
pub(in crate::simulate) struct RecordRef<'b> {
    batch: &'b Batch,
    index: usize,
}

impl Batch {
    pub(in crate::simulate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(in crate::simulate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Adds the value of an attribute to the request that is being read. Batches are far smaller than the 4 GiB that
    /// positions can express.
    #[inline]
    pub(in crate::simulate) fn push_value(&mut self, name: u16, value: &str) {
        let start = self.text.len() as u32;
        self.text.push_str(value);
        self.values.push(Value { name, start, end: self.text.len() as u32 });
    }

    /// Completes the request whose values were pushed.
    #[inline]
    pub(in crate::simulate) fn finish(&mut self, facts: Facts) {
        self.records.push(Record {
            at: facts.at,
            duration_us: facts.duration_us.unwrap_or(NO_DURATION),
            cost: facts.cost.unwrap_or(NO_COST),
            values_end: self.values.len() as u32,
            whole_second: facts.whole_second,
        });
    }

    /// Drops the values of the request that is being read.
    pub(in crate::simulate) fn abandon(&mut self) {
        let end = self.records.last().map_or(0, |record| record.values_end as usize);
        self.values.truncate(end);
        self.text.truncate(self.values.last().map_or(0, |value| value.end as usize));
    }

    #[inline]
    pub(in crate::simulate) fn record(&self, index: usize) -> RecordRef<'_> {
        RecordRef { batch: self, index }
    }

    pub(in crate::simulate) fn set_time(&mut self, index: usize, at: Time) {
        self.records[index].at = at;
    }

    /// Copies one request of another batch, at another time.
    pub(in crate::simulate) fn copy(&mut self, record: RecordRef<'_>, at: Time) {
        for value in record.values() {
            self.push_value(value.name, record.batch.text_of(value));
        }
        self.finish(Facts { at, ..record.facts() });
    }

    fn text_of(&self, value: &Value) -> &str {
        &self.text[value.start as usize..value.end as usize]
    }
}

impl<'b> RecordRef<'b> {
    #[inline]
    fn record(self) -> &'b Record {
        &self.batch.records[self.index]
    }

    #[inline]
    fn values(self) -> &'b [Value] {
        let end = self.record().values_end as usize;
        let start =
            self.index.checked_sub(1).map_or(0, |before| self.batch.records[before].values_end as usize);
        &self.batch.values[start..end]
    }

    #[inline]
    pub(in crate::simulate) fn at(self) -> Time {
        self.record().at
    }

    pub(in crate::simulate) fn facts(self) -> Facts {
        let Record { at, whole_second, .. } = *self.record();
        Facts { at, whole_second, duration_us: self.duration_us(), cost: self.cost() }
    }

    pub(in crate::simulate) fn duration_us(self) -> Option<u64> {
        Some(self.record().duration_us).filter(|&duration| duration != NO_DURATION)
    }

    pub(in crate::simulate) fn cost(self) -> Option<u64> {
        Some(self.record().cost).filter(|&cost| cost != NO_COST)
    }

    /// Its attributes, as a server would get them.
    #[inline]
    pub(in crate::simulate) fn attributes<'n>(self, names: &'n Names) -> Attributes<'n>
    where
        'b: 'n,
    {
        let mut attributes = Attributes::new();
        for value in self.values() {
            let (name, text) = (names[usize::from(value.name)].as_str(), self.batch.text_of(value));
            attributes.set(name, text);
            if name == "ip"
                && let Ok(address) = text.parse()
            {
                attributes.set_client_address(address);
            }
        }
        attributes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts =
        Facts { at: Time::from_us(7), whole_second: false, duration_us: None, cost: Some(3) };

    fn names() -> Vec<String> {
        ["ip", "user"].map(str::to_owned).to_vec()
    }

    #[test]
    fn an_abandoned_request_leaves_no_values_to_the_next() {
        let mut batch = Batch::default();
        batch.push_value(1, "jane");
        batch.finish(FACTS);
        batch.push_value(1, "mallory");
        batch.abandon();
        batch.push_value(0, "192.0.2.1");
        batch.finish(FACTS);
        let names = names();
        let found: Vec<Vec<_>> =
            (0..2).map(|at| batch.record(at).attributes(&names).iter().collect()).collect();
        assert_eq!(found, [vec![("user", "jane")], vec![("ip", "192.0.2.1")]]);
        let mut copy = Batch::default();
        copy.copy(batch.record(1), Time::from_us(9));
        assert_eq!(copy.record(0).at(), Time::from_us(9));
        assert_eq!((copy.record(0).cost(), copy.record(0).duration_us()), (Some(3), None));
        assert!(copy.record(0).attributes(&names).client_address().is_some());
    }
}
