//! Checks the tables of known faults in docs/proof.md: each row names the tests that fail if the fault comes back.

use std::collections::BTreeSet;

use crate::tidy::Problem;
use crate::tidy::rust::Source;
use crate::tidy::tree::Tree;

const PAGE: &str = "docs/proof.md";
/// The sections, and the least number of rows in each: rows are added and never removed.
const SECTIONS: [(&str, usize); 2] =
    [("### Seen in other limiters", 22), ("### Seen in earlier builds of this limiter", 16)];

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Problem> {
    let Some((_, text)) = tree.texts(PAGE).find(|(path, _)| *path == PAGE) else {
        return vec![Problem::new(PAGE, 1, "the page is missing", "write it: how each promise is proved")];
    };
    let functions: BTreeSet<String> = tree
        .texts(".rs")
        .flat_map(|(_, text)| Source::read(text).functions().map(str::to_owned).collect::<Vec<String>>())
        .collect();
    let mut problems = Vec::new();
    for (heading, rows_min) in SECTIONS {
        let Some(start) = text.lines().position(|line| line == heading) else {
            let what = format!("no section {heading:?}");
            problems.push(Problem::new(PAGE, 1, what, "keep the tables of known faults"));
            continue;
        };
        let section = text.lines().enumerate().skip(start + 1).take_while(|(_, line)| !line.starts_with('#'));
        let rows: Vec<(usize, &str)> = section.filter(|(_, line)| line.starts_with('|')).skip(2).collect();
        for (index, row) in &rows {
            let named = tests_of(row);
            let unknown: Vec<&str> =
                named.iter().copied().filter(|name| !functions.contains(*name)).collect();
            if named.is_empty() {
                let fix = "name the test that fails if the fault comes back";
                problems.push(Problem::new(PAGE, index + 1, "a fault without a test", fix));
            } else if !unknown.is_empty() {
                let what = format!("no test {}", unknown.join(", "));
                problems.push(Problem::new(PAGE, index + 1, what, "name a test function of this repository"));
            }
        }
        if rows.len() < rows_min {
            let what = format!("{} known faults, fewer than {rows_min}", rows.len());
            problems.push(Problem::new(PAGE, start + 1, what, "keep every fault and its test"));
        }
    }
    problems
}

/// The names in backticks in the second column.
fn tests_of(row: &str) -> Vec<&str> {
    let column = row.split('|').nth(2).unwrap_or_default();
    column.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::found;

    const TESTS: (&str, &str) = ("crates/core/tests/a.rs", "#[test]\nfn proves_it() {}\n");

    fn page(cell: &str) -> String {
        let table = |rows: usize, cell: &str| {
            let others = "| other | `proves_it` |\n".repeat(rows - 1);
            format!("\n| fault | test |\n|---|---|\n| fault | {cell} |\n{others}\n")
        };
        let [(first, count), (second, other_count)] = SECTIONS;
        format!("{first}\n{}{second}\n{}", table(count, cell), table(other_count, "`proves_it`"))
    }

    #[test]
    fn each_fault_names_tests_that_exist() {
        assert_eq!(found(check, &[(PAGE, &page("`proves_it`: words")), TESTS]), [""; 0]);
        for cell in ["", "surely", "`gone`", "`proves_it`, `gone`"] {
            assert_eq!(found(check, &[(PAGE, &page(cell)), TESTS]), ["docs/proof.md:5"], "{cell}");
        }
    }

    #[test]
    fn no_fault_is_removed() {
        let shorter = page("`proves_it`").replacen("| other | `proves_it` |\n", "", 1);
        assert_eq!(found(check, &[(PAGE, &shorter), TESTS]), ["docs/proof.md:1"]);
    }
}
