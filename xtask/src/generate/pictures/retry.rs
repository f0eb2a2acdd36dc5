//! The picture of retry-after: one request per microsecond, around the instant that a refusal stated.

use super::chart::{Axis, Chart, Mark, Row};
use super::script::{Subject, instant};
use anyhow::{Result, bail};
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::{Limit, Operation, Retry, Span, Verdict};
use tollgate_server::drawing::Look;

const REACH_US: u64 = 6;

pub(super) fn chart() -> Result<Chart> {
    let second = Span::from_secs(1);
    let window = SlidingWindow::new(7, Span::from_secs(60), 6, Counting::Interpolated)?;
    let limits = [
        ("token bucket", Limit::Bucket(Bucket::tokens(7, second, 3)?)),
        ("window", Limit::SlidingWindow(window)),
        ("log", Limit::SlidingLog(SlidingLog::new(4, second)?)),
    ];
    let mut rows = Vec::new();
    for (caption, limit) in limits {
        rows.push(Row::Marks { caption, marks: around_retry(limit)? });
    }
    let reach = REACH_US as f64;
    let ticks = (0..=2 * REACH_US).step_by(2).map(|n| n as f64 - reach);
    let ticks = ticks.map(|us| (us, if us == 0.0 { "retry at".to_owned() } else { format!("{us:+} µs") }));
    Ok(Chart {
        title: "Retry-after is exact to the microsecond",
        subtitle: "token-bucket: 7/s, burst: 3; sliding-window: 7/min, buckets: 6, interpolated; sliding-log: 4/s.",
        description: "Three algorithms, each asked once per microsecond around the retry-after of its refusal. All \
                      refuse up to one microsecond before that instant and admit from it on.",
        legend: vec![
            (Look::Admitted, "would be admitted"),
            (Look::Refused, "would be refused"),
            (Look::Edge, "retry-after of the refusal"),
        ],
        axis: Axis { from: -reach - 0.5, to: reach + 0.5, ticks: ticks.collect() },
        edges: vec![0.0],
        rows,
    })
}

/// Uses up the limit, then peeks once per microsecond around the retry-after of the refusal.
fn around_retry(limit: Limit) -> Result<Vec<Mark>> {
    let mut subject = Subject::new(limit);
    let charge = Operation::charge(1);
    let refused =
        (0..100).map(|n| subject.apply(instant(n * 13), &charge)).find(|answer| answer.is_refused());
    let Some(Verdict::Refused(Retry::At(retry_at))) = refused.map(|answer| answer.verdict) else {
        bail!("{} did not refuse", limit.algorithm().name());
    };
    let mark = |us: u64| {
        let now = retry_at.minus(Span::from_us(REACH_US)).plus(Span::from_us(us));
        let answer = limit.decide(subject.state(), now, &Operation::Peek { cost: 1 }).answer;
        let look = if answer.is_admitted() { Look::Admitted } else { Look::Refused };
        Mark { at: us as f64 - REACH_US as f64, look, cost: 1 }
    };
    Ok((0..=2 * REACH_US).map(mark).collect())
}
