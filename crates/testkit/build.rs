//! Plants the mutants of `mutants.rs` into copies of core's algorithms and of the guard.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

mod mutants;

const CORE: &str = "../core/src/algorithm";
const TOLLGATE: &str = "../tollgate/src";

fn main() {
    println!("cargo::rerun-if-changed=mutants.rs");
    println!("cargo::rerun-if-changed=mutants");
    println!("cargo::rerun-if-changed={CORE}");
    let mut modules = String::new();
    let mut table = String::from("/// All of them.\nconst ALL: &[Mutant] = &[\n");
    let mut counts = BTreeMap::new();
    for (algorithm, wrong, right_text, wrong_text) in mutants::all() {
        let number: &mut u32 = counts.entry(algorithm).or_default();
        *number += 1;
        let module = format!("{algorithm}_{number}");
        let source = plant(algorithm, wrong, right_text, wrong_text);
        writeln!(
            modules,
            "#[allow(warnings, reason = \"a mutant is wrong on purpose\")]\nmod {module} {{\n{source}\n}}"
        )
        .expect("writing to a string");
        writeln!(
            table,
            "    Mutant {{ algorithm: {algorithm:?}, wrong: {wrong:?}, run: |steps, seed| \
             find_difference!({algorithm}, {module}, steps, seed) }},"
        )
        .expect("writing to a string");
    }
    table.push_str("];\n");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let write = |name: &str, text: String| {
        fs::write(Path::new(&out).join(name), text).expect("OUT_DIR can be written");
    };
    write("mutants.rs", modules + &table);
    write("guard_mutants.rs", guard_mutants());
}

/// Returns one copy of the whole guard for each of its mutants, and the table of all.
fn guard_mutants() -> String {
    println!("cargo::rerun-if-changed={TOLLGATE}/guard.rs");
    println!("cargo::rerun-if-changed={TOLLGATE}/guard");
    let mut modules = String::new();
    let mut table = String::from("/// All of them.\nconst ALL: &[Mutant] = &[\n");
    for (number, (file, wrong, right_text, wrong_text)) in mutants::guard::MUTANTS.iter().enumerate() {
        let change = |name: &str, source: String| {
            if name != *file {
                return source;
            }
            let found = source.matches(right_text).count();
            assert!(found == 1, "mutant {wrong:?}: its right text occurs {found} times in {file}.rs");
            source.replacen(right_text, wrong_text, 1)
        };
        let source = with_submodules(Path::new(TOLLGATE), "guard", &change).replace("crate::", "tollgate::");
        // The copy's own tests are not compiled.
        let source = source.replace("#[cfg(test)]", "#[cfg(any())]");
        let module = format!("guard_{number}");
        writeln!(
            modules,
            "#[allow(warnings, reason = \"a mutant is wrong on purpose\")]\nmod {module} {{\n{source}\n}}"
        )
        .expect("writing to a string");
        writeln!(table, "    Mutant {{ wrong: {wrong:?}, run: |seeds| run_guard!({module}, seeds) }},")
            .expect("writing to a string");
    }
    table.push_str("];\n");
    modules + &table
}

/// Returns the source of a module with its submodules in place, each changed by `change`.
fn with_submodules(folder: &Path, name: &str, change: &dyn Fn(&str, String) -> String) -> String {
    let path = folder.join(format!("{name}.rs"));
    let source = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut whole = String::new();
    for line in change(name, source).lines() {
        let declared = line.trim_start_matches("pub ").strip_prefix("mod ");
        match declared.and_then(|rest| rest.strip_suffix(';')).filter(|module| *module != "tests") {
            Some(module) => {
                let inner = with_submodules(&folder.join(name), module, change);
                writeln!(whole, "{} {{\n{inner}\n}}", line.trim_end_matches(';'))
            }
            None => writeln!(whole, "{line}"),
        }
        .expect("writing to a string");
    }
    whole
}

/// A part that algorithms share, and an algorithm that uses it and is tested with the mutants of the part.
const SHARED: [(&str, &str); 1] = [("hold_sums", "quota")];

/// Returns the source of a mutant, with paths that work in this crate. The mutant of a shared part comes with a copy of
/// an algorithm that uses it.
fn plant(algorithm: &str, wrong: &str, right_text: &str, wrong_text: &str) -> String {
    let mutant = mutate(algorithm, wrong, right_text, wrong_text);
    let Some((part, user)) = SHARED.iter().find(|(part, _)| *part == algorithm) else { return mutant };
    let user = source(user).replace(&format!("crate::algorithm::{part}"), &format!("self::planted::{part}"));
    let user = user.replace("crate::", "tollgate_core::");
    format!("{user}\npub mod planted {{\npub mod {part} {{\n{mutant}\n}}\n}}")
}

fn source(algorithm: &str) -> String {
    let path = format!("{CORE}/{algorithm}.rs");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the algorithm's source with one mutation.
fn mutate(algorithm: &str, wrong: &str, right_text: &str, wrong_text: &str) -> String {
    let (path, source) = (format!("{CORE}/{algorithm}.rs"), source(algorithm));
    let found = source.matches(right_text).count();
    assert!(
        found == 1,
        "mutant {wrong:?}: {right_text:?} occurs {found} times in {path}, it must occur once"
    );
    assert!(right_text != wrong_text, "mutant {wrong:?} changes nothing");
    source.replacen(right_text, wrong_text, 1).replace("crate::", "tollgate_core::")
}
