//! The picture of the concurrency limit: leases that are released, renewed, or abandoned until they expire.

use crate::generate::pictures::chart::{Axis, Bar, Chart, Layer, Note, Plot, Row};
use crate::generate::pictures::script::{Gauge, Step, instant, run, seconds};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::{Answer, Limit, LimitError, Mark, Operation, Span, Time, Token};
use tollgate_server::drawing::Look;

pub(in crate::generate::pictures) fn chart() -> Result<Chart, LimitError> {
    let limit = Limit::Concurrency(Concurrency::new(3, Span::from_secs(8))?);
    let take = |at_ms, name: u8, cost| (at_ms, Operation::Charge { cost, token: token(name) });
    let renew = |at_ms, name| (at_ms, Operation::Renew { token: token(name) });
    let release = |at_ms, name| (at_ms, Operation::Release { token: token(name) });
    let script = [
        take(1_000, b'A', 1),
        take(2_000, b'B', 1),
        take(3_000, b'C', 1),
        take(4_000, b'D', 1),
        release(5_000, b'C'),
        take(6_000, b'D', 1),
        renew(7_000, b'A'),
        take(8_000, b'E', 1),
        take(10_000, b'E', 1),
        release(12_000, b'D'),
        renew(13_000, b'A'),
        release(15_000, b'A'),
        release(16_500, b'E'),
        take(18_000, b'F', 2),
        take(19_500, b'G', 2),
        take(21_000, b'G', 1),
        renew(24_000, b'F'),
        release(26_000, b'G'),
        release(28_000, b'F'),
    ];
    let trace = run(limit, &script, Gauge::Used.until(30_000));
    let bars = leases(&script, &trace.answers);
    Ok(Chart {
        title: "Concurrency",
        subtitle: "concurrency: 3, lease: 8s. Numbers in marks are weights above one.",
        description: "Leases over thirty seconds with a limit of three. Owners release their leases or renew them; \
                      the owner of lease B crashes, and the lease expires eight seconds after it was taken. A request \
                      that was refused before is admitted at that instant. A lease of weight two takes two of the three units.",
        legend: vec![
            (Look::Admitted, "admitted"),
            (Look::Refused, "refused"),
            (Look::Level, "held"),
            (Look::Limit, "limit"),
            (Look::Bar, "lease, released"),
            (Look::Lapsed, "lease, expired"),
            (Look::Event, "renewed"),
        ],
        axis: Axis::seconds(30, 2),
        edges: vec![],
        rows: vec![
            Row::Plot(Plot {
                caption: "units held",
                height_px: 100.0,
                max: 4.2,
                step: 1.0,
                layers: vec![
                    Layer::Area(Look::LevelArea, trace.level.clone()),
                    Layer::Line(Look::Level, trace.level),
                    Layer::Limit(3.0, "limit 3".to_owned()),
                    Note::right(10.0, 3.0, 14.0, -18.0, "B expires, E is admitted at that instant"),
                ],
            }),
            Row::Marks { caption: "requests", marks: trace.marks },
            Row::Bars { caption: "leases", bars },
        ],
    })
}

/// Returns one bar for each admitted lease, up to its release or expiry.
fn leases(script: &[Step], answers: &[Answer]) -> Vec<Bar> {
    let mut leases: Vec<(Token, Bar)> = Vec::new();
    for (&(at_ms, operation), answer) in script.iter().zip(answers) {
        let at = seconds(at_ms);
        let found = |token| leases.iter().position(|(owner, _)| *owner == token);
        match (operation, answer.mark) {
            (Operation::Charge { cost, token }, Mark::Held { until, .. }) => {
                let name = char::from(token.0 as u8);
                let label = if cost == 1 { name.to_string() } else { format!("{name}, weight {cost}") };
                let to = after_origin(until);
                let track = leases.len();
                let bar = Bar { from: at, to, look: Look::Lapsed, track, label, dots: Vec::new() };
                leases.push((token, bar));
            }
            (Operation::Renew { token }, Mark::Held { until, .. }) => {
                if let Some(index) = found(token) {
                    leases[index].1.to = after_origin(until);
                    leases[index].1.dots.push(at);
                }
            }
            (Operation::Release { token }, _) => {
                if let Some(index) = found(token) {
                    leases[index].1.to = at;
                    leases[index].1.look = Look::Bar;
                }
            }
            _ => {}
        }
    }
    leases.into_iter().map(|(_, bar)| bar).collect()
}

fn token(name: u8) -> Token {
    Token(u128::from(name))
}

fn after_origin(time: Time) -> f64 {
    (time - instant(0)).us() as f64 / 1e6
}
