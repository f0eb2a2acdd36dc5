//! Every command a page shows is run, and prints what the page says it prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command in a `console` block and the lines below it.
struct Shown {
    page: PathBuf,
    line: usize,
    command: String,
    output: String,
}

#[test]
fn every_command_in_the_docs_prints_what_the_page_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    collect(&root.join("docs"), &mut pages);
    let shown: Vec<Shown> = pages.iter().flat_map(|page| shown_in(page)).collect();
    assert!(!shown.is_empty(), "no page shows a command");
    for Shown { page, line, command, output } in shown {
        let place = format!("{}:{line}: {command}", page.display());
        let arguments =
            command.strip_prefix("tollgate ").unwrap_or_else(|| panic!("{place}: only tollgate is run"));
        let run = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(arguments.split_whitespace())
            .current_dir(&root)
            .output()
            .unwrap_or_else(|error| panic!("{place}: {error}"));
        let printed = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        assert_eq!(printed.trim_end(), output.trim_end(), "{place}");
    }
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("docs can be read") {
        let path = entry.expect("docs can be read").path();
        if path.is_dir() {
            collect(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// Commands start with `$ ` inside a block that opens with three backticks and `console`.
fn shown_in(page: &Path) -> Vec<Shown> {
    let text = fs::read_to_string(page).expect("a page can be read");
    let mut shown: Vec<Shown> = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            line if inside => match (line.strip_prefix("$ "), shown.last_mut()) {
                (Some(command), _) => shown.push(Shown {
                    page: page.to_owned(),
                    line: index + 1,
                    command: command.to_owned(),
                    output: String::new(),
                }),
                (None, Some(last)) => last.output += &format!("{line}\n"),
                (None, None) => panic!("{}:{}: output without a command", page.display(), index + 1),
            },
            _ => (),
        }
    }
    shown
}
