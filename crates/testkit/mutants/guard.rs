//! Mutants of the guard in front of a remote store, which the fault simulation must find. The first word is the file.

use super::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    (
        "local_limiters",
        "a share per flap",
        "Operation::LeaveAtMost { remaining: share.of(answer.remaining) }",
        "Operation::Reset { receipt_life: tollgate_core::Span::ZERO }",
    ),
    (
        "local_limiters",
        "a standby that forgets",
        "self.share(percent).filter(|_| counts)",
        "self.share(percent).filter(|_| false)",
    ),
    (
        "local_limiters",
        "a standby that ignores refusals",
        "self.share(percent).filter(|_| counts)",
        "self.share(percent).filter(|_| counts && answer.is_admitted())",
    ),
    (
        "local_limiters",
        "a standby that runs away",
        "Operation::LeaveAtMost { remaining: share.of(answer.remaining) }",
        "Operation::Record { cost: share.of(answer.limit.saturating_sub(answer.remaining)) }",
    ),
    (
        "local_limiters",
        "the whole limit instead of a share",
        "limit: item.limit.share(self.share(percent)?)?, ..*item",
        "limit: item.limit, ..*item",
    ),
    (
        "local_limiters",
        "a cap for each subject",
        "item.key.keyspace().key_tagged(WHOLE_RULE, WHOLE_RULE)",
        "item.key",
    ),
    (
        "local_limiters",
        "a charge although another rule refuses",
        "let mut refused = !charge;",
        "let mut refused = !charge && false;",
    ),
    (
        "guard",
        "a refund on return",
        "        match done {
",
        "        static WAS_AWAY: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if WAS_AWAY.swap(done.is_err(), std::sync::atomic::Ordering::Relaxed) && done.is_ok() {
            for item in plan.items() {
                let operation = tollgate_core::Operation::Credit { cost: 2 };
                if let Ok(refund) = Plan::of(tollgate_core::Item { operation, ..*item }) {
                    self.store.apply_unawaited(&refund);
                }
            }
        }
        match done {
",
    ),
    (
        "guard",
        "a post of what was already charged",
        "self.store.note_policy_answer(plan, &outcome);",
        "if outcome.answers.iter().all(|answer| answer.is_admitted()) {
                    for item in plan.items() {
                        let cost = item.operation.cost().unwrap_or(0);
                        let operation = tollgate_core::Operation::Record { cost };
                        if let Ok(post) = Plan::of(tollgate_core::Item { operation, ..*item }) {
                            self.store.apply_unawaited(&post);
                        }
                    }
                }",
    ),
    (
        "posting",
        "a post of what the store may have charged",
        "let is_certain = is_unapplied &&",
        "let is_certain = true &&",
    ),
    (
        "posting",
        "a new id for each attempt to post",
        "plan.set_request_id(self.id, HORIZON, 0);",
        "plan.set_request_id(Subject::from_u128(new_nonce().0), HORIZON, 0);",
    ),
    ("posting", "a post without an id", "plan.set_request_id(self.id, HORIZON, 0);", ""),
    (
        "posting",
        "an old period posted to a new one",
        "Operation::RecordIn { cost: self.sum.units, start }",
        "Operation::Record { cost: self.sum.units }",
    ),
    (
        "posting",
        "a rolling period that begins with the post",
        "return Ok(Some(self.first));",
        "return Ok(Some(outcome.now));",
    ),
    (
        "posting",
        "a sum that is forgotten",
        "self.sealed.push_back(Post { sum, id, start: None, first_sent: None });",
        "",
    ),
    ("posting", "a sum that is dropped when its post fails", "self.lock().sealed.push_front(post);", ""),
    (
        "refusal_memory",
        "a remembered refusal past its time",
        "until: sent + wait.min(REPEATED_MAX)",
        "until: sent + REPEATED_MAX",
    ),
    ("refusal_memory", "a refusal remembered for lower costs", "cost >= refusal.cost", "true"),
    (
        "grants",
        "a slice spent after its end",
        "let end_us = sent_us.saturating_add(held.us());",
        "let end_us = sent_us.saturating_add(id.hold.span().us());",
    ),
    (
        "guard",
        "a bucket slice without the margin",
        "self.slices.apply(plan, &self.store).await",
        "{
            let mut whole = Plan::new();
            for item in plan.items() {
                let limit = match (item.limit, item.slices) {
                    (tollgate_core::Limit::Bucket(bucket), Some(hold)) => {
                        let margin = item.limit.slice_max(hold).unwrap_or(0);
                        let (amount, ticks) = bucket.rate();
                        let period = tollgate_core::Span::from_us(ticks * bucket.tick().us());
                        let whole = tollgate_core::algorithm::bucket::Bucket::tokens(
                            amount,
                            period,
                            bucket.capacity() + margin,
                        );
                        whole.map_or(item.limit, tollgate_core::Limit::Bucket)
                    }
                    _ => item.limit,
                };
                whole.push(tollgate_core::Item { limit, ..*item }).unwrap();
            }
            self.slices.apply(&whole, &self.store).await
        }",
    ),
];
