//! A small parser of Markdown that finds links and headings.

/// A link or a picture, as written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link<'a> {
    pub(super) line: usize,
    pub(super) target: &'a str,
}

/// Every link and picture that is not shown as code: inline, by reference, or in HTML.
pub(super) fn links(text: &str) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    for (line, content) in outside_fences(text) {
        let mut add = |target| links.push(Link { line, target });
        for (start, end) in outside_code(content) {
            let visible = &content[start..end];
            // The target may hold code-like characters, so it is read from the whole line.
            for (at, opening) in visible.match_indices("](") {
                add(inline_target(&content[start + at + opening.len()..]));
            }
            for attribute in ["href=\"", "src=\"", "srcset=\""] {
                for (at, _) in visible.match_indices(attribute) {
                    let value = &visible[at + attribute.len()..];
                    add(value.split(['"', ' ', ',']).next().unwrap_or(value));
                }
            }
        }
        if let Some((_, target)) =
            content.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "))
        {
            add(target.split(' ').next().unwrap_or(target));
        }
    }
    links
}

/// The anchors that a page offers: one per heading, and those set in HTML.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut bases: Vec<String> = Vec::new();
    for (_, line) in outside_fences(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() < line.len() && heading.starts_with(' ') {
            let base = slug(heading.trim());
            let before = bases.iter().filter(|other| **other == base).count();
            anchors.push(if before == 0 { base.clone() } else { format!("{base}-{before}") });
            bases.push(base);
        }
        for attribute in ["id=\"", "name=\""] {
            for (at, _) in line.match_indices(attribute) {
                let value = &line[at + attribute.len()..];
                anchors.extend(value.split('"').next().map(str::to_owned));
            }
        }
    }
    anchors
}

fn outside_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let start = line.trim_start();
        match fence {
            Some(open) => {
                if start.starts_with(open) {
                    fence = None;
                }
                None
            }
            None => {
                fence = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
                fence.is_none().then_some((index + 1, line))
            }
        }
    })
}

/// The parts of a line that are not between backticks.
fn outside_code(line: &str) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let mut start = 0;
    while let Some(open) = line[start..].find('`').map(|at| start + at) {
        let ticks = &line[open..open + line[open..].len() - line[open..].trim_start_matches('`').len()];
        let inside = open + ticks.len();
        parts.push((start, open));
        start = match line[inside..].find(ticks) {
            Some(at) => inside + at + ticks.len(),
            None => inside,
        };
    }
    parts.push((start, line.len()));
    parts
}

/// The target at the beginning of `target "title") …`.
fn inline_target(text: &str) -> &str {
    if let Some(inside) = text.strip_prefix('<') {
        return inside.split('>').next().unwrap_or(inside);
    }
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return &text[..at],
            ')' => depth -= 1,
            ' ' => return &text[..at],
            _ => {}
        }
    }
    text
}

/// The anchor that GitHub gives to a heading.
fn slug(heading: &str) -> String {
    let mut shown = String::new();
    let mut rest = heading;
    while let Some((before, behind)) = rest.split_once("](") {
        shown.push_str(before);
        rest = &behind[inline_target(behind).len()..];
        rest = rest.split_once(')').map_or("", |(_, behind)| behind);
    }
    shown.push_str(rest);
    let kept = shown.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_seen_in_every_form_and_not_in_code() {
        let text = "[a](one.md) ![b](two.svg \"title\") [`c`](three.md#d)\n\
                    [e]: four.md\n\
                    <img src=\"five.svg\"> <a href=\"six.md\">\n\
                    `[no](no.md)` ``[no](`no.md)`` [f](<seven eight.md>) [g](nine_(ten).md)\n\
                    ```\n[no](no.md)\n```\n\
                    [h](last.md)\n";
        let found: Vec<(usize, &str)> = links(text).iter().map(|link| (link.line, link.target)).collect();
        let expected = [
            (1, "one.md"),
            (1, "two.svg"),
            (1, "three.md#d"),
            (2, "four.md"),
            (3, "six.md"),
            (3, "five.svg"),
            (4, "seven eight.md"),
            (4, "nine_(ten).md"),
            (8, "last.md"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let text =
            "# A `b_c` & d!\n## Same\n## Same\n### [Link](x.md) here\n```\n# not\n```\n<a id=\"own\">\n#no\n";
        assert_eq!(anchors(text), ["a-b_c--d", "same", "same-1", "link-here", "own"]);
    }
}
