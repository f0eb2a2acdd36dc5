//! The world of the simulation: one account, one gate, one database, and servers whose steps come in any order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tollgate::ledger::database::KnownAccount;
use tollgate::ledger::database::ledger::{
    Account, Change, Detail, Entry, Event, HoldState, Id, Keys, Kind, Record, Request, Settings, Subject,
    post,
};
use tollgate::ledger::restore_of;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::stamped::{self, Adjust, Extra, Restore, Revision};
use tollgate_core::time::calendar::Periods;
use tollgate_core::{
    Decline, Item, Keyspace, Limit, Mark, Operation, Span, SubjectHasher, Time, Token, Verdict,
};

use super::books::Books;
use super::model::{Ask, Call, Look, Name, OpenWriter, Reply, Server, Sql, Stage};
use super::{Dice, Wrong};

const SERVERS: usize = 3;
const LIMIT: i64 = 60;
const HORIZON_US: i64 = 60_000;
const DEADLINE_US: i64 = 15_000;
/// How long a reservation holds its units.
const HOLD_US: i64 = 40_000;
/// A server that the database has not answered for this long charges nothing.
const QUEUE_MAX_US: i64 = 40_000;
/// Others ignore it after this much more.
const SILENT_MORE_US: i64 = 20_000;
const START_US: i64 = 1_000_000;
const END_US: i64 = 1_000_000_000_000;
const ADMINISTRATION: Id = Id([255; 16]);
const EXPIRY: Id = Id([254; 16]);

pub(super) struct World {
    dice: Dice,
    wrong: Wrong,
    prints: bool,
    /// In every second run servers are cut off for so long that they stop by themselves.
    longest_cut_us: u64,
    now_us: i64,
    keyspace: Keyspace,
    limit: Limit,
    account: Account,
    gate: tollgate_core::Account,
    node: u64,
    /// An old copy of the gate, as a dump or a replica has it.
    copy: tollgate_core::Account,
    /// What the gate remembers under request ids and receipts, and until when.
    remembered: BTreeMap<(Ask, u64), (i64, Reply)>,
    servers: Vec<Server>,
    /// Calls without a waiting caller, which still reach the gate.
    late: Vec<Call>,
    sql: Sql,
    backup: Option<Sql>,
    looks: VecDeque<Look>,
    /// What the reconciler has last seen of each writer, and since when.
    watched: BTreeMap<Id, (i64, i64)>,
    /// Changes on their way to the gate.
    extras: Vec<Extra>,
    granted_max: i64,
    numbers: u64,
    /// Request ids in use: the name, its cost and when it was first sent.
    used_ids: Vec<(u64, i64, i64)>,
    /// The id that each name has on the wire. An id is used again long after the store has forgotten it.
    wire_ids: BTreeMap<u64, u64>,
    /// Charges that can be refunded.
    receipts: Vec<(Name, i64)>,
    /// Open reservations: token and units.
    open_holds: Vec<(Name, i64)>,
    books: Books,
    /// What the promise permits above the limit, by the entry or call that permits it.
    permitted: BTreeMap<(Id, i64), i64>,
    permitted_in_flight: BTreeMap<Name, i64>,
    permitted_more: i64,
    was_set_back: bool,
    pub(super) losses: u64,
    pub(super) late_settlements: u64,
}

impl World {
    pub(super) fn new(seed: u64, wrong: Wrong, prints: bool) -> World {
        let starts = [0, START_US as u64, END_US as u64, 2 * END_US as u64].map(Time::from_us);
        let periods = Periods::new(starts).expect("they ascend");
        let quota = Quota::new(LIMIT as u64, 0, QuotaPeriod::Calendar(periods)).expect("a limit");
        let subject = Subject { rule: Arc::from("tokens"), id: Id([7; 16]) };
        let mut world = World {
            dice: Dice(seed),
            wrong,
            prints,
            longest_cut_us: if seed.is_multiple_of(2) { 400_000 } else { 30_000 },
            now_us: START_US + 1,
            keyspace: Keyspace::new("test", "tokens").expect("a name"),
            limit: Limit::Quota(quota),
            account: Account { subject, period_us: START_US },
            gate: tollgate_core::Account::default(),
            node: 1,
            copy: tollgate_core::Account::default(),
            remembered: BTreeMap::new(),
            servers: Vec::new(),
            late: Vec::new(),
            sql: Sql::default(),
            backup: None,
            looks: VecDeque::new(),
            watched: BTreeMap::new(),
            extras: Vec::new(),
            granted_max: LIMIT,
            numbers: 0,
            used_ids: Vec::new(),
            wire_ids: BTreeMap::new(),
            receipts: Vec::new(),
            open_holds: Vec::new(),
            books: Books::default(),
            permitted: BTreeMap::new(),
            permitted_in_flight: BTreeMap::new(),
            permitted_more: 0,
            was_set_back: false,
            losses: 0,
            late_settlements: 0,
        };
        for _ in 0..SERVERS {
            let server = world.new_server();
            world.servers.push(server);
        }
        world
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn new_server(&mut self) -> Server {
        let writer = Id(u128::from(self.number()).to_be_bytes());
        self.register(writer);
        let (cut_until_us, confirmed_us) = (0, self.now_us);
        let (journal, kept, calls) = (Vec::new(), Vec::new(), Vec::new());
        Server { writer, journal, cursor: 0, kept, calls, cut_until_us, confirmed_us }
    }

    fn register(&mut self, writer: Id) {
        self.sql.cursors.entry(writer).or_insert(0);
        let last_seen_us = self.now_us;
        self.sql.open.entry(writer).or_insert(OpenWriter { clean_at_us: 0, last_seen_us });
    }

    fn print(&self, what: impl FnOnce() -> String) {
        if self.prints {
            let posted = self.posted();
            println!(
                "{}: {}; the ledger has {posted}, granted are {}",
                self.now_us,
                what(),
                self.books.granted()
            );
        }
    }

    fn posted(&self) -> i64 {
        self.sql.rows.balances.get(&self.account).map_or(0, |balance| balance.posted)
    }

    pub(super) fn step(&mut self) {
        self.now_us += self.dice.below(1_500) as i64;
        let server = self.dice.index(SERVERS);
        match self.dice.below(100) {
            0..=16 => self.call(server),
            17..=58 => (0..SERVERS).for_each(|server| self.advance(server)),
            59..=72 => self.ship(server),
            73..=77 => self.look(),
            78..=82 => self.compare(),
            83..=85 => self.deliver_late(),
            86 => self.grant(),
            87 => self.expire(),
            88..=90 => self.deliver_extra(),
            91 => self.copy = self.gate.clone(),
            92 if self.dice.one_in(6) => self.lose(tollgate_core::Account::default()),
            93 if self.dice.one_in(6) => {
                let copy = self.copy.clone();
                self.lose(copy);
            }
            94 if self.dice.one_in(2) => self.kill(server),
            94 => {
                let longest_us = self.longest_cut_us;
                self.servers[server].cut_until_us = self.now_us + self.dice.below(longest_us) as i64;
            }
            95 if self.dice.one_in(3) => self.backup = Some(self.sql.clone()),
            96 if self.dice.one_in(3) => self.set_back(),
            _ => self.give_up(server),
        }
    }

    /// Applies an operation to the gate.
    fn apply(&mut self, operation: Operation) -> (Verdict, Revision, Mark) {
        let now = Time::from_us(self.now_us as u64);
        let hold = self.limit.hold_token(&operation).and_then(|token| self.gate.holds.get(&token));
        let step =
            stamped::decide(&self.limit, self.node, self.gate.state.as_ref(), hold.into(), now, &operation);
        if let Some(write) = step.step.write {
            self.gate.commit(write);
        }
        let answer = step.step.answer;
        self.print(|| format!("{operation:?}: {:?} {:?}", answer.verdict, step.revision));
        (answer.verdict, step.revision, answer.mark)
    }

    /// The gate handles a call, once under a request id. `None` if it has no state to trust.
    fn handle(&mut self, call: &Call) -> Option<Reply> {
        let remembers = match (call.ask, call.name) {
            (Ask::Charge, Name::Request(id)) => Some((Ask::Charge, self.wire_ids[&id])),
            (Ask::Refund, Name::Once(receipt)) => Some((Ask::Refund, receipt)),
            _ => None,
        };
        if let Some((until_us, reply)) = remembers.and_then(|key| self.remembered.get(&key))
            && self.now_us < *until_us
        {
            return Some(Reply { is_replay: true, ..*reply });
        }
        let (token, cost) = (token_of(call.name), call.cost as u64);
        let operation = match call.ask {
            Ask::Charge => Operation::charge(cost),
            Ask::Reserve => Operation::Reserve { cost, token, hold: Span::from_us(HOLD_US as u64) },
            Ask::Settle => Operation::Settle { actual: cost, token },
            Ask::Cancel => Operation::Cancel { token },
            Ask::Refund => Operation::refund(Mark::Window { start: Time::from_us(START_US as u64) }, cost),
        };
        let (verdict, revision, mark) = self.apply(operation);
        let (is_done, amount) = match verdict {
            Verdict::Declined(Decline::Unverified) => return None,
            Verdict::Admitted { .. } => (true, call.cost),
            Verdict::Done { amount } | Verdict::BookedLate { amount } => (true, amount as i64),
            _ => (false, 0),
        };
        let is_late = matches!(verdict, Verdict::BookedLate { .. });
        self.late_settlements += u64::from(is_late);
        let until_us = if let Mark::Held { until, .. } = mark { until.us() as i64 } else { self.now_us };
        if is_late || call.ask == Ask::Refund {
            // A late settlement may pass the limit. Units given back can be admitted again, recorded or not.
            self.permitted_more += amount;
        }
        let reply =
            Reply { is_done, amount, is_late, until_us, at_us: self.now_us, revision, is_replay: false };
        if let (Some(key), true) = (remembers, is_done) {
            let receipt_life_us = if call.ask == Ask::Refund { 20 * HORIZON_US } else { HORIZON_US };
            self.remembered.insert(key, (self.now_us + receipt_life_us, reply));
        }
        Some(reply)
    }

    fn is_cut(&self, server: usize) -> bool {
        self.now_us < self.servers[server].cut_until_us
    }

    /// Whether the server does not charge, because the database may have forgotten it.
    fn is_fenced(&self, server: usize) -> bool {
        let silent_us = self.now_us - self.servers[server].confirmed_us;
        silent_us >= QUEUE_MAX_US && self.wrong != Wrong::SelfFencingOff
    }

    fn call(&mut self, server: usize) {
        if self.is_fenced(server) {
            return;
        }
        let (name, ask, cost) = match self.dice.below(16) {
            0 | 1 if !self.receipts.is_empty() => {
                let index = self.dice.index(self.receipts.len());
                let (name, cost) = self.receipts[index];
                (name, Ask::Refund, cost)
            }
            2..=4 if !self.open_holds.is_empty() => {
                let index = self.dice.index(self.open_holds.len());
                let (name, cost) = self.open_holds[index];
                // Each reservation ends in one way, and often several times.
                let Name::Hold(token) = name else { return };
                match token % 4 {
                    0 => (name, Ask::Cancel, cost),
                    _ => (name, Ask::Settle, 1 + cost / 2),
                }
            }
            5..=7 => (Name::Hold(self.number()), Ask::Reserve, 1 + self.dice.below(20) as i64),
            8..=12 => self.charge_with_id(),
            _ => (Name::Once(self.number()), Ask::Charge, 1 + self.dice.below(20) as i64),
        };
        let call = Call { name, ask, cost, sent_us: self.now_us, stage: Stage::Sent };
        self.servers[server].calls.push(call);
    }

    fn charge_with_id(&mut self) -> (Name, Ask, i64) {
        let (now_us, fresh) = (self.now_us, self.number());
        let is_open = |(_, _, at_us): &&(u64, i64, i64)| now_us - at_us < HORIZON_US / 4;
        let open: Vec<_> = self.used_ids.iter().filter(is_open).copied().collect();
        if !open.is_empty() && self.dice.one_in(2) {
            let (id, cost, _) = open[self.dice.index(open.len())];
            return (Name::Request(id), Ask::Charge, cost);
        }
        // The ledger knows only the last use of an id, so no answer of an earlier one may come after it.
        let is_forgotten = |(_, _, at_us): &(u64, i64, i64)| now_us - at_us > 3 * HORIZON_US;
        let old = self.used_ids.iter().position(is_forgotten);
        let (wire, cost) =
            match old.filter(|index| self.backup.is_none() && self.is_posted(self.used_ids[*index].0)) {
                Some(index) => {
                    let (old, cost, _) = self.used_ids.swap_remove(index);
                    (self.wire_ids[&old], cost)
                }
                None => (fresh, 1 + self.dice.below(20) as i64),
            };
        self.wire_ids.insert(fresh, wire);
        self.used_ids.push((fresh, cost, now_us));
        (Name::Request(fresh), Ask::Charge, cost)
    }

    /// Whether all answers under the request id of this name are in the ledger.
    fn is_posted(&self, name: u64) -> bool {
        let id = request_id(self.wire_ids[&name]);
        let journals = self.servers.iter().flat_map(|server| {
            let own = std::iter::once((server.writer, &server.journal));
            own.chain(server.kept.iter().map(|(writer, journal)| (*writer, journal)))
        });
        journals.into_iter().all(|(writer, journal)| {
            let after = self.sql.cursors.get(&writer).copied().unwrap_or(0);
            let unposted = journal.iter().skip(after as usize);
            unposted.filter_map(|record| record.request).all(|request| request.id != id)
        })
    }

    /// One call of a server takes its next step.
    fn advance(&mut self, server: usize) {
        let count = self.servers[server].calls.len();
        if count == 0 {
            return;
        }
        let index = self.dice.index(count);
        let mut call = self.servers[server].calls[index];
        if self.is_over(&call) {
            return self.give_up(server);
        }
        call.stage = match call.stage {
            Stage::Sent => match self.handle(&call) {
                Some(reply) => Stage::Answered(reply),
                None => Stage::Lost,
            },
            // Without the ledger the failure policy answers. Here it refuses.
            Stage::Lost if self.is_cut(server) => {
                self.servers[server].calls.remove(index);
                return;
            }
            Stage::Lost => Stage::Found(self.look_up()),
            Stage::Found(restore) => {
                self.apply(Operation::Restore(restore));
                Stage::Sent
            }
            Stage::Answered(reply) if reply.is_done && self.wrong == Wrong::AnswerBeforeJournal => {
                self.books.acknowledge(&call);
                Stage::Acknowledged(reply)
            }
            Stage::Answered(reply) | Stage::Acknowledged(reply) => {
                self.servers[server].calls.remove(index);
                if reply.is_done && !self.is_fenced(server) {
                    self.journal(server, &call, &reply);
                }
                return;
            }
        };
        self.servers[server].calls[index] = call;
    }

    fn look_up(&mut self) -> Restore {
        let balance = self.sql.rows.balances.get(&self.account);
        let holds = self.sql.rows.holds.values().filter(|hold| hold.state == HoldState::Open);
        let pending_until_us = holds.map(|hold| hold.until_us).max().unwrap_or(0);
        let found = balance.filter(|_| self.wrong != Wrong::AbsentTrusted).map(|balance| KnownAccount {
            period_us: START_US,
            newest_us: balance.allowance_at_us,
            posted: balance.posted,
            pending: balance.pending,
            pending_until_us,
            extra: balance.extra,
            extra_no: balance.extra_no,
        });
        let key = self.keyspace.key(SubjectHasher::new([1; 32]).subject([("user", "u")]));
        let epoch = 1 + self.dice.below(1 << 30) as u32;
        let item = Item::new(key, self.limit, Operation::charge(1));
        restore_of(&item, Time::from_us(self.now_us as u64), Some(found.as_ref()), epoch)
    }

    fn record(&self, at_us: i64, event: Event) -> Record {
        Record {
            account: self.account.clone(),
            ends_us: END_US,
            allowance: LIMIT,
            at_us,
            rev: 0,
            detail: Detail::Entries,
            request: None,
            name: None,
            event,
        }
    }

    fn journal(&mut self, server: usize, call: &Call, reply: &Reply) {
        if reply.is_replay && self.wrong == Wrong::ReplayNotJournaled {
            return self.books.acknowledge(call);
        }
        let (id, nonce) = match call.name {
            Name::Request(name) => {
                let id = named(1, self.wire_ids[&name]);
                (id, if self.wrong == Wrong::NonceIgnored { id } else { id << 48 | reply.at_us as u128 })
            }
            Name::Once(receipt) => (named(2, receipt), named(2, receipt) << 48 | reply.at_us as u128),
            Name::Hold(token) => (named(3, token), named(3, token)),
        };
        let has_request = match call.ask {
            Ask::Charge => matches!(call.name, Name::Request(_)) && self.wrong != Wrong::RequestForgotten,
            Ask::Settle | Ask::Refund => true,
            Ask::Reserve | Ask::Cancel => false,
        };
        // The content of a refund is its amount and the store's time, so that only a replay is the same.
        let content = if call.ask == Ask::Refund { reply.at_us } else { call.cost };
        let request = Request { id: Id(id.to_be_bytes()), nonce: Id(nonce.to_be_bytes()), content };
        let token = Id(id.to_be_bytes());
        let event = match call.ask {
            Ask::Charge => Event::Use { cost: call.cost },
            Ask::Reserve => Event::Reserve { token, cost: call.cost, until_us: reply.until_us },
            Ask::Settle => {
                let until_us = if reply.is_late { reply.at_us - 1 } else { reply.at_us };
                Event::Settle { token, actual: reply.amount, until_us }
            }
            Ask::Cancel => Event::Cancel { token },
            Ask::Refund => Event::Refund { receipt: token, charged: call.cost, amount: reply.amount },
        };
        let record = self.record(reply.at_us, event);
        let record =
            Record { rev: reply.revision.number(), request: has_request.then_some(request), ..record };
        self.servers[server].journal.push(record.clone());
        let seq = self.servers[server].journal.len() as i64;
        // A wait for the commit ends without it.
        if call.ask == Ask::Charge && self.dice.one_in(8) {
            if self.wrong != Wrong::WaitWithoutVoid {
                let void = Record { event: Event::Void { seq }, ..record };
                self.servers[server].journal.push(void);
            }
            self.print(|| format!("server {server} journals and undoes {call:?}"));
            return self.books.void(call);
        }
        let refunded = self.books.refunded();
        self.books.record(call, reply);
        // Now the books count it.
        self.permitted_more -= self.books.refunded() - refunded;
        match call.ask {
            Ask::Charge if matches!(call.name, Name::Once(_)) => self.receipts.push((call.name, call.cost)),
            Ask::Reserve => self.open_holds.push((call.name, call.cost)),
            _ => (),
        }
        self.print(|| format!("server {server} journals {call:?}"));
    }

    fn is_over(&self, call: &Call) -> bool {
        self.now_us - call.sent_us > DEADLINE_US && !matches!(call.stage, Stage::Acknowledged(_))
    }

    /// Deadlines of callers pass. What is on its way may still arrive; what has arrived is not claimed by the journal any more.
    fn give_up(&mut self, server: usize) {
        let calls = std::mem::take(&mut self.servers[server].calls);
        let (over, open): (Vec<Call>, Vec<Call>) = calls.into_iter().partition(|call| self.is_over(call));
        self.servers[server].calls = open;
        self.late.extend(over.into_iter().filter(|call| matches!(call.stage, Stage::Sent)));
    }

    fn deliver_late(&mut self) {
        // A call is not on its way for longer than that.
        let now_us = self.now_us;
        self.late.retain(|call| now_us - call.sent_us < HORIZON_US);
        if !self.late.is_empty() {
            let index = self.dice.index(self.late.len());
            let call = self.late.swap_remove(index);
            // Its reply has no receiver.
            self.handle(&call);
        }
    }

    fn post(&mut self, writer: Id, after: i64, records: &[Record]) {
        let mut records = records.to_vec();
        let mut rows = std::mem::take(&mut self.sql.rows);
        match self.wrong {
            Wrong::VoidWithoutIdState => {
                let voids = records.iter_mut().filter(|record| matches!(record.event, Event::Void { .. }));
                voids.for_each(|record| record.request = None);
            }
            Wrong::SettleBeforeReserve => {
                let known: BTreeSet<Id> = rows.holds.keys().map(|(_, token)| *token).collect();
                let is_early = |record: &&mut Record| match record.event {
                    Event::Settle { token, .. } => !known.contains(&token),
                    _ => false,
                };
                records.iter_mut().filter(is_early).for_each(|record| record.event = Event::Use { cost: 0 });
            }
            Wrong::RefundWithoutReceiptSum => rows.receipts.clear(),
            _ => (),
        }
        let has_voids = !Keys::of(&records).voided.is_empty();
        let own = self.sql.entries.iter().filter(|entry| has_voids && entry.actor == writer.to_string());
        rows.voided = own.map(|entry| (entry.seq, entry.clone())).collect();
        let settings = Settings { horizon_us: HORIZON_US };
        let posted = post(&mut rows, after, &records, settings, self.now_us).expect("it posts");
        self.sql.rows = rows;
        // The test finds the writer of an entry by its actor.
        let entries = posted.entries.into_iter();
        self.sql.entries.extend(entries.map(|entry| Entry { actor: writer.to_string(), ..entry }));
        self.sql.cursors.insert(writer, after + records.len() as i64);
    }

    fn ship(&mut self, server: usize) {
        if self.is_cut(server) {
            return;
        }
        let calls = &self.servers[server].calls;
        let clean_at_us = calls.iter().map(|call| call.sent_us).fold(self.now_us, i64::min);
        let writer = self.servers[server].writer;
        self.register(writer);
        let found = self.sql.cursors[&writer];
        let has_records = self.servers[server].journal.len() as i64 > self.servers[server].cursor;
        // The compare-and-set finds another cursor if the answer to a commit was lost, or the database was set back.
        let compares = match self.wrong {
            Wrong::CursorWithoutCompare => false,
            Wrong::PlainHeartbeat => has_records,
            _ => true,
        };
        if compares {
            self.servers[server].cursor = found;
        }
        let after = self.servers[server].cursor;
        let journal = &self.servers[server].journal;
        let count = (journal.len() - after as usize).min(1 + self.dice.index(8));
        let records = journal[after as usize..after as usize + count].to_vec();
        let is_whole = after as usize + count == journal.len();
        if !records.is_empty() {
            self.post(writer, after, &records);
            self.print(|| format!("server {server} posts {count} records after {after}"));
            if self.dice.one_in(8) {
                return;
            }
            self.servers[server].cursor = after + count as i64;
        }
        self.servers[server].confirmed_us = self.now_us;
        let now_us = self.now_us;
        if let Some(open) = self.sql.open.get_mut(&writer) {
            open.last_seen_us = now_us;
            if is_whole {
                open.clean_at_us = clean_at_us;
            }
        }
    }

    fn look(&mut self) {
        if let (Verdict::Usage { used, .. }, revision, _) = self.apply(Operation::Usage) {
            let clean_after_us = self.now_us + HORIZON_US + DEADLINE_US;
            self.looks.push_back(Look { used: used as i64, revision, clean_after_us });
        }
    }

    /// Returns the instant before which all is posted; `None` if that is not known.
    fn watch(&mut self) -> Option<i64> {
        let before = std::mem::take(&mut self.watched);
        let (mut least, mut is_set_back, mut silent) = (None, false, Vec::new());
        for (writer, open) in &self.sql.open {
            let seen = before.get(writer);
            is_set_back |= seen.is_some_and(|(last_seen_us, _)| open.last_seen_us < *last_seen_us);
            let seen = seen.filter(|(last_seen_us, _)| *last_seen_us == open.last_seen_us);
            let since_us = seen.map_or(self.now_us, |(_, since_us)| *since_us);
            self.watched.insert(*writer, (open.last_seen_us, since_us));
            match self.now_us - since_us < QUEUE_MAX_US + SILENT_MORE_US {
                true => {
                    least = Some(least.map_or(open.clean_at_us, |least: i64| least.min(open.clean_at_us)))
                }
                false => silent.push((*writer, open.last_seen_us)),
            }
        }
        if is_set_back {
            self.looks.clear();
            return None;
        }
        // What a server has charged before it stopped by itself is taken for charges without an entry.
        for (writer, last_seen_us) in silent {
            self.permit_unposted(|owner, record| {
                owner == writer && record.at_us <= last_seen_us + QUEUE_MAX_US + DEADLINE_US
            });
        }
        least
    }

    fn compare(&mut self) {
        let clean_at_us = self.watch();
        let no_barrier = self.wrong == Wrong::AdjustWithoutBarrier;
        let is_ready = |look: &Look| {
            no_barrier || clean_at_us.is_some_and(|clean_at_us| look.clean_after_us < clean_at_us)
        };
        let Some(index) = self.looks.iter().position(is_ready) else { return };
        let Some(look) = self.looks.remove(index) else { return };
        let (from, to) = (look.revision.number(), look.revision.number() | i64::from(u32::MAX));
        let is_later = |entry: &&Entry| entry.rev > from && entry.rev <= to;
        let later: i64 = self.sql.entries.iter().filter(is_later).map(|entry| entry.d_posted).sum();
        let counted = self.posted() - later;
        let subtract = look.used - counted.max(0);
        if subtract != 0 {
            let Revision { epoch, adjusted, .. } = look.revision;
            let start = Time::from_us(START_US as u64);
            self.apply(Operation::Adjust(Adjust { subtract, epoch, adjusted, start }));
        }
    }

    fn grant(&mut self) {
        let units = self.dice.below(41) as i64 - 20;
        let change = Change { units, actor: "test".to_owned(), cause: "test".to_owned() };
        let after = self.sql.cursors.get(&ADMINISTRATION).copied().unwrap_or(0);
        let record = self.record(self.now_us, Event::Grant(change));
        self.post(ADMINISTRATION, after, &[record]);
        let balance = &self.sql.rows.balances[&self.account];
        self.granted_max = self.granted_max.max(LIMIT + balance.extra);
        let start = Time::from_us(START_US as u64);
        self.extras.push(Extra { extra: balance.extra, number: balance.extra_no as u64, start });
    }

    /// Ends reservations in the ledger whose time is over.
    fn expire(&mut self) {
        let now_us = self.now_us;
        let is_due = |state, until_us| state == HoldState::Open && until_us < now_us;
        let due = self.sql.rows.holds.iter().filter(|(_, hold)| is_due(hold.state, hold.until_us));
        let tokens: Vec<Id> = due.map(|((_, token), _)| *token).collect();
        let expire = |token| self.record(now_us, Event::Expire { token });
        let records: Vec<Record> = tokens.into_iter().map(expire).collect();
        let after = self.sql.cursors.get(&EXPIRY).copied().unwrap_or(0);
        self.post(EXPIRY, after, &records);
    }

    fn deliver_extra(&mut self) {
        if !self.extras.is_empty() {
            let index = self.dice.index(self.extras.len());
            let extra = self.extras.swap_remove(index);
            self.send_extra(extra);
        }
    }

    fn send_extra(&mut self, mut extra: Extra) {
        if self.wrong == Wrong::ExtraWithoutNumber {
            extra.number = self.now_us as u64 + self.number();
        }
        self.apply(Operation::Extra(extra));
    }

    /// Permits what the journals have and the database does not.
    fn permit_unposted(&mut self, permits: impl Fn(Id, &Record) -> bool) {
        for server in &self.servers {
            let after = self.sql.cursors.get(&server.writer).copied().unwrap_or(0);
            for (record, seq) in server.journal.iter().zip(1..).skip(after as usize) {
                let cost = match record.event {
                    Event::Use { cost } | Event::Reserve { cost, .. } => cost,
                    Event::Settle { actual, .. } => actual,
                    _ => 0,
                };
                if permits(server.writer, record) {
                    self.permitted.insert((server.writer, seq), cost);
                }
            }
        }
    }

    /// The gate loses its state, or becomes an old copy of itself.
    fn lose(&mut self, copy: tollgate_core::Account) {
        self.losses += 1;
        self.permit_unposted(|_, _| true);
        for call in self.servers.iter().flat_map(|server| &server.calls) {
            self.permitted_in_flight.insert(call.name, call.cost);
        }
        // A second loss while a look-up is under way: it restores what it found before.
        let posted = self.posted();
        let stale = self.servers.iter().flat_map(|server| &server.calls).map(|call| match call.stage {
            Stage::Found(restore) => (posted - restore.used as i64).max(0),
            _ => 0,
        });
        self.permitted_more += stale.max().unwrap_or(0);
        self.gate = copy;
        self.remembered.clear();
        if self.wrong != Wrong::StampOff {
            self.node += 1;
        }
        self.print(|| "the gate loses its state".to_owned());
    }

    /// A server dies and starts again. It ships its old journals before anything else.
    fn kill(&mut self, server: usize) {
        let new = self.new_server();
        let old = std::mem::replace(&mut self.servers[server], new);
        let sent = old.calls.into_iter().filter(|call| matches!(call.stage, Stage::Sent));
        self.late.extend(sent);
        self.servers[server].kept = old.kept;
        self.servers[server].kept.push((old.writer, old.journal));
        self.ship_kept(server);
    }

    fn ship_kept(&mut self, server: usize) {
        let kept = std::mem::take(&mut self.servers[server].kept);
        for (writer, journal) in &kept {
            let after = *self.sql.cursors.entry(*writer).or_insert(0);
            if (after as usize) < journal.len() {
                self.post(*writer, after, &journal[after as usize..]);
            }
            self.sql.open.remove(writer);
        }
        self.servers[server].kept = kept;
    }

    fn set_back(&mut self) {
        if let Some(backup) = self.backup.take() {
            self.was_set_back = true;
            self.sql = backup;
            self.print(|| "the database is set back".to_owned());
        }
    }

    /// No more calls and faults: everything arrives, is posted and is compared.
    pub(super) fn quiet(&mut self) {
        self.servers.iter_mut().for_each(|server| server.cut_until_us = 0);
        for _ in 0..6 {
            for server in 0..SERVERS {
                let mut rounds = 0;
                while !self.servers[server].calls.is_empty() && rounds < 10_000 {
                    self.advance(server);
                    rounds += 1;
                }
            }
            while !self.late.is_empty() {
                self.deliver_late();
            }
            for server in 0..SERVERS {
                // A restart ships journals that a database that was set back has lost.
                self.ship_kept(server);
                (0..200).for_each(|_| self.ship(server));
            }
            self.now_us += HOLD_US + QUEUE_MAX_US;
            self.expire();
            self.looks.clear();
            let restore = self.look_up();
            self.apply(Operation::Restore(restore));
            self.now_us += 1;
            self.look();
            self.now_us += HORIZON_US + DEADLINE_US + 2;
            (0..SERVERS).for_each(|server| (0..20).for_each(|_| self.ship(server)));
            self.compare();
        }
        while !self.extras.is_empty() {
            self.deliver_extra();
        }
        if self.wrong != Wrong::ExtraWithoutNumber
            && let Some(balance) = self.sql.rows.balances.get(&self.account)
        {
            let start = Time::from_us(START_US as u64);
            let extra = Extra { extra: balance.extra, number: balance.extra_no as u64, start };
            self.send_extra(extra);
        }
    }

    /// Units granted above the limit.
    pub(super) fn excess(&self) -> i64 {
        (self.books.granted() - self.books.refunded() - self.granted_max).max(0)
    }

    /// Returns what the entries of charges under each request id post.
    fn posted_by_request(&self) -> BTreeMap<Id, i64> {
        let mut posted = BTreeMap::new();
        for entry in &self.sql.entries {
            if let (Some(id), Kind::Use | Kind::Void) = (entry.request, entry.kind) {
                *posted.entry(id).or_default() += entry.d_posted;
            }
        }
        posted
    }

    pub(super) fn check(&mut self) -> Result<(), String> {
        let posted = self.posted_by_request();
        let mut names = BTreeMap::<u64, Vec<Name>>::new();
        for (name, wire) in &self.wire_ids {
            names.entry(*wire).or_default().push(Name::Request(*name));
        }
        for (wire, names) in names {
            self.books.check_request(&names, posted.get(&request_id(wire)).copied().unwrap_or(0))?;
        }
        self.books.check(self.posted())?;
        let posted = self.posted();
        let (verdict, revision, _) = self.apply(Operation::Usage);
        let Verdict::Usage { used, held } = verdict else { return Err(format!("after quiet: {verdict:?}")) };
        if used as i64 != posted {
            return Err(format!("after quiet the gate has {used}, the ledger {posted}"));
        }
        let balance = self.sql.rows.balances.get(&self.account);
        let (pending, extra) = balance.map_or((0, 0), |balance| (balance.pending, balance.extra));
        if (held, pending) != (0, 0) {
            return Err(format!("after quiet the gate holds {held}, the ledger {pending}"));
        }
        if revision.extra != extra && !self.was_set_back {
            return Err(format!("after quiet the gate has the extra {}, the ledger {extra}", revision.extra));
        }
        let permitted: i64 = self.permitted.values().sum();
        let in_flight: i64 = self.permitted_in_flight.values().sum();
        let permitted = permitted + in_flight + self.permitted_more;
        if self.excess() > permitted && !self.was_set_back {
            return Err(format!("{} units above the limit, permitted {permitted}", self.excess()));
        }
        Ok(())
    }
}

fn named(kind: u128, number: u64) -> u128 {
    kind << 120 | u128::from(number)
}

/// Returns the request id of a charge, as the ledger names it.
fn request_id(wire: u64) -> Id {
    Id(named(1, wire).to_be_bytes())
}

fn token_of(name: Name) -> Token {
    match name {
        Name::Hold(number) | Name::Once(number) | Name::Request(number) => Token(u128::from(number)),
    }
}
