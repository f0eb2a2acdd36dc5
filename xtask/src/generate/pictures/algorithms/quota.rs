//! The picture of the quota: a month with reservations and grace, and the start of the next month.

use crate::generate::pictures::chart::{Axis, Chart, Interval, Layer, Mark, Note, Plot, Row};
use crate::generate::pictures::script::{Gauge, ORIGIN, Sampling, Step, run};
use anyhow::Result;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::time::calendar::{Calendar, Period};
use tollgate_core::{Limit, Operation, Span, Time, Token};
use tollgate_server::drawing::Look;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const DAY_S: f64 = 86_400.0;

pub(in crate::generate::pictures) fn chart() -> Result<Chart> {
    let calendar = Calendar::new(Period::Month { day: 1 }, "Europe/Berlin")?;
    let periods = calendar.around(ORIGIN.plus(Span::from_ms(60 * DAY_MS)));
    let limit = Limit::Quota(Quota::new(100, 5, QuotaPeriod::Calendar(periods))?);
    let [_, march, april, _] = periods.starts();
    let march_ms = after_origin(march).us() / 1_000;
    let script = script(march_ms);
    let sampling =
        |gauge| Sampling { gauge, from_ms: march_ms, until_ms: march_ms + 45 * DAY_MS, every_ms: HOUR_MS };
    let consumed = run(limit, &script, sampling(Gauge::Consumed));
    let with_reserved = run(limit, &script, sampling(Gauge::ConsumedAndReserved));

    let from = march_ms as f64 / 1e3;
    let day = |day: f64| from + day * DAY_S;
    let edge = after_origin(april).us() as f64 / 1e6;
    let ticks = [(1, "Mar"), (8, "Mar"), (15, "Mar"), (22, "Mar"), (29, "Mar"), (5, "Apr"), (12, "Apr")];
    let ticks = ticks.iter().enumerate();
    let ticks =
        ticks.map(|(week, (date, month))| (day(week as f64 * 7.0), format!("{date} {month}"))).collect();
    Ok(Chart {
        title: "Quota",
        subtitle: "quota: 100/month, zone: Europe/Berlin, grace: 5%. Numbers in marks are costs.",
        description: "Six weeks of a monthly quota of one hundred with a grace of five. A reservation of twenty is \
                      settled with fourteen. Another of twenty-five is never settled and expires; a request that \
                      was refused because of it is admitted afterwards. At the end of March the consumption exceeds one \
                      hundred and stops at one hundred and five. At midnight on the first of April it starts again \
                      at zero.",
        legend: vec![
            (Look::Admitted, "admitted"),
            (Look::Refused, "refused"),
            (Look::Level, "consumed"),
            (Look::ReservedArea, "reserved"),
            (Look::Limit, "quota, without and with grace"),
            (Look::Edge, "00:00 in Berlin"),
        ],
        axis: Axis { from, to: day(45.0), ticks },
        edges: vec![edge],
        rows: vec![
            Row::Ruler(vec![
                Interval { from, to: edge, label: "March".to_owned() },
                Interval { from: edge, to: day(45.0), label: "April".to_owned() },
            ]),
            Row::Plot(Plot {
                caption: "units",
                height_px: 170.0,
                max: 125.0,
                step: 25.0,
                layers: vec![
                    Layer::Area(Look::ReservedArea, with_reserved.level),
                    Layer::Area(Look::LevelArea, consumed.level.clone()),
                    Layer::Line(Look::Level, consumed.level),
                    Layer::Limit(100.0, "quota 100".to_owned()),
                    Layer::Limit(105.0, "grace 105".to_owned()),
                    Note::left(day(9.9), 42.0, 0.0, -24.0, "20 reserved, 14 used"),
                    Note::left(day(15.0), 68.0, 24.0, -20.0, "25 reserved, never settled"),
                ],
            }),
            Row::Marks { caption: "requests", marks: charges_only(&script, &consumed.marks) },
        ],
    })
}

fn script(march_ms: u64) -> Vec<Step> {
    let (first, second) = (Token(1), Token(2));
    let charge = |cost| Operation::charge(cost);
    let steps = [
        (12, charge(8)),
        (3 * 24, charge(8)),
        (5 * 24, charge(10)),
        (7 * 24, Operation::Reserve { cost: 20, token: first, hold: Span::from_ms(6 * DAY_MS) }),
        (10 * 24, Operation::Settle { token: first, actual: 14 }),
        (12 * 24, charge(9)),
        (14 * 24, Operation::Reserve { cost: 25, token: second, hold: Span::from_ms(4 * DAY_MS) }),
        (16 * 24, charge(32)),
        (18 * 24, charge(32)),
        (21 * 24, charge(12)),
        (24 * 24, charge(9)),
        (26 * 24, charge(5)),
        (28 * 24, charge(3)),
        (30 * 24, charge(2)),
        (32 * 24, charge(8)),
        (35 * 24, charge(12)),
        (39 * 24, charge(9)),
        (42 * 24, charge(10)),
    ];
    steps.into_iter().map(|(hour, operation)| (march_ms + hour * HOUR_MS, operation)).collect()
}

/// Removes reservations, which the plot shows instead.
fn charges_only(script: &[Step], marks: &[Mark]) -> Vec<Mark> {
    let asked = script.iter().filter(|(_, operation)| operation.cost().is_some());
    let charged =
        asked.zip(marks).filter(|((_, operation), _)| matches!(operation, Operation::Charge { .. }));
    charged.map(|(_, mark)| *mark).collect()
}

fn after_origin(time: Time) -> Span {
    time - ORIGIN
}
