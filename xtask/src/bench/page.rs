//! A suite's part of `docs/performance.md`.

use super::machine::Machine;
use super::report::Report;
use super::targets;
use super::told::Told;

/// The text between the marks of the suite.
pub(super) fn section(report: &Report, told: &Told, machine: &Machine) -> String {
    let mut text = format!("### Targets\n\n{}\n", targets::table(&told.targets).markdown());
    for picture in &told.pictures {
        text += &format!("![{}](performance/{})\n\n", picture.title, picture.file);
    }
    for titled in &told.tables {
        text += &format!("### {}\n\n{}\n", titled.title, titled.table.markdown());
    }
    text + &told.notes + &contenders(report) + &made(report, told, machine)
}

fn contenders(report: &Report) -> String {
    let mut text = "### Who took part\n\n| name | what was called |\n|---|---|\n".to_owned();
    for contender in &report.contenders {
        text += &format!("| {} | {} |\n", contender.name, contender.what);
    }
    text + "\n"
}

fn made(report: &Report, told: &Told, machine: &Machine) -> String {
    let Machine { processor, cores, memory_gib, system, compiler, packages } = machine;
    let versions: Vec<&str> = report.server.iter().chain(packages).map(String::as_str).collect();
    format!(
        "### How it was made\n\n\
         `cargo xtask bench --suite {} --rounds {}`, {}, on a machine with {cores} cores ({processor}), {memory_gib} GiB \
         of memory, {system}; {compiler}; {}.",
        report.suite,
        report.rounds,
        told.effort,
        versions.join(", "),
    )
}
