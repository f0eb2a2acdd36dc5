//! A suite's part of `docs/performance.md`.

use super::machine::Machine;
use super::pictures::Picture;
use super::report::Report;
use super::table::number;
use super::{tables, targets};

/// The text between the marks of the suite.
pub(super) fn section(report: &Report, machine: &Machine, pictures: &[Picture]) -> String {
    let mut text = format!("### Targets\n\n{}\n", targets::table(report).markdown());
    for picture in pictures {
        text += &format!("![{}](performance/{})\n\n", picture.title, picture.file);
    }
    for titled in tables::all(report) {
        text += &format!("### {}\n\n{}\n", titled.title, titled.table.markdown());
    }
    let counted =
        report.rows.iter().flat_map(|row| &row.results).any(|measured| measured.instructions.is_some());
    if !counted {
        text += "Instructions were not counted: callgrind was not available on that machine.\n\n";
    }
    text + &contenders(report) + &made(report, machine)
}

fn contenders(report: &Report) -> String {
    let mut text = "### Who took part\n\n| name | what was called |\n|---|---|\n".to_owned();
    for contender in &report.contenders {
        text += &format!("| {} | {} |\n", contender.name, contender.what);
    }
    text + "\n"
}

fn made(report: &Report, machine: &Machine) -> String {
    let Machine { processor, cores, memory_gib, system, compiler, packages } = machine;
    format!(
        "### How it was made\n\n\
         `cargo xtask bench --suite {} --rounds {}`, {} decisions per contender, row and round (a tenth of that for \
         limitador), on a machine with {cores} cores ({processor}), {memory_gib} GiB of memory, {system}; {compiler}; {}.",
        report.suite,
        report.rounds,
        number(report.decisions as f64),
        packages.join(", "),
    )
}
