//! Ten million invented subjects against a memory store with room for a million. A separate test program, so that its
//! memory is only that of this test.

use tollgate::clock::AnyClock;
use tollgate::{Keyed, ManualClock, MemoryStore};
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::{Limit, Span, Time};

const ROOM: u32 = 1_000_000;
const HOSTILE: u32 = 10_000_000;
/// Documented memory of a key under a bucket, see `MemoryStore::keys_max`.
const KEY_BYTES: usize = 48;
/// Shards, classes, and the overhead of the allocator.
const BASE_BYTES: usize = 4 << 20;

fn resident_bytes() -> usize {
    let pages =
        std::fs::read_to_string("/proc/self/statm").expect("this system reports the memory of a process");
    let pages: usize =
        pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4_096
}

#[test]
fn ten_million_hostile_subjects_stay_within_the_cap_and_get_no_credit_back() {
    let limit = Limit::Bucket(Bucket::tokens(1, Span::from_secs(3_600), 2).unwrap());
    let clock = ManualClock::at(Time::from_us(1_700_000_000_000_000));
    let before = resident_bytes();
    let store = MemoryStore::with_clock(AnyClock::custom(clock)).keys_max(ROOM as usize);
    let keyed = Keyed::with_store(limit, store).unwrap();

    let customers = 0..ROOM;
    assert!(customers.clone().all(|n| keyed.charge(n.to_le_bytes(), 2).allowed()));
    let admitted = (ROOM..ROOM + HOSTILE).filter(|n| keyed.check(n.to_le_bytes()).allowed()).count();
    let grown = resident_bytes() - before;

    assert_eq!(admitted, 2, "all of them share one limit");
    assert!(
        customers.step_by(100).all(|n| !keyed.check(n.to_le_bytes()).allowed()),
        "no customer's state was removed"
    );
    let usage = keyed.store().usage();
    assert_eq!((usage.keys, usage.overflowed), (ROOM as usize, u64::from(HOSTILE)));
    let promised = ROOM as usize * KEY_BYTES + BASE_BYTES;
    println!("{HOSTILE} hostile subjects: {grown} bytes grown, {promised} promised");
    assert!(grown <= promised, "grew by {grown} bytes, {promised} were promised");
}
