//! State that does not fit into a slot.

use tollgate_core::algorithm::sliding_log::Entry as LogEntry;
use tollgate_core::algorithm::sliding_window::NewestBucketCharge;
use tollgate_core::{Change, State, Time, Write};

/// States by index. The index of a removed state is reused.
#[derive(Default)]
pub(super) struct Heap {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// What the states take, without the entries of freed indexes.
    bytes: usize,
}

struct Entry {
    state: Option<State>,
    dies_at: Time,
}

impl Entry {
    /// What the state takes. Only logs grow by more than a few words.
    fn bytes(&self) -> usize {
        match &self.state {
            None => 0,
            Some(State::SlidingLog(log)) => {
                size_of::<Entry>() + log.entries.capacity() * size_of::<LogEntry>()
            }
            Some(_) => size_of::<Entry>(),
        }
    }
}

impl Heap {
    /// What all states take.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn insert(&mut self, state: State, dies_at: Time) -> u32 {
        let entry = Entry { state: Some(state), dies_at };
        self.bytes += entry.bytes();
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        }
    }

    pub(super) fn state(&self, index: u32) -> Option<&State> {
        self.entries.get(index as usize)?.state.as_ref()
    }

    pub(super) fn dies_at(&self, index: u32) -> Option<Time> {
        self.entries.get(index as usize).map(|entry| entry.dies_at)
    }

    /// Applies a change to the state in place.
    pub(super) fn commit(&mut self, index: u32, write: Write<Change>) {
        let entry = &mut self.entries[index as usize];
        let before = entry.bytes();
        State::commit(&mut entry.state, write.change);
        entry.dies_at = write.dies_at.unwrap_or(entry.dies_at);
        self.bytes = self.bytes - before + entry.bytes();
    }

    /// Adds to the newest bucket of a sliding window in place.
    #[inline]
    pub(super) fn add_to_newest(&mut self, index: u32, newest: &NewestBucketCharge, dies_at: Time) {
        let entry = &mut self.entries[index as usize];
        let Some(State::SlidingWindow(state)) = &mut entry.state else {
            unreachable!("the charge was computed under the same lock");
        };
        newest.add_to(state);
        entry.dies_at = dies_at;
    }

    /// Moves the state out and keeps its index reserved for [`put_back`](Heap::put_back).
    pub(super) fn take(&mut self, index: u32) -> Option<State> {
        let entry = self.entries.get_mut(index as usize)?;
        self.bytes -= entry.bytes();
        entry.state.take()
    }

    pub(super) fn put_back(&mut self, index: u32, state: State, dies_at: Time) {
        let entry = Entry { state: Some(state), dies_at };
        self.bytes = self.bytes - self.entries[index as usize].bytes() + entry.bytes();
        self.entries[index as usize] = entry;
    }

    pub(super) fn remove(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        self.bytes -= entry.bytes();
        entry.state = None;
        self.free.push(index);
        if self.free.len() == self.entries.len() {
            *self = Heap::default();
        }
    }
}
