//! The grants that this server holds. Pure: every instant is an argument, on any monotonic clock, in microseconds.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use smallvec::SmallVec;
use tollgate_core::plan::slice::SliceHold;
use tollgate_core::{Answer, Limit, Mark, Time};

use super::returns::{Owner, Return};
use super::sizing::{Demand, grant_size};

/// Keys that one book tracks. Checks of further keys are exact.
const KEYS_MAX: usize = 2_048;
/// Grants of one key at the same time. An old one may have a rest that is too small for a request.
const GRANTS_MAX: usize = 4;
/// After this time a grant that was asked for counts as lost, and another may be asked for.
const TAKING_MAX_US: u64 = 1_000_000;
/// A key without checks for this long is forgotten, once its grants have ended.
const IDLE_US: u64 = 10_000_000;

/// What names the grants of an item: the key and the numbers of the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AccountId {
    pub(super) fingerprint: u128,
    pub(super) limit: Limit,
    pub(super) hold: SliceHold,
}

/// Units that were booked in the store and that only this server spends.
#[derive(Clone, Copy, Debug)]
struct Grant {
    id: u64,
    left: u64,
    /// The whole charge that booked them.
    charged: u64,
    charged_at: Time,
    mark: Mark,
    /// The last instant at which it may not be spent any more.
    end_us: u64,
    /// Whether its unspent units can be given back: its window has not ended with it.
    returnable: bool,
    /// What the store had left after the charge.
    remaining: u64,
    reset_at: Time,
}

/// Units that a check has taken from a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spent {
    grant: u64,
    cost: u64,
    pub(super) mark: Mark,
    /// What the store and the grant have left.
    pub(super) remaining: u64,
    pub(super) reset_at: Time,
}

/// A charge that the store has admitted, `extra` units of which are a grant.
pub(super) struct Booked<'a> {
    pub(super) cost: u64,
    pub(super) extra: u64,
    pub(super) answer: &'a Answer,
    /// The store's time of the charge.
    pub(super) store_now: Time,
    /// When the charge was sent.
    pub(super) sent_us: u64,
}

struct Account {
    limit: Limit,
    hold: SliceHold,
    grants: SmallVec<[Grant; 2]>,
    demand: Demand,
    /// What the store had left at its last answer.
    remaining: Option<u64>,
    /// When a grant was asked for that is still on its way.
    taking_us: Option<u64>,
    /// When the store began to refuse, without an admission since.
    refusing_us: Option<u64>,
    used_us: u64,
    /// What returns need. Set with the first grant.
    owner: Option<Owner>,
}

/// What became of units whose grant ended.
#[derive(Default, Debug)]
pub(super) struct Ended {
    pub(super) returns: Vec<Return>,
    /// Units that are neither spent nor returned.
    pub(super) lapsed: u64,
}

/// The grants of some keys. The caller locks it.
#[derive(Default)]
pub(super) struct GrantBook {
    accounts: HashMap<u128, SmallVec<[Account; 1]>>,
    /// Instants at which a key has something to do: a grant ends, or the key is idle.
    due: BinaryHeap<Reverse<(u64, u128)>>,
    next_grant: u64,
}

impl GrantBook {
    /// Takes `cost` units from a grant that has not ended, if one has them.
    pub(super) fn spend(&mut self, id: &AccountId, cost: u64, now_us: u64) -> Option<Spent> {
        let account = self.account(id, now_us)?;
        account.used_us = now_us;
        account.demand.note(cost, now_us, id.hold);
        let grant = account.grants.iter_mut().find(|grant| now_us < grant.end_us && grant.left >= cost)?;
        grant.left -= cost;
        let Grant { mark, reset_at, .. } = *grant;
        let remaining = grant.remaining.saturating_add(grant.left);
        Some(Spent { grant: grant.id, cost, mark, remaining, reset_at })
    }

    /// Returns the unspent units of each grant that has not ended.
    pub(super) fn held(&mut self, id: &AccountId, now_us: u64) -> SmallVec<[u64; GRANTS_MAX]> {
        let grants = self.existing(id).map(|account| account.grants.as_slice()).unwrap_or_default();
        grants.iter().filter(|grant| now_us < grant.end_us).map(|grant| grant.left).collect()
    }

    /// Gives units back to their grant, because another rule refused the request. Those of an ended grant are lost.
    pub(super) fn put_back(&mut self, id: &AccountId, spent: &Spent) {
        let Some(account) = self.existing(id) else { return };
        if let Some(grant) = account.grants.iter_mut().find(|grant| grant.id == spent.grant) {
            grant.left += spent.cost;
        }
    }

    /// Returns how many units to book beside a check of `cost`, and notes that they were asked for. 0 for an exact check.
    pub(super) fn begin_take(&mut self, id: &AccountId, cost: u64, servers: Option<u32>, now_us: u64) -> u64 {
        let Some(account) = self.existing(id) else { return 0 };
        let is_taking = account.taking_us.is_some_and(|since| now_us < since.saturating_add(TAKING_MAX_US));
        let (Some(remaining), false) = (account.remaining, is_taking) else { return 0 };
        if account.grants.len() >= GRANTS_MAX {
            // Units that are put back later are lost with their grant, which is rare and admits nothing more.
            account.grants.retain(|grant| grant.left > 0);
            if account.grants.len() >= GRANTS_MAX {
                return 0;
            }
        }
        let size = grant_size(&account.demand, remaining, cost, servers, &id.limit, id.hold);
        if size > 0 {
            account.taking_us = Some(now_us);
        }
        size
    }

    /// Notes that the grant that was asked for was not booked, or that it is unknown whether it was.
    pub(super) fn end_take(&mut self, id: &AccountId) {
        if let Some(account) = self.existing(id) {
            account.taking_us = None;
        }
    }

    /// Notes an admission by the store, and holds the part of it that is a grant. Returns the units that are lost because
    /// the answer does not say where they were booked.
    pub(super) fn admitted(
        &mut self,
        id: &AccountId,
        booked: &Booked<'_>,
        owner: impl FnOnce() -> Owner,
    ) -> u64 {
        let Booked { cost, extra, answer, store_now, sent_us } = *booked;
        let grant_id = self.next_grant;
        let Some(account) = self.existing(id) else { return extra };
        account.remaining = Some(answer.remaining);
        account.refusing_us = None;
        if extra == 0 {
            return 0;
        }
        account.taking_us = None;
        let Some(end) = id.limit.slice_end(answer) else { return extra };
        let left_in_store = end - store_now;
        let held = id.hold.span().min(left_in_store);
        let end_us = sent_us.saturating_add(held.us());
        account.grants.push(Grant {
            id: grant_id,
            left: extra,
            charged: cost.saturating_add(extra),
            charged_at: store_now,
            mark: answer.mark,
            end_us,
            returnable: id.limit.returns_slices() && held < left_in_store,
            remaining: answer.remaining,
            reset_at: answer.reset_at,
        });
        account.owner.get_or_insert_with(owner);
        self.next_grant += 1;
        self.due.push(Reverse((end_us, id.fingerprint)));
        0
    }

    /// Notes a refusal by the store. Returns whether units that a server holds may have caused it: no server takes grants
    /// of what is used up, so after one hold all are spent or returned.
    pub(super) fn refused(&mut self, id: &AccountId, remaining: u64, now_us: u64) -> bool {
        let Some(account) = self.existing(id) else { return false };
        account.remaining = Some(remaining);
        let since = *account.refusing_us.get_or_insert(now_us);
        now_us.saturating_sub(since) <= id.hold.span().us()
    }

    /// Drops what is known of a key, such as after a reset. Nothing is returned. Returns the unspent units.
    pub(super) fn forget(&mut self, fingerprint: u128) -> u64 {
        self.accounts.remove(&fingerprint).map_or(0, |accounts| accounts.iter().map(Account::unspent).sum())
    }

    /// Drops everything. Nothing is returned. Returns the unspent units.
    pub(super) fn forget_all(&mut self) -> u64 {
        self.due.clear();
        self.accounts.drain().flat_map(|(_, accounts)| accounts).map(|account| account.unspent()).sum()
    }

    /// Removes the grants that have ended, and keys without checks.
    pub(super) fn end_due(&mut self, now_us: u64, ended: &mut Ended) {
        while let Some(&Reverse((due_us, fingerprint))) = self.due.peek()
            && due_us <= now_us
        {
            self.due.pop();
            let Some(accounts) = self.accounts.get_mut(&fingerprint) else { continue };
            for account in accounts.iter_mut() {
                account.end_grants(now_us, ended);
            }
            let is_idle = |account: &Account| account.used_us.saturating_add(IDLE_US) <= now_us;
            accounts.retain(|account| !account.grants.is_empty() || !is_idle(account));
            match accounts.iter().map(|account| account.used_us.saturating_add(IDLE_US)).max() {
                // Only the entry of an idle key is due again: grants have their own.
                Some(idle_us) if accounts.iter().all(|account| account.grants.is_empty()) => {
                    self.due.push(Reverse((idle_us.max(now_us + 1), fingerprint)));
                }
                Some(_) => (),
                None => drop(self.accounts.remove(&fingerprint)),
            }
        }
    }

    /// Returns the first instant at which [`end_due`](GrantBook::end_due) has something to do.
    pub(super) fn next_due_us(&self) -> u64 {
        self.due.peek().map_or(u64::MAX, |&Reverse((due_us, _))| due_us)
    }

    fn existing(&mut self, id: &AccountId) -> Option<&mut Account> {
        self.accounts.get_mut(&id.fingerprint)?.iter_mut().find(|account| account.is(id))
    }

    /// The account of an item. `None` if the book is full.
    fn account(&mut self, id: &AccountId, now_us: u64) -> Option<&mut Account> {
        if !self.accounts.contains_key(&id.fingerprint) {
            if self.accounts.len() >= KEYS_MAX {
                return None;
            }
            self.due.push(Reverse((now_us.saturating_add(IDLE_US), id.fingerprint)));
        }
        let accounts = self.accounts.entry(id.fingerprint).or_default();
        let at = accounts.iter().position(|account| account.is(id)).unwrap_or_else(|| {
            accounts.push(Account::new(id, now_us));
            accounts.len() - 1
        });
        accounts.get_mut(at)
    }
}

impl Account {
    fn new(id: &AccountId, now_us: u64) -> Account {
        Account {
            limit: id.limit,
            hold: id.hold,
            grants: SmallVec::new(),
            demand: Demand::default(),
            remaining: None,
            taking_us: None,
            refusing_us: None,
            used_us: now_us,
            owner: None,
        }
    }

    fn is(&self, id: &AccountId) -> bool {
        self.limit == id.limit && self.hold == id.hold
    }

    fn unspent(&self) -> u64 {
        self.grants.iter().map(|grant| grant.left).sum()
    }

    fn end_grants(&mut self, now_us: u64, ended: &mut Ended) {
        let (limit, hold, owner) = (self.limit, self.hold, &self.owner);
        self.grants.retain(|grant| {
            if now_us < grant.end_us {
                return true;
            }
            match owner {
                Some(owner) if grant.returnable && grant.left > 0 => ended.returns.push(Return {
                    owner: owner.clone(),
                    limit,
                    hold,
                    mark: grant.mark,
                    charged: grant.charged,
                    charged_at: grant.charged_at,
                    unspent: grant.left,
                }),
                _ => ended.lapsed += grant.left,
            }
            false
        });
    }
}

#[cfg(test)]
mod tests;
