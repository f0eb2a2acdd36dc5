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
            .args(words(arguments).unwrap_or_else(|| panic!("{place}: a quote is not closed")))
            .current_dir(&root)
            .env_remove("CLICOLOR_FORCE")
            .output()
            .unwrap_or_else(|error| panic!("{place}: {error}"));
        let printed = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        let (printed, output) = (printed.trim_end(), output.trim_end());
        assert!(is_shown(printed, output), "{place}\nshown:\n{output}\n\nprinted:\n{printed}");
    }
}

/// The words of a command line, of which a shell would make the same: blanks separate, single quotes keep together.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    (!quoted).then_some(words)
}

/// Whether a page that shows `shown` tells the truth about `printed`. A line of three dots stands for any lines.
fn is_shown(printed: &str, shown: &str) -> bool {
    let shown: Vec<&str> = shown.lines().collect();
    let parts: Vec<&[&str]> = shown.split(|line| *line == "...").collect();
    let mut rest: &[&str] = &printed.lines().collect::<Vec<_>>();
    let last = parts.len() - 1;
    for (index, part) in parts.iter().enumerate() {
        let found = match index {
            0 if last == 0 => (rest == *part).then_some(0),
            0 => rest.starts_with(part).then_some(0),
            index if index == last => rest.ends_with(part).then(|| rest.len() - part.len()),
            _ => (0..rest.len()).find(|&at| rest[at..].starts_with(part)),
        };
        let Some(at) = found else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[test]
fn commands_are_split_as_a_shell_does() {
    for (line, expected) in [
        ("try --times 3", Some(vec!["try", "--times", "3"])),
        (
            "try 'token-bucket: 2/s, burst: 5' --cost  1",
            Some(vec!["try", "token-bucket: 2/s, burst: 5", "--cost", "1"]),
        ),
        ("user='Jo Doe' x=''", Some(vec!["user=Jo Doe", "x="])),
        ("''", Some(vec![""])),
        ("try 'open", None),
    ] {
        let expected = expected.map(|words| words.into_iter().map(str::to_owned).collect());
        assert_eq!(words(line), expected, "{line}");
    }
}

#[test]
fn three_dots_stand_for_any_lines_and_for_nothing_else() {
    for (shown, is) in [
        ("a\nb\nc\nd", true),
        ("a\n...\nd", true),
        ("...\nd", true),
        ("a\n...", true),
        ("a\n...\nc\n...", true),
        ("a\nb", false),
        ("b\n...\nd", false),
        ("a\n...\nc", false),
        ("a\n...\nx\n...\nd", false),
        ("a\nb\nc\n...\nc\nd", false),
        ("...\nd\n...\nc", false),
    ] {
        assert_eq!(is_shown("a\nb\nc\nd", shown), is, "{shown:?}");
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
