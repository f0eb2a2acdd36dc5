//! Tables of the measured figures.

use super::numbers::{count, per_cent};
use crate::generate::measure::{LIMIT, Measured, Measurements, PHASES, Phase, SEED, TRACE_MIN};
use tollgate_core::algorithm::sliding_window::Counting;

pub(super) fn fixed_window(measurements: &Measurements) -> String {
    let fixed = &measurements.fixed;
    let rows = [
        ("evenly spaced, at twice the limit", &fixed.evenly),
        ("a burst of twice the limit at the start of every window", &fixed.bursts),
        ("[the trace](sliding-window.md#the-trace)", &fixed.trace),
        ("worst case: one burst at the end of a window, one at the start of the next", &fixed.worst_case),
    ];
    let mut table = vec![
        "| traffic | requests | admitted | most in any 60 s | share of the limit |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    table.extend(rows.iter().map(|(traffic, measured)| {
        let Measured { asked, admitted, most, .. } = measured;
        let (asked, admitted) = (count(*asked as usize), count(admitted.len()));
        format!("| {traffic} | {asked} | {admitted} | {most} | {} % |", most * 100 / LIMIT)
    }));
    table.join("\n")
}

pub(super) fn sliding_window(measurements: &Measurements) -> String {
    let log = &measurements.log;
    let figures = |measured: &Measured| {
        let admitted = measured.admitted.len();
        let of_log = per_cent(admitted as u64, log.admitted.len() as u64);
        let early = per_cent(measured.refused_early, measured.asked);
        let (admitted, most, excess) = (count(admitted), measured.most, measured.excess());
        format!("{admitted} | {of_log} % | {most} | {excess} | {early} %")
    };
    let mut table = vec![
        "| counting | buckets | admitted | compared with the log | most in any 60 s | over the limit by | refused early | \
         worst case |"
            .to_owned(),
        "|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    table.extend(measurements.windows.iter().map(|window| {
        let counting = match window.counting {
            Counting::Strict => "strict",
            Counting::Interpolated => "interpolated",
        };
        format!(
            "| {counting} | {} | {} | {} |",
            window.buckets,
            figures(&window.trace),
            window.worst_case.most
        )
    }));
    table.push(format!("| exact log | | {} | |", figures(log)));
    table.join("\n")
}

/// Describes the phases of the trace.
pub(super) fn trace(measurements: &Measurements) -> String {
    let asked = count(measurements.log.asked as usize);
    let mut text = format!(
        "{asked} requests of cost 1 from one subject over {TRACE_MIN} minutes, seed {SEED}. The trace is a sequence of \
         random phases:\n\n| phase | frequency | requests per minute | duration |\n|---|---|---|---|\n"
    );
    for Phase { name, in_ten, per_minute, shortest_s, longest_s } in PHASES {
        let per_minute = count(per_minute as usize);
        text += &format!("| {name} | {in_ten} in 10 | {per_minute} | {shortest_s} to {longest_s} s |\n");
    }
    text + "\nWithin a phase, every millisecond has the same probability of a request."
}
