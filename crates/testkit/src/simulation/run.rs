//! One run: checks at random instants on random servers, while faults come and go.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tollgate::engine::{Engine, Setup};
use tollgate_core::decision::Source;
use tollgate_core::plan::answer::AnsweredBy;
use tollgate_core::rules::Request;
use tollgate_core::{Attributes, Span, Store, SubjectHasher, Time};

use super::executor::{Executor, VirtualTime};
use super::ledger::Sliced;
use super::network::{DEADLINE, Faults, Link, Network, REPEATED_MAX, ServerState};
use super::rules::{self, ACTIONS, HOLD_MAX, HOT_ACTIONS, SimulatedRule};
use super::standby::Standby;
use super::{Maintaining, Report};
use crate::random::Random;

/// The start of a calendar hour. A run begins shortly before it.
const HOUR_START: Time = Time::from_us(1_700_002_800_000_000);
/// The longest time from the start of a run to that hour, in microseconds. Runs last about this long.
const BEFORE_HOUR_US: usize = 40_000_000;
/// Events with faults, and then without.
const STEPS: usize = 500;
const QUIET_STEPS: usize = 60;
const USERS: [&str; 2] = ["ann", "bob"];
/// The longest pause between two events, in microseconds.
const PAUSE_US: usize = 60_000;
/// The largest difference or step of a clock, in microseconds.
const CLOCK_US: usize = 1_500_000;
/// The most checks of a hot key in a row, and the pause between two, in microseconds.
const BURST: usize = 150;
const BURST_PAUSE_US: u64 = 200;

pub(super) fn run<S: Store + 'static>(
    seed: u64,
    guard: &impl Fn(Link, u32) -> S,
    maintain: &dyn Fn(Engine<S>) -> Maintaining,
) -> Result<Report, String> {
    let mut simulation = Simulation::new(seed, guard, maintain)?;
    for _ in 0..STEPS {
        simulation.step(true)?;
    }
    simulation.end_faults();
    for _ in 0..QUIET_STEPS {
        simulation.step(false)?;
    }
    simulation.finish()
}

struct Simulation<'g, S, G> {
    guard: &'g G,
    maintain: &'g dyn Fn(Engine<S>) -> Maintaining,
    random: Random,
    time: VirtualTime,
    executor: Executor,
    network: Network,
    rules: Arc<Vec<SimulatedRule>>,
    engines: Vec<Engine<S>>,
    /// Whether all clocks show the same time in this run.
    is_one_time: bool,
    results: Rc<RefCell<Results>>,
}

#[derive(Default)]
struct Results {
    report: Report,
    problem: Option<String>,
}

impl<'g, S: Store + 'static, G: Fn(Link, u32) -> S> Simulation<'g, S, G> {
    fn new(seed: u64, guard: &'g G, maintain: &'g dyn Fn(Engine<S>) -> Maintaining) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let rules = Arc::new(rules::draw(&mut random));
        let count = 2 + random.below(3);
        let is_one_time = random.below(2) == 0;
        let before_us = random.below(BEFORE_HOUR_US) as u64;
        let time = VirtualTime::starting_at(HOUR_START.minus(Span::from_us(before_us)));
        let servers = (0..count).map(|_| ServerState {
            clock_offset_us: if is_one_time { 0 } else { clock_step(&mut random) },
            standby: Standby::new(&rules, count as u64),
            is_cut_off: false,
            restarts: 0,
            refusals: Vec::new(),
            unanswered: None,
            answered: None,
        });
        let servers = servers.collect();
        let network = Network::new(time.clone(), Random::new(random.bits()), servers);
        let executor = Executor::new(time.clone());
        let mut simulation = Simulation {
            guard,
            maintain,
            random,
            time,
            executor,
            network,
            rules,
            engines: Vec::new(),
            is_one_time,
            results: Rc::default(),
        };
        for server in 0..count {
            let engine = simulation.start(server, count)?;
            simulation.engines.push(engine);
        }
        Ok(simulation)
    }

    /// Starts the limiter of a server.
    fn start(&self, server: usize, servers: usize) -> Result<Engine<S>, String> {
        let store = (self.guard)(self.network.link(server), servers as u32);
        Setup::default()
            .rules_yaml(rules::yaml(&self.rules))
            .hash_key(SubjectHasher::new([7; 32]))
            .build(store)
            .map_err(|error| error.to_string())
    }

    /// Waits a moment, then sends a check or changes a fault.
    fn step(&mut self, with_faults: bool) -> Result<(), String> {
        let pause = Span::from_us(self.random.below(PAUSE_US) as u64);
        self.executor.run_until(self.time.now().plus(pause));
        if with_faults && self.random.below(6) == 0 {
            self.change_faults()?;
        }
        if self.random.below(4) == 0 {
            let server = self.random.below(self.engines.len());
            self.maintain(server);
        }
        if self.random.below(8) == 0 {
            self.burst(!with_faults);
        } else {
            let server = self.random.below(self.engines.len());
            let action = ACTIONS[self.random.below(ACTIONS.len())];
            let user = USERS[self.random.below(USERS.len())];
            let cost = [1, 1, 1, 2, 3][self.random.below(5)];
            self.send(server, action, user, cost, !with_faults);
        }
        self.results.borrow_mut().problem.take().map_or(Ok(()), Err)
    }

    /// Lets a server do what is due.
    fn maintain(&mut self, server: usize) {
        self.executor.spawn((self.maintain)(self.engines[server].clone()));
    }

    /// Sends many checks of a hot key to one server, few of one, or many in a row.
    fn burst(&mut self, must_be_exact: bool) {
        let server = self.random.below(self.engines.len());
        let action = HOT_ACTIONS[self.random.below(HOT_ACTIONS.len())];
        let checks = [BURST / 8, BURST][self.random.below(2)];
        for _ in 0..1 + self.random.below(checks) {
            self.send(server, action, USERS[0], 1, must_be_exact);
            self.executor.run_until(self.time.now().plus(Span::from_us(BURST_PAUSE_US)));
        }
    }

    fn send(
        &mut self,
        server: usize,
        action: &'static str,
        user: &'static str,
        cost: u64,
        must_be_exact: bool,
    ) {
        let engine = self.engines[server].clone();
        let (network, results, sent) = (self.network.clone(), Rc::clone(&self.results), self.time.now());
        let process = network.lock().servers[server].restarts;
        self.executor.spawn(async move {
            let attributes = Attributes::from([("action", action), ("user", user)]);
            let decided = engine.check(Request::new(&attributes).cost(cost)).await;
            let mut inner = network.lock();
            if inner.servers[server].restarts != process {
                // The process that was asked has crashed.
                return;
            }
            let unanswered = inner.servers[server].unanswered.take();
            let answered = inner.servers[server].answered.take();
            let mut results = results.borrow_mut();
            results.report.checks += 1;
            let took = network.time.now().us() - sent.us();
            let what = || format!("{action} of {user}, cost {cost}, on server {server}");
            let mut expect = |holds: bool, problem: String| {
                if !holds {
                    results.problem.get_or_insert(problem);
                }
            };
            // A check whose larger charge is refused is sent again with its own cost.
            let calls = if HOT_ACTIONS.contains(&action) { 2 } else { 1 };
            expect(took <= calls * DEADLINE.us(), format!("I18: {} took {took} us", what()));
            let decision = match decided {
                Ok(decision) => decision,
                Err(error) => return expect(false, format!("{}: {error}", what())),
            };
            let recalled = decision.rules().filter(|rule| rule.outcome().by == AnsweredBy::Memory);
            let recalled: Vec<_> = recalled.map(|rule| rule.id().to_owned()).collect();
            if !recalled.is_empty() {
                let refusals = &inner.servers[server].refusals;
                let is_known = |id: &String| {
                    let mut of_rule = refusals.iter().filter(|refusal| refusal.rule == *id);
                    of_rule.any(|refusal| refusal.cost <= cost && sent < refusal.until)
                };
                let is_right = recalled.iter().all(is_known) && !decision.allowed();
                expect(is_right, format!("{}: remembered a refusal past its time or cost", what()));
                results.report.by_memory += 1;
                return;
            }
            let Some(unanswered) = unanswered else {
                let source = decision.source();
                expect(matches!(source, Source::Store | Source::Slice), format!("{}: by {source:?}", what()));
                for rule in decision.rules().filter(|_| HOT_ACTIONS.contains(&action) && decision.allowed()) {
                    let instant = match rule.outcome().by {
                        AnsweredBy::Slice => Some(inner.store_instant(network.time.now())),
                        _ => answered,
                    };
                    if let Some(instant) = instant {
                        let rule = rule.id().to_owned();
                        inner.ledger.note_sliced(Sliced { rule, user, cost, instant });
                    }
                }
                let by_slice = source == Source::Slice;
                *(if by_slice { &mut results.report.by_slice } else { &mut results.report.by_store }) += 1;
                return;
            };
            expect(!must_be_exact, format!("I21: {} has no store after the faults", what()));
            expect(decision.source() == Source::Fallback, format!("{}: not by policy", what()));
            let is_allowed = decision.allowed();
            let expected = if unanswered.is_allowed { "allowed" } else { "refused" };
            expect(is_allowed == unanswered.is_allowed, format!("I14: {} must be {expected}", what()));
            if is_allowed {
                results.report.allowed_by_policy += 1;
                inner.ledger.note_local(unanswered.charges);
            } else {
                results.report.refused_by_policy += 1;
            }
        });
    }

    fn change_faults(&mut self) -> Result<(), String> {
        let server = self.random.below(self.engines.len());
        let mut inner = self.network.lock();
        match self.random.below(16) {
            0..4 => inner.faults.down = !inner.faults.down,
            4 => inner.servers[server].is_cut_off = !inner.servers[server].is_cut_off,
            5 | 6 => inner.faults.lost_replies = [0, 10, 60][self.random.below(3)],
            7 | 8 => inner.faults.delay_us = [0, 2_000, 20_000, 60_000][self.random.below(4)],
            9 => inner.faults.rejects_credentials = self.random.below(2) == 0,
            10 | 11 => inner.replicate(),
            12 => {
                let step = if self.is_one_time { 0 } else { clock_step(&mut self.random) };
                inner.fail_over(step);
            }
            13 if !self.is_one_time => {
                inner.seen.clock_steps += 1;
                inner.servers[server].clock_offset_us += clock_step(&mut self.random);
            }
            _ => {
                let servers = inner.servers.len();
                inner.seen.restarts += 1;
                inner.servers[server].restarts += 1;
                inner.servers[server].refusals.clear();
                inner.servers[server].answered = None;
                inner.servers[server].standby = Standby::new(&self.rules, servers as u64);
                drop(inner);
                self.engines[server] = self.start(server, servers)?;
            }
        }
        Ok(())
    }

    fn end_faults(&mut self) {
        let mut inner = self.network.lock();
        inner.faults = Faults::default();
        inner.servers.iter_mut().for_each(|server| server.is_cut_off = false);
        drop(inner);
        // Checks that are still in flight may be lost. Those of hot keys may take two calls.
        self.executor.run_until(self.time.now().plus(DEADLINE).plus(DEADLINE));
    }

    /// Compares what the servers see, then checks the sums.
    fn finish(mut self) -> Result<Report, String> {
        // Until then a server may repeat a refusal, or hold a part of a limit.
        self.executor.run_until(self.time.now().plus(REPEATED_MAX).plus(HOLD_MAX));
        for server in 0..self.engines.len() {
            self.maintain(server);
        }
        self.executor.run_until(self.time.now().plus(DEADLINE));
        if self.executor.running() > 0 {
            return Err(format!("I18: {} checks never ended", self.executor.running()));
        }
        // The first call after the end of a part gives it back.
        for engine in self.engines.clone() {
            self.peek(engine, HOT_ACTIONS[0], USERS[0])?;
        }
        for action in ACTIONS.into_iter().chain(HOT_ACTIONS) {
            for user in USERS {
                let seen = self.engines.clone().into_iter().map(|engine| self.peek(engine, action, user));
                let seen = seen.collect::<Result<Vec<_>, _>>()?;
                if seen.iter().any(|one| *one != seen[0]) {
                    return Err(format!("I21: servers disagree about {action} of {user}: {seen:?}"));
                }
            }
        }
        let inner = self.network.lock();
        let starts: Vec<u32> = inner.servers.iter().map(|server| server.restarts).collect();
        let one_time = self.is_one_time.then(|| self.time.now());
        inner.ledger.check(&self.rules, one_time, &starts)?;
        let report = Report { posted_units: inner.ledger.posted_units(), ..self.results.borrow().report };
        Ok(Report { runs: 1, seen: inner.seen, ..report })
    }

    /// What a server says that a user has left. The time stands still.
    fn peek(&self, engine: Engine<S>, action: &'static str, user: &'static str) -> Result<Left, String> {
        let found = Rc::new(RefCell::new(None));
        let mut executor = Executor::new(self.time.clone());
        let into = Rc::clone(&found);
        executor.spawn(async move {
            let attributes = Attributes::from([("action", action), ("user", user)]);
            let peeked = engine.peek(Request::new(&attributes)).await;
            *into.borrow_mut() = peeked.ok().map(|decision| {
                decision.rules().map(|rule| (rule.id().to_owned(), rule.remaining())).collect()
            });
        });
        executor.run_until(self.time.now());
        found.take().ok_or_else(|| format!("I21: no answer to {action} of {user} after the faults"))
    }
}

/// What is left under each rule.
type Left = Vec<(String, Option<u64>)>;

fn clock_step(random: &mut Random) -> i64 {
    random.below(2 * CLOCK_US) as i64 - CLOCK_US as i64
}
