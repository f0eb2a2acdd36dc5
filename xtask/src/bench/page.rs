//! A suite's part of `docs/performance.md`.

use super::machine::Machine;
use super::summary::Summary;
use super::targets;
use tollgate_bench_report::Report;

/// Returns the text between the markers of the suite.
pub(super) fn section(report: &Report, summary: &Summary, machine: &Machine) -> String {
    let mut text = format!("### Targets\n\n{}\n", targets::table(&summary.targets).markdown());
    for picture in &summary.pictures {
        text += &format!("![{}](performance/{})\n\n", picture.title, picture.file);
    }
    for titled in &summary.tables {
        text += &format!("### {}\n\n{}\n", titled.title, titled.table.markdown());
    }
    text + &summary.notes + &contenders(report) + &made(report, summary, machine)
}

fn contenders(report: &Report) -> String {
    let mut text = "### Contenders\n\n| name | what was called |\n|---|---|\n".to_owned();
    for contender in &report.contenders {
        text += &format!("| {} | {} |\n", contender.name, contender.what);
    }
    text + "\n"
}

fn made(report: &Report, summary: &Summary, machine: &Machine) -> String {
    let Machine { processor, cores, memory_gib, system, compiler, packages } = machine;
    let versions: Vec<&str> = report.server.iter().chain(packages).map(String::as_str).collect();
    format!(
        "### How it was measured\n\n\
         `cargo xtask bench --suite {} --rounds {}`, {}, on a machine with {cores} cores ({processor}), {memory_gib} GiB \
         of memory, {system}; {compiler}; {}.",
        report.suite,
        report.rounds,
        summary.effort,
        versions.join(", "),
    )
}
