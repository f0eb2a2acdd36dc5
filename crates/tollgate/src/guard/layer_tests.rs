//! The layers before the store, over a store that counts its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::decision::Source;
use tollgate_core::plan::answer::AnsweredBy;
use tollgate_core::plan::layers::LayerView;
use tollgate_core::rules::Request;
use tollgate_core::{
    Attributes, Exactness, Item, Keyspace, Layers, Limit, Operation, Outcome, Plan, PlanDecision, Span,
    Store, StoreError, Subject, Time, Token,
};

use super::{Guarded, LayerCounts, MonotonicClock};
use crate::clock::{Clock, ManualClock};
use crate::engine::{Engine, Setup, layer_sentence, poll_ready};
use crate::store::memory::MemoryStore;

const START: Time = Time::from_us(7_200_000_000);

struct CountedStore {
    store: MemoryStore<ManualClock>,
    calls: Arc<AtomicU64>,
}

impl Store for CountedStore {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.apply_once(plan)
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        drop(self.store.apply_once(plan));
    }

    fn now(&self) -> Time {
        self.store.now()
    }
}

struct Bench {
    guarded: Guarded<CountedStore>,
    calls: Arc<AtomicU64>,
    /// Both the store's clock and the monotonic one.
    clock: ManualClock,
    keyspaces: Vec<Keyspace>,
}

impl Bench {
    fn new() -> Bench {
        let (clock, calls, base) = (ManualClock::at(START), Arc::<AtomicU64>::default(), Instant::now());
        let store = CountedStore { store: MemoryStore::with_clock(clock.clone()), calls: Arc::clone(&calls) };
        let shown = clock.clone();
        let monotonic = MonotonicClock::simulated(move || {
            base + Duration::from_micros(shown.now().us().saturating_sub(START.us()))
        });
        let guarded = Guarded::new(store, Arc::default()).with_refusal_memory(true).with_clock(monotonic);
        let keyspaces = (0..3).map(|rule| Keyspace::new("test", &format!("rule-{rule}")).unwrap()).collect();
        Bench { guarded, calls, clock, keyspaces }
    }

    fn item(&self, rule: usize, limit: Limit, cost: u64) -> Item<'_> {
        let key = self.keyspaces[rule].key(Subject::from_u128(7));
        Item { layers: Layers::default(), ..Item::new(key, limit, Operation::charge(cost)) }
    }

    fn decide(&self, plan: &Plan<'_>) -> PlanDecision {
        PlanDecision::new(plan, &poll_ready(self.guarded.apply(plan)).unwrap()).unwrap()
    }

    fn check<'r>(&self, items: impl IntoIterator<Item = Item<'r>>) -> PlanDecision {
        let mut plan = Plan::new();
        items.into_iter().for_each(|item| plan.push(item).unwrap());
        self.decide(&plan)
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Whether the store is asked by the next check of these items.
    fn asks<'r>(&self, items: impl IntoIterator<Item = Item<'r>>) -> bool {
        let before = self.calls();
        self.check(items);
        self.calls() > before
    }
}

fn window(limit: u64, period: Span) -> Limit {
    Limit::FixedWindow(FixedWindow::new(limit, period).unwrap())
}

fn per_hour(limit: u64) -> Limit {
    window(limit, Span::from_secs(3_600))
}

#[test]
fn a_refusal_is_repeated_for_a_second_and_not_longer() {
    let bench = Bench::new();
    let item = || [bench.item(0, per_hour(1), 1)];
    assert!(bench.check(item()).allowed);
    let refused = bench.check(item());
    assert_eq!((bench.calls(), refused.source), (2, Source::Store));
    bench.clock.advance(Duration::from_millis(400));
    let repeated = bench.check(item());
    assert_eq!((bench.calls(), repeated.allowed, repeated.source), (2, false, Source::Memory));
    assert_eq!((repeated.rules[0].by, repeated.exactness), (AnsweredBy::Memory, Exactness::Conservative));
    let wait = |decision: &PlanDecision| decision.headline().unwrap().numbers.unwrap().reset_after_ms;
    assert_eq!(wait(&refused) - wait(&repeated), 400, "the wait goes on");
    bench.clock.advance(Duration::from_micros(599_999));
    assert!(!bench.asks(item()));
    bench.clock.advance(Duration::from_micros(1));
    assert!(bench.asks(item()), "a second after the question was sent");
    assert_eq!(bench.guarded.layer_counts(), LayerCounts { memory: 2, ..LayerCounts::default() });
}

#[test]
fn a_refusal_is_not_repeated_at_the_instant_it_ends() {
    let bench = Bench::new();
    let item = || [bench.item(0, window(1, Span::from_ms(300)), 1)];
    assert!(bench.check(item()).allowed);
    assert!(!bench.check(item()).allowed);
    bench.clock.advance(Duration::from_micros(299_999));
    assert!(!bench.asks(item()));
    bench.clock.advance(Duration::from_micros(1));
    assert!(bench.check(item()).allowed, "the window is over");
}

#[test]
fn a_lower_cost_and_other_numbers_ask_the_store() {
    let bench = Bench::new();
    let cost = |cost| [bench.item(0, per_hour(5), cost)];
    assert!(bench.check(cost(3)).allowed);
    assert!(!bench.check(cost(3)).allowed);
    assert!(!bench.asks(cost(4)));
    assert!(bench.check(cost(2)).allowed, "it fits");
    assert!(!bench.asks(cost(3)));
    assert!(bench.check([bench.item(0, per_hour(9), 3)]).allowed, "another limit is another question");
}

#[test]
fn what_gives_back_drops_the_refusal() {
    let bench = Bench::new();
    let item = || [bench.item(0, per_hour(1), 1)];
    for operation in [Operation::Credit { cost: 1 }, Operation::Reset { receipt_life: Span::ZERO }] {
        assert!(bench.check(item()).allowed, "before {operation:?}");
        assert!(!bench.check(item()).allowed);
        let freeing = Plan::of(Item { operation, ..bench.item(0, per_hour(1), 1) }).unwrap();
        poll_ready(bench.guarded.apply(&freeing)).unwrap();
    }
    assert!(bench.check(item()).allowed);
    assert!(!bench.check(item()).allowed);
    let freeing =
        Plan::of(Item { operation: Operation::Credit { cost: 1 }, ..bench.item(0, per_hour(1), 1) }).unwrap();
    bench.guarded.apply_unawaited(&freeing);
    bench.clock.advance(Duration::from_micros(1));
    assert!(bench.check(item()).allowed, "a credit without a waiting caller drops it too");
}

#[test]
fn the_remembered_rule_is_the_headline_and_others_have_no_numbers() {
    let bench = Bench::new();
    let items = || [bench.item(0, per_hour(9), 1), bench.item(1, per_hour(1), 1)];
    assert!(bench.check(items()).allowed);
    assert!(!bench.check(items()).allowed);
    let repeated = bench.check(items());
    assert_eq!((repeated.headline, repeated.source), (Some(1), Source::Memory));
    assert_eq!((repeated.rules[0].by, repeated.rules[0].numbers), (AnsweredBy::NotAsked, None));
    let alone = bench.check([bench.item(0, per_hour(9), 1)]);
    assert_eq!(alone.rules[0].numbers.unwrap().remaining, 7, "a repeated refusal charges nothing");
}

#[test]
fn some_plans_ask_the_store_every_time() {
    let leases = Limit::Concurrency(Concurrency::new(1, Span::from_secs(60)).unwrap());
    let full = per_hour(1);
    type Change = fn(Item<'_>) -> Item<'_>;
    let asked_always: [(&str, Change); 3] = [
        ("a shadow rule", |item| Item { blocking: false, ..item }),
        ("a postpaid rule", |item| Item { layers: Layers { postpaid: true, ..item.layers }, ..item }),
        ("a peek", |item| Item { operation: Operation::Peek { cost: 1 }, ..item }),
    ];
    for (name, change) in asked_always {
        let bench = Bench::new();
        for _ in 0..3 {
            bench.check([bench.item(0, full, 1)]);
        }
        assert!(!bench.asks([bench.item(0, full, 1)]));
        assert!(bench.asks([bench.item(0, full, 1), change(bench.item(1, full, 1))]), "{name}");
    }
    let bench = Bench::new();
    let lease = |token| {
        let operation = Operation::Charge { cost: 1, token: Token(token) };
        [Item { operation, ..bench.item(0, leases, 1) }]
    };
    assert!((1..5).all(|token| bench.asks(lease(token))), "a lease");
    let off = || {
        let item = bench.item(1, full, 1);
        [Item { layers: Layers { refusal_memory: false, ..item.layers }, ..item }]
    };
    assert!((0..4).all(|_| bench.asks(off())), "`refusal_memory: off`");
    let with_id = |number| {
        let mut plan = Plan::of(bench.item(1, full, 1)).unwrap();
        plan.set_request_id(Subject::from_u128(number), Span::from_secs(60), 0);
        plan
    };
    let before = bench.calls();
    (0..4).for_each(|number| drop(bench.decide(&with_id(number))));
    assert_eq!(bench.calls() - before, 4, "a request id");
}

#[test]
fn more_refusals_than_the_table_holds_are_asked_again_and_admit_nothing() {
    let bench = Bench::new();
    let item = |subject| Item {
        key: bench.keyspaces[0].key(Subject::from_u128(subject)),
        ..bench.item(0, per_hour(1), 1)
    };
    let mut admitted = 0;
    for _ in 0..3 {
        admitted += (0..20_000).filter(|&subject| bench.check([item(subject)]).allowed).count();
    }
    assert_eq!(admitted, 20_000);
    assert!(bench.guarded.layer_counts().memory < 20_000);
}

#[test]
fn the_prefilter_counts_attempts_and_refuses_above_its_share() {
    let bench = Bench::new();
    let item = || {
        let item = bench.item(0, per_hour(2), 1);
        [Item { layers: Layers { prefilter_percent: 300, refusal_memory: false, ..item.layers }, ..item }]
    };
    assert_eq!((0..10).filter(|_| bench.check(item()).allowed).count(), 2);
    assert_eq!(bench.calls(), 6, "three times the limit");
    let refused = bench.check(item());
    assert_eq!((refused.source, refused.exactness), (Source::Prefilter, Exactness::Conservative));
    assert_eq!(refused.headline().unwrap().numbers.unwrap().limit, 2, "the rule's own limit");
    bench.clock.advance(Duration::from_secs(3_600));
    assert!(bench.check(item()).allowed);
    assert_eq!(bench.guarded.layer_counts().prefilter, 5);
}

#[test]
fn a_prefilter_counts_attempts_that_another_rule_refused() {
    let bench = Bench::new();
    let filtered = || {
        let item = bench.item(0, per_hour(2), 1);
        Item { layers: Layers { prefilter_percent: 200, ..item.layers }, ..item }
    };
    for _ in 0..4 {
        bench.check([filtered(), bench.item(1, per_hour(1), 1)]);
    }
    assert!(!bench.check([filtered()]).allowed, "four attempts, of which the store charged one");
}

/// What each layer would do under each of two rules.
fn explained(engine: &Engine<Guarded<CountedStore>>) -> [Vec<LayerView>; 2] {
    let attributes = Attributes::from([("user", "u")]);
    let explanation = poll_ready(engine.explain(Request::new(&attributes)));
    let layers = |id| explanation.rule(id).unwrap().layers.clone();
    [layers("calls"), layers("hot")]
}

#[test]
fn an_explanation_says_what_each_layer_would_do() {
    const RULES: &str = "
version: 1
rules:
  - { id: calls, per: user, limit: { fixed-window: 40/h }, prefilter: 200% }
  - { id: hot, per: user, limit: { fixed-window: 100000/h }, slices: { hold: 250ms } }
";
    let Bench { guarded, clock, .. } = Bench::new();
    let engine = Setup::default().rules_yaml(RULES).build(guarded).unwrap();
    let attributes = Attributes::from([("user", "u")]);
    let check = || poll_ready(engine.check(Request::new(&attributes))).unwrap();
    let prefilter = |remaining, refuses| LayerView::Prefilter { limit: 80, remaining, refuses };
    let [calls, hot] = explained(&engine);
    assert_eq!(calls, [prefilter(79, false), LayerView::Memory { refuses_for: None }]);
    let none_held = LayerView::Slices { held: 0, pays: false };
    assert_eq!(hot, [LayerView::Memory { refuses_for: None }, none_held]);

    for _ in 0..40 {
        assert!(check().allowed());
    }
    let [calls, hot] = explained(&engine);
    assert_eq!(calls[0], prefilter(39, false), "an explanation is no attempt");
    let &[_, LayerView::Slices { held, pays: true }] = hot.as_slice() else { panic!("{hot:?}") };
    assert!(held > 0);

    assert!(!check().allowed());
    clock.advance(Duration::from_millis(100));
    let [calls, _] = explained(&engine);
    assert_eq!(calls[1], LayerView::Memory { refuses_for: Some(Span::from_ms(900)) });
    (0..39).for_each(|_| assert!(!check().allowed()));
    let [calls, _] = explained(&engine);
    assert_eq!(calls[0], prefilter(0, true));
    let sentences: Vec<String> = calls.iter().map(layer_sentence).collect();
    assert_eq!(
        sentences[0],
        "prefilter: refuses without asking the store; 0 of 80 attempts are left on this server"
    );
    assert_eq!(check().source(), Source::Prefilter);
}
