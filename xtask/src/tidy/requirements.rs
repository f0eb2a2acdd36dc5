//! The page of requirements has one row for each, and names only proofs that exist.

use super::Problem;
use super::markdown::{cells, code_spans, links};
use super::rust::Source;
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = "docs/requirements.md";
const NOT_YET: &str = "not yet";

/// How many requirements there are of each kind.
const REQUIREMENTS: &[(char, u32)] =
    &[('A', 13), ('B', 6), ('C', 8), ('D', 6), ('E', 8), ('F', 6), ('G', 3), ('H', 5), ('I', 4)];
const INVARIANTS: u32 = 21;

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let Some((_, text)) = tree.texts(PAGE).find(|(path, _)| *path == PAGE) else {
        return vec![Problem::new(PAGE, 1, "the page is missing", "write it: one row per requirement")];
    };
    let functions: BTreeSet<String> = tree
        .texts(".rs")
        .flat_map(|(_, text)| Source::read(text).functions().map(str::to_owned).collect::<Vec<String>>())
        .collect();
    let mut rows: BTreeMap<String, usize> = ids().into_iter().map(|id| (id, 0)).collect();
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(cells) = cells(line).filter(|cells| cells[0] != "id") else { continue };
        let mut problem = |what: String, fix: &str| problems.push(Problem::new(PAGE, index + 1, what, fix));
        match rows.get_mut(cells[0]) {
            Some(count) => {
                *count += 1;
                if *count > 1 {
                    problem(format!("a second row for {}", cells[0]), "keep one row per id");
                }
            }
            None => problem(format!("{} is no requirement", cells[0]), "use an id of the list"),
        }
        let [_, _, proof] = cells.as_slice() else {
            problem(format!("{} cells", cells.len()), "write three: id, requirement, proof");
            continue;
        };
        if !proof.contains(NOT_YET) && code_spans(proof).next().is_none() && links(proof).is_empty() {
            let fix = "name a test in backticks, link a page, or say: not yet";
            problem("no proof".to_owned(), fix);
        }
        for name in code_spans(proof) {
            let function = name.rsplit("::").next().unwrap_or(name);
            let exists =
                if name.ends_with(".md") { tree.file(name).is_some() } else { functions.contains(function) };
            if !exists {
                let fix = "name a function or a page of this repository";
                problem(format!("there is no test or page {name}"), fix);
            }
        }
    }
    for (id, _) in rows.iter().filter(|(_, count)| **count == 0) {
        let fix = "add it; its proof may be `not yet`";
        problems.push(Problem::new(PAGE, 1, format!("no row for {id}"), fix));
    }
    problems
}

fn ids() -> Vec<String> {
    let requirements =
        REQUIREMENTS.iter().flat_map(|(kind, count)| (1..=*count).map(move |n| format!("{kind}{n}")));
    requirements.chain((1..=INVARIANTS).map(|n| format!("Invariant I{n}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::planted::found;
    use super::*;

    const TESTS: (&str, &str) =
        ("crates/core/tests/a.rs", "#[test]\nfn proves_it() {}\n// fn only_talk() {}\n");

    /// A page with a row for every id, of which A1 has this proof.
    fn page(proof: &str) -> String {
        let mut page = "| id | requirement | proof |\n|---|---|---|\n".to_owned();
        for id in ids() {
            page.push_str(&format!("| {id} | words | {} |\n", if id == "A1" { proof } else { NOT_YET }));
        }
        page
    }

    fn problems(page: &str) -> Vec<String> {
        found(check, &[(PAGE, page), TESTS])
    }

    #[test]
    fn a_proof_is_a_test_a_page_or_not_yet() {
        for proof in [
            "not yet",
            "`proves_it`",
            "`a::proves_it`, rest not yet",
            "[page](a.md)",
            "`docs/requirements.md`",
        ] {
            assert_eq!(problems(&page(proof)), [""; 0], "{proof}");
        }
        for proof in ["", "surely", "`only_talk`", "`proves_it` and `gone`", "`docs/gone.md`", "`not yet`"] {
            assert_eq!(problems(&page(proof)), ["docs/requirements.md:3"], "{proof}");
        }
    }

    #[test]
    fn every_id_has_exactly_one_row_of_three_cells() {
        let page = page(NOT_YET);
        let row = "| A1 | words | not yet |\n";
        assert_eq!(problems(&page.replace(row, "")), ["docs/requirements.md:1"]);
        assert_eq!(problems(&format!("{page}{row}")).len(), 1);
        assert_eq!(problems(&format!("{page}| A14 | words | not yet |\n")).len(), 1);
        assert_eq!(problems(&page.replace(row, "| A1 | not yet |\n")), ["docs/requirements.md:3"]);
        let wrong = page.replace("Invariant I21", "I21");
        assert_eq!(problems(&wrong), ["docs/requirements.md:1", "docs/requirements.md:82"]);
        assert_eq!(found(check, &[]), ["docs/requirements.md:1"]);
    }
}
