//! What was measured, as tables.

use super::numbers::{count, per_cent};
use crate::measure::{LIMIT, Measured, Measurements, PHASES, Phase, SEED, TRACE_MIN};
use tollgate_core::algorithm::sliding_window::Counting;

pub(super) fn fixed_window(measurements: &Measurements) -> String {
    let fixed = &measurements.fixed;
    let rows = [
        ("evenly, twice as many as allowed", &fixed.evenly),
        ("all at once, whenever a refusal is over", &fixed.all_at_once),
        ("as in [the trace](sliding-window.md#the-trace)", &fixed.trace),
        ("timed to hurt: at the end of a window and at the start of the next", &fixed.hurt),
    ];
    let mut table = vec![
        "| requests come | asked | admitted | most in any 60 s | of the limit |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    table.extend(rows.iter().map(|(requests, measured)| {
        let Measured { asked, admitted, most, .. } = measured;
        let (asked, admitted) = (count(*asked as usize), count(admitted.len()));
        format!("| {requests} | {asked} | {admitted} | {most} | {} % |", most * 100 / LIMIT)
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
        "| counting | buckets | admitted | of what the log admits | most in any 60 s | over the limit by | \
         refused too early, of all | most when timed to hurt |"
            .to_owned(),
        "|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    table.extend(measurements.windows.iter().map(|window| {
        let counting = match window.counting {
            Counting::Strict => "strict",
            Counting::Interpolated => "interpolated",
        };
        format!("| {counting} | {} | {} | {} |", window.buckets, figures(&window.trace), window.hurt.most)
    }));
    table.push(format!("| the exact log | | {} | |", figures(log)));
    table.join("\n")
}

/// What the trace is made of.
pub(super) fn trace(measurements: &Measurements) -> String {
    let asked = count(measurements.log.asked as usize);
    let mut text = format!(
        "{asked} requests of cost 1 in {TRACE_MIN} minutes, one subject, seed {SEED}. It is made of phases, drawn at \
         random:\n\n| phase | drawn | requests a minute | lasts |\n|---|---|---|---|\n"
    );
    for Phase { name, in_ten, per_minute, shortest_s, longest_s } in PHASES {
        let per_minute = count(per_minute as usize);
        text +=
            &format!("| {name} | {in_ten} of 10 times | {per_minute} | {shortest_s} to {longest_s} s |\n");
    }
    text + "\nWithin a phase every millisecond has the same chance of a request."
}
