//! The measurement of the layers before Redis, in its short form.

use tollgate_testkit::drill::{LayersRun, load_off_redis, runtime};

#[test]
fn the_layers_save_round_trips_and_admit_nothing_more() {
    let found = load_off_redis(&runtime().unwrap(), LayersRun::SHORT).unwrap();
    print!("{found}");
    assert_eq!(found.broken(), Vec::<String>::new(), "{found}");
    // Far below the targets: other tests run at the same time.
    let at_least = |part: u64, whole: u64, percent: u64| part * 100 >= whole * percent;
    assert!(at_least(found.sliced_hot.hot[1], found.sliced_hot.hot[0], 60), "{found}");
    assert!(at_least(found.attacker.local, found.attacker.all, 90), "{found}");
    assert!(at_least(found.flood.local, found.flood.all, 90), "{found}");
    assert!(found.saving_on_hot_keys() > 2.0, "{found}");
    assert_eq!(found.exact_hot.all[1], 0, "exact checks ask Redis each time");
}
