//! The picture of the penalty: waits grow with failures, and a success clears them.

use crate::generate::pictures::chart::{Axis, Bar, Chart, Layer, Note, Plot, Row};
use crate::generate::pictures::script::{Gauge, Step, Subject, instant, run, seconds};
use tollgate_core::algorithm::penalty::{Penalty, PenaltyNumbers};
use tollgate_core::{Limit, LimitError, Operation, Report, Span, State};
use tollgate_server::drawing::Look;

pub(in crate::generate::pictures) fn chart() -> Result<Chart, LimitError> {
    let limit = Limit::Penalty(Penalty::new(PenaltyNumbers {
        free: 2,
        base: Span::from_secs(2),
        factor: 2,
        longest: Span::from_secs(8),
        memory: Span::from_secs(12),
        count_refused: false,
    })?);
    // Every admitted attempt fails 100 ms later, except the one at 33 s, which succeeds.
    let script: Vec<Step> = [
        (1_000, Some(Report::Failure)),
        (2_500, Some(Report::Failure)),
        (4_000, Some(Report::Failure)),
        (5_000, None),
        (6_500, Some(Report::Failure)),
        (8_500, None),
        (11_500, Some(Report::Failure)),
        (14_000, None),
        (17_000, None),
        (21_000, Some(Report::Failure)),
        (24_000, None),
        (27_000, None),
        (33_000, Some(Report::Success)),
        (35_000, Some(Report::Failure)),
    ]
    .into_iter()
    .flat_map(|(at_ms, report)| {
        let attempt = (at_ms, Operation::charge(1));
        let outcome = report.map(|result| (at_ms + 100, Operation::Report { result }));
        [Some(attempt), outcome].into_iter().flatten()
    })
    .collect();
    let trace = run(limit, &script, Gauge::Failures.until(50_000));
    Ok(Chart {
        title: "Penalty",
        subtitle: "penalty: 2s, free: 2, factor: 2, longest: 8s, memory: 12s.",
        description: "Login attempts over fifty seconds. Two failures are free. The third causes a wait of two \
                      seconds, the next four, the next eight, and the one after that eight again, the longest \
                      wait. Attempts during a wait are refused. A success at thirty-three seconds clears the \
                      record. A single later failure is forgotten twelve seconds after it.",
        legend: vec![
            (Look::Admitted, "admitted"),
            (Look::Refused, "refused"),
            (Look::Level, "failures on record"),
            (Look::Wait, "wait"),
            (Look::Limit, "free failures"),
        ],
        axis: Axis::seconds(50, 5),
        edges: vec![],
        rows: vec![
            Row::Plot(Plot {
                caption: "failures on record",
                height_px: 120.0,
                max: 7.5,
                step: 1.0,
                layers: vec![
                    Layer::Area(Look::LevelArea, trace.level.clone()),
                    Layer::Line(Look::Level, trace.level),
                    Layer::Limit(2.0, "2 free".to_owned()),
                    Note::right(33.1, 4.5, 18.0, -12.0, "a success clears the record"),
                    Note::left(47.1, 0.6, 14.0, -38.0, "forgotten after 12 s"),
                ],
            }),
            Row::Marks { caption: "attempts", marks: trace.marks },
            Row::Bars { caption: "waits", bars: waits(limit, &script) },
        ],
    })
}

/// Returns one bar for each failure that caused a wait.
fn waits(limit: Limit, script: &[Step]) -> Vec<Bar> {
    let mut subject = Subject::new(limit);
    let mut waits: Vec<Bar> = Vec::new();
    for &(at_ms, operation) in script {
        subject.apply(instant(at_ms), &operation);
        let wait_ms = match (operation, subject.state()) {
            (Operation::Report { .. }, Some(State::Penalty(state))) => {
                (state.until - instant(at_ms)).ms_ceil()
            }
            _ => 0,
        };
        if wait_ms > 0 {
            let (from, to) = (seconds(at_ms), seconds(at_ms + wait_ms));
            let label = format!("{} s", wait_ms / 1_000);
            waits.push(Bar { from, to, look: Look::Wait, track: 0, label, dots: Vec::new() });
        }
    }
    waits
}
