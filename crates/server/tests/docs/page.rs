//! The commands, outputs and files that a page of the documentation shows.

use std::fs;
use std::path::{Path, PathBuf};

/// One thing that a reader of a page does.
pub(crate) struct Step {
    /// Line of the page, from 1.
    pub(crate) line: usize,
    pub(crate) action: Action,
}

pub(crate) enum Action {
    /// Saves a file. The paragraph before the block names it: a line that ends with "`rules.yaml`:".
    Save { name: String, text: String },
    /// Runs a command of a `sh` block, which shows no output.
    Run { command: String },
    /// Runs a command of a `console` block, which shows its output.
    Compare { command: String, output: String },
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and every page below docs/.
pub(crate) fn all_pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    collect(&root().join("docs"), &mut pages);
    pages
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("read docs") {
        let path = entry.expect("read docs").path();
        if path.is_dir() {
            collect(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// The steps of a page, in order.
pub(crate) fn steps(page: &Path) -> Vec<Step> {
    let text = fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    parse(&text).unwrap_or_else(|problem| panic!("{}:{problem}", page.display()))
}

/// Reads the fenced blocks of a page. A line that ends with a backslash continues on the next one.
fn parse(text: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut block: Option<&str> = None;
    let mut file: Option<String> = None;
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let number = index + 1;
        match (block, line.strip_prefix("```")) {
            (None, Some(language)) => {
                block = Some(language);
                if let Some(name) = file.take() {
                    let action = Action::Save { name, text: String::new() };
                    steps.push(Step { line: number, action });
                    block = Some("file");
                }
            }
            (Some(_), Some("")) => block = None,
            (Some("file"), _) => {
                if let Some(Step { action: Action::Save { text, .. }, .. }) = steps.last_mut() {
                    *text += &format!("{line}\n");
                }
            }
            (Some("sh"), _) => {
                let mut command = line.to_owned();
                while let Some(first) = command.strip_suffix('\\') {
                    let (_, next) = lines.next().ok_or(format!("{number}: the command does not end"))?;
                    command = format!("{first}{}", next.trim_start());
                }
                if !command.is_empty() && !command.starts_with('#') {
                    steps.push(Step { line: number, action: Action::Run { command } });
                }
            }
            (Some("console"), _) => match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => {
                    let action = Action::Compare { command: command.to_owned(), output: String::new() };
                    steps.push(Step { line: number, action });
                }
                (None, Some(Step { action: Action::Compare { output, .. }, .. })) => {
                    *output += &format!("{line}\n");
                }
                (None, _) => return Err(format!("{number}: output without a command")),
            },
            (Some(_), _) => (),
            (None, None) if line.is_empty() => (),
            (None, None) => file = file_named(line),
        }
    }
    Ok(steps)
}

/// The file that a line introduces: "... `rules.yaml`:".
fn file_named(line: &str) -> Option<String> {
    let (_, name) = line.strip_suffix("`:")?.rsplit_once('`')?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    (is_name && name.contains('.')).then(|| name.to_owned())
}

/// Whether `printed` is what a page shows as `shown`. A line of three dots matches any lines.
pub(crate) fn is_shown(printed: &str, shown: &str) -> bool {
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

/// Replaces what differs from run to run (instants, waits, hashes), and runs of blanks by one blank.
pub(crate) fn masked(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().map(mask).collect::<Vec<_>>().join(" ");
    text.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
}

fn mask(word: &str) -> String {
    let is_hash = |part: &str| {
        part.len() == 22 && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let starts = word.starts_with(|c: char| c.is_ascii_digit());
    if starts && word.contains('T') && word.ends_with('Z') && digits >= 14 {
        return "INSTANT".to_owned();
    }
    let units = word.split(|c: char| c.is_ascii_digit()).filter(|unit| !unit.is_empty());
    if starts && digits < word.len() && units.clone().all(|unit| ["ms", "s", "min", "h", "d"].contains(&unit))
    {
        return "WAIT".to_owned();
    }
    let parts = word.split(':').map(|part| {
        let bare = part.trim_start_matches('{').trim_end_matches('}');
        if is_hash(bare) { part.replace(bare, "HASH") } else { part.to_owned() }
    });
    parts.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_instants_waits_and_hashes_are_masked() {
        for (word, expected) in [
            ("2026-11-16T09:30:00.123456Z", "INSTANT"),
            ("500ms", "WAIT"),
            ("14d13h30min", "WAIT"),
            ("tg:1:n:{AAv7LzIOy6gMWogPYx0XU3}:r:AAaW32L4l3DTl86dhIZV1r", "tg:1:n:{HASH}:r:HASH"),
            ("400", "400"),
            ("-", "-"),
            ("1.2GiB", "1.2GiB"),
            ("exports-per-month", "exports-per-month"),
        ] {
            assert_eq!(mask(word), expected);
        }
        assert_eq!(masked("a   b\n\n c \n"), "a b\n\nc");
    }

    #[test]
    fn three_dots_match_any_lines() {
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

    #[test]
    fn blocks_become_steps_in_page_order() {
        let page = "Save this as `a.yaml`:\n\n```yaml\nx: 1\n```\n\n```sh\n# why\nls \\\n  -l\n```\n\
                    ```console\n$ ls\na.yaml\n$ true\n```\n```text\n$ no\n```\n";
        let shown: Vec<String> = parse(page)
            .expect("a page")
            .into_iter()
            .map(|Step { line, action }| match action {
                Action::Save { name, text } => format!("{line} save {name} {text:?}"),
                Action::Run { command } => format!("{line} run {command}"),
                Action::Compare { command, output } => format!("{line} compare {command} {output:?}"),
            })
            .collect();
        let expected = [
            r#"3 save a.yaml "x: 1\n""#,
            "9 run ls -l",
            r#"13 compare ls "a.yaml\n""#,
            r#"15 compare true """#,
        ];
        assert_eq!(shown, expected);
        assert!(parse("```console\nout\n```\n").is_err());
    }
}
