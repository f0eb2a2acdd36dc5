//! Tiny histories, for which every possible order of events is tried.

use super::driven_store::*;
use super::*;

/// Whether the calls in `left` can continue the history: in some order, each at some instant of its interval, each with
/// its recorded answer.
fn explainable(
    kind: Kind,
    state: &Option<State>,
    ids: &BTreeMap<u128, u64>,
    at: u64,
    left: &[Record],
) -> bool {
    if left.is_empty() {
        return true;
    }
    (0..left.len()).any(|next| {
        let call = &left[next];
        let rest: Vec<Record> = left
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != next)
            .map(|(_, call)| call.clone())
            .collect();
        let never = matches!(call.answer, CallResult::Unknown | CallResult::Degraded);
        if never && explainable(kind, state, ids, at, &rest) {
            return true;
        }
        (at.max(call.start.us())..=call.end.us()).any(|now| {
            let known = call.id.and_then(|id| ids.get(&id));
            if known.is_some() {
                return call.answer != CallResult::Refuse && explainable(kind, state, ids, now, &rest);
            }
            let token = Token(left.len() as u128);
            let operation = Operation::Charge { cost: call.cost, token };
            let step = kind.limit.decide(state.as_ref(), Time::from_us(now), &operation);
            let answer = if step.answer.is_admitted() { CallResult::Allow } else { CallResult::Refuse };
            if !never && answer != call.answer {
                return false;
            }
            let (mut state, mut ids) = (state.clone(), ids.clone());
            if let Some(write) = step.write {
                State::commit(&mut state, write.change);
                ids.extend(call.id.map(|id| (id, now)));
            }
            explainable(kind, &state, &ids, now, &rest)
        })
    })
}

#[test]
fn every_possible_history_is_accepted() {
    let tiny = |limit| Kind { limit, step_us: 1, cost_step: 1 };
    let kinds = [
        tiny(fixed(2, 4)),
        tiny(log(2, 4)),
        tiny(strict(2, 4, 2)),
        tiny(interpolated(3, 4, 1)),
        tiny(interpolated(3, 4, 2)),
        tiny(tokens(1, 2, 2)),
        tiny(tokens(2, 3, 3)),
        tiny(shaper(1, 3, 1)),
        tiny(concurrency(2, 3)),
        tiny(calendar(2, 0, [0, 3, 7, 100])),
        tiny(rolling(2, 4)),
        tiny(meter(2, 3)),
    ];
    let answer = prop_oneof![
        3 => Just(CallResult::Allow),
        2 => Just(CallResult::Refuse),
        1 => Just(CallResult::Unknown),
        1 => Just(CallResult::Degraded),
    ];
    let id = proptest::option::weighted(0.3, 1_u128..3);
    let calls = proptest::collection::vec((0_u64..12, 0_u64..4, 1_u64..3, answer, id), 2..6);
    for kind in kinds {
        let lease = match kind.limit {
            Limit::Concurrency(limit) => Some(limit.lease()),
            _ => None,
        };
        let mut tally = [0_u64; 3];
        let seen = std::cell::RefCell::new(&mut tally);
        run(1_500, &calls, |calls| {
            let records = calls.into_iter().map(|(start, width, cost, answer, id)| {
                let record = call(answer, if id.is_some() { 1 } else { cost }, start, start + width);
                let held = lease.map(|lease| Held::leased(record.start, record.end, lease));
                // A repeated id would share the lease of the first call, which these records cannot express.
                Record { id: id.filter(|_| lease.is_none()), held, ..record }
            });
            let history: History = records.collect();
            let verdict = Checker::new(kind.limit).check(&history);
            let can_be = explainable(kind, &None, &BTreeMap::new(), 0, history.records());
            prop_assert!(verdict.is_clean() || !can_be, "{:?}\n{verdict}\n{history:#?}", kind.limit);
            let mut seen = seen.borrow_mut();
            seen[if can_be { 0 } else { 1 + usize::from(verdict.is_clean()) }] += 1;
            Ok(())
        });
        let [explained, accused, missed] = tally;
        println!("{:?}: {explained} explainable, {accused} accused, {missed} missed", kind.limit);
        assert!(explained > 100 && accused > 100, "{explained} explainable, {accused} accused");
        assert!(missed * 2 < accused, "{:?}: {accused} accused, {missed} missed", kind.limit);
    }
}
