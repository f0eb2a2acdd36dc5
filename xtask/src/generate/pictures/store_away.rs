//! The picture of the failure policies: what each admits while the store is away.

use super::chart::{Axis, Chart, Layer, Plot, Point, Row, simplify};
use crate::generate::outage::{AWAY, QUOTA, RATE, RUN_S, Run};
use tollgate_server::drawing::Look;

/// The runs that are drawn. `degraded` admits as `open` does, and `local fair` as `local 25%` with four servers.
const SHOWN: [(usize, &str); 4] = [(0, "closed"), (1, "open, degraded"), (3, "local 25%"), (5, "cap 5/s")];
/// The run of the quota.
const OF_QUOTA: usize = 6;

pub(super) fn chart(runs: &[Run]) -> Chart {
    let steps = |values: &[u64]| {
        let points = values.iter().zip(0_u32..).flat_map(|(value, second)| {
            let point = |at| Point { at, value: *value as f64 };
            [point(f64::from(second)), point(f64::from(second + 1))]
        });
        simplify(points.collect())
    };
    let plot = |caption, values: &[u64], height_px, max, step| {
        let points = steps(values);
        let layers = vec![Layer::Area(Look::LevelArea, points.clone()), Layer::Line(Look::Level, points)];
        Row::Plot(Plot { caption, height_px, max, step, layers })
    };
    let max = RATE as f64 * 1.1;
    let mut rows: Vec<Row> = SHOWN
        .iter()
        .filter_map(|(number, caption)| {
            Some(plot(caption, &runs.get(*number)?.admitted, 54.0, max, RATE as f64 / 2.0))
        })
        .collect();
    rows.extend(
        runs.get(OF_QUOTA)
            .map(|run| plot("quota: counted", &run.counted, 84.0, QUOTA as f64 * 0.8, QUOTA as f64 / 4.0)),
    );
    Chart {
        title: "Failure policies while the store is away",
        subtitle: "20 checks a second of one subject, fixed-window: 100/10s. Admitted in each second.",
        description: "Admissions per second over seventy seconds under four failure policies. The store is away from \
                      second 20 to second 45. Before and after, all admit one hundred units per ten seconds. While \
                      the store is away, closed admits nothing, open everything, local 25% a burst of 25 units in \
                      each window of ten seconds, and cap 5/s five units in each second. The last row shows what the \
                      store counts under a quota: the count stands still while the store is away, and the local \
                      admissions are added when it is back.",
        legend: vec![
            (Look::Level, "admitted in each second; last row: units counted by the store"),
            (Look::Edge, "store away, store back"),
        ],
        axis: Axis::seconds(RUN_S as u32, 10),
        edges: vec![AWAY.start as f64, AWAY.end as f64],
        rows,
    }
}
