//! The summary for a terminal.

use std::fmt::Write;
use std::time::Duration;

use super::{counted, share, thousands};
use crate::cli::terminal::{GREEN, RED, STRONG, duration};
use crate::simulate::requirement::Verdict;
use crate::simulate::results::{Results, SetResults, SubjectResult};
use crate::simulate::suggest::{Proposal, Suggestion};
use crate::text::escape_control;

/// Subjects in a list of the summary. The other reports have more.
const LISTED_MAX: usize = 5;

/// Formats the results. Thresholds come first.
pub(in crate::simulate) fn text(results: &Results, verdicts: &[Verdict]) -> String {
    let mut out = String::new();
    write_to(&mut out, results, verdicts).expect("writing to a string cannot fail");
    out
}

fn write_to(out: &mut String, results: &Results, verdicts: &[Verdict]) -> std::fmt::Result {
    let width = verdicts.iter().map(|verdict| verdict.requirement.chars().count()).max().unwrap_or(0);
    for Verdict { requirement, passed, found } in verdicts {
        let (mark, style) = if *passed { ('✓', GREEN) } else { ('✗', RED) };
        writeln!(out, "{style}{mark}{style:#} {:<width$}  {found}", escape_control(requirement))?;
    }
    if !verdicts.is_empty() {
        writeln!(out)?;
    }
    writeln!(out, "{}", first_line(results))?;
    for log in &results.inputs {
        if let Some(error) = &log.counts.truncated {
            writeln!(out, "{} ends early: {}", escape_control(&log.name), escape_control(error))?;
        }
        if let Some((line, reason)) = log.counts.first_unreadable {
            writeln!(out, "{}:{line} is the first unreadable line: {reason}", escape_control(&log.name))?;
        }
        if let Some(capture) = &log.capture
            && capture.dropped > 0
        {
            let dropped = counted(capture.dropped, "check");
            writeln!(out, "{} lacks {dropped} that the server could not write", escape_control(&log.name))?;
        }
    }
    rules_table(out, results)?;
    let SetResults { unmatched, denied, bypassed, undecided, .. } = &results.new;
    let listless = [("No rule counts", unmatched), ("Denied", denied), ("Bypassed", bypassed)];
    let listless = listless.iter().filter(|(_, count)| **count > 0);
    let listless: Vec<_> = listless.map(|(name, count)| format!("{name}: {}", thousands(**count))).collect();
    if !listless.is_empty() {
        writeln!(out, "{}", listless.join("    "))?;
    }
    for (error, count) in undecided {
        writeln!(out, "{} could not be decided: {}", counted(*count, "request"), escape_control(error))?;
    }
    if results.old.is_some() {
        let newly = counted(results.newly_refused.len() as u64, "subject");
        let allowed = thousands(results.newly_allowed.len() as u64);
        writeln!(
            out,
            "{STRONG}Newly refused:{STRONG:#} {newly}    {STRONG}Newly allowed:{STRONG:#} {allowed}"
        )?;
        subjects(out, &results.newly_refused.listed)?;
    } else if !results.top.is_empty() {
        writeln!(out, "{STRONG}Refused most:{STRONG:#}")?;
        subjects(out, &results.top)?;
    }
    suggestions(out, results)?;
    for left_out in &results.not_simulated {
        let (rule, reason) = (escape_control(&left_out.rule), escape_control(&left_out.reason));
        writeln!(out, "Not simulated: {rule} ({reason})")?;
    }
    writeln!(out, "Not modelled: clients that retry after a refusal.")
}

fn first_line(results: &Results) -> String {
    let new = &results.new;
    let span = new.span.map_or(0, |(first, last)| (last - first).us() / 1_000);
    let mut line = format!("{}, {}", counted(new.requests, "request"), span_text(span));
    let seconds = results.took.as_secs_f64();
    line += &format!(", {} ({})", took(results.took), rate(new.requests as f64 / seconds.max(1e-9)));
    let (unreadable, lines) = results.unreadable();
    if results.synthetic.is_none() {
        let share = if unreadable == 0 { String::new() } else { format!(" ({})", share(unreadable, lines)) };
        line += &format!("; {} unreadable{share}", counted(unreadable, "line"));
    }
    line
}

fn span_text(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{} s", ms / 1_000),
        60_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", (ms + 1_800_000) / 3_600_000),
        _ => duration(ms / 3_600_000 * 3_600_000),
    }
}

fn took(took: Duration) -> String {
    let seconds = took.as_secs_f64();
    if seconds < 1.0 { format!("{} ms", took.as_millis()) } else { format!("{seconds:.1} s") }
}

fn rate(per_second: f64) -> String {
    match per_second {
        1e6.. => format!("{:.2} M/s", per_second / 1e6),
        1e3.. => format!("{:.0} k/s", per_second / 1e3),
        _ => format!("{per_second:.0}/s"),
    }
}

fn rules_table(out: &mut String, results: &Results) -> std::fmt::Result {
    let mut rows =
        vec![["RULE", "CHECKS", "REFUSED", "", "OLD", "SUBJECTS HIT", "PEAK SUBJECTS"].map(str::to_owned)];
    for rule in &results.new.rules {
        let shadow = if rule.shadow_refused > 0 {
            format!(" (shadow {})", share(rule.shadow_refused, rule.checks))
        } else {
            String::new()
        };
        let old = results.old.as_ref().and_then(|old| old.rule(&rule.id));
        rows.push([
            escape_control(&rule.id),
            thousands(rule.checks),
            thousands(rule.refused),
            share(rule.refused, rule.checks) + &shadow,
            old.map_or_else(|| "-".to_owned(), |old| share(old.refused, old.checks)),
            thousands(rule.subjects_hit),
            thousands(rule.peak_subjects),
        ]);
    }
    let gone =
        results.old.iter().flat_map(|old| &old.rules).filter(|rule| results.new.rule(&rule.id).is_none());
    for rule in gone {
        let old = share(rule.refused, rule.checks);
        rows.push([&escape_control(&rule.id), "-", "-", "-", &old, "-", "-"].map(str::to_owned));
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    for (number, row) in rows.iter().enumerate() {
        let [id, checks, refused, share, old, hit, peak] = row;
        let [w_id, w_checks, w_refused, w_share, w_old, w_hit, w_peak] = widths;
        let mut line = format!("{id:<w_id$}  {checks:>w_checks$}  {refused:>w_refused$} {share:<w_share$}");
        if results.old.is_some() {
            line += &format!("  {old:>w_old$}");
        }
        line += &format!("  {hit:>w_hit$}  {peak:>w_peak$}");
        match number {
            0 => writeln!(out, "{STRONG}{}{STRONG:#}", line.trim_end())?,
            _ => writeln!(out, "{}", line.trim_end())?,
        }
    }
    Ok(())
}

/// The proposed numbers, as the lines of a diff.
fn suggestions(out: &mut String, results: &Results) -> std::fmt::Result {
    for Suggestion { rule, percent_now, proposal } in results.suggestions.iter().flatten() {
        match proposal {
            Proposal::Within => (),
            Proposal::Impossible(reason) => {
                writeln!(out, "No suggestion: {} ({reason})", escape_control(rule))?
            }
            Proposal::Change { line, before, after, percent } => {
                writeln!(
                    out,
                    "@@ {}:{line} {}: refused {percent_now:.2}% -> {percent:.2}%",
                    escape_control(&results.new.name),
                    escape_control(rule)
                )?;
                writeln!(
                    out,
                    "{RED}-{}{RED:#}\n{GREEN}+{}{GREEN:#}",
                    escape_control(before),
                    escape_control(after)
                )?;
            }
        }
    }
    Ok(())
}

fn subjects(out: &mut String, listed: &[SubjectResult]) -> std::fmt::Result {
    for subject in listed.iter().take(LISTED_MAX) {
        let values = subject
            .values
            .as_ref()
            .map_or_else(String::new, |values| format!("  {}", escape_control(values)));
        let (refused, checks) = (thousands(subject.refused), thousands(subject.checks));
        writeln!(
            out,
            "  {}  {}  {refused} refused of {checks}{values}",
            subject.subject,
            escape_control(&subject.rule)
        )?;
    }
    Ok(())
}
