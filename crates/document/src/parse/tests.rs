//! Any bytes become a tree, or problems with positions.

use proptest::prelude::*;
use std::time::{Duration, Instant};

use super::*;
use crate::Colour;
use crate::example;

fn read(text: &str) -> (Option<Node>, Vec<String>) {
    let source = Source::new("f", text.as_bytes());
    let mut problems = Problems::new();
    let node = parse(&source, &mut problems);
    let codes = problems.in_order().into_iter().map(|problem| {
        let at = source.position(problem.label.span.start);
        format!("{}:{} {}", at.line, at.column, problem.code)
    });
    (node, codes.collect())
}

/// A tree on one line: `key@start..end` for every node.
fn one_line(node: &Node) -> String {
    let SourceSpan { start, end } = node.span;
    match &node.value {
        Value::Null => format!("null@{start}..{end}"),
        Value::Bool(value) => format!("{value}@{start}..{end}"),
        Value::Text(Text { text, quoted: false }) => format!("{text}@{start}..{end}"),
        Value::Text(Text { text, quoted: true }) => format!("{text:?}@{start}..{end}"),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(one_line).collect();
            format!("[{}]@{start}..{end}", items.join(", "))
        }
        Value::Map(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|entry| format!("{}: {}", one_line(&entry.key), one_line(&entry.value)))
                .collect();
            format!("{{{}}}@{start}..{end}", entries.join(", "))
        }
        Value::Invalid => format!("invalid@{start}..{end}"),
    }
}

#[test]
fn every_node_has_its_byte_range() {
    for (text, expected) in [
        ("a: b", "{a@0..1: b@3..4}@0..4"),
        ("ü: [ä, {c: ö}]", "{ü@0..2: [ä@5..7, {c@10..11: ö@13..15}@9..16]@4..17}@0..17"),
        ("日本: 語\nx: y", "{日本@0..6: 語@8..11, x@12..13: y@15..16}@0..16"),
        ("a:\nb: ~\nc: null", "{a@0..1: null@0..1, b@3..4: null@6..7, c@8..9: null@11..15}@0..15"),
        ("- true\n- False\n- yes", "[true@2..6, false@9..14, yes@17..20]@0..20"),
        ("- 'a'\n- \"b\\n\"\n- ''", r#"["a"@2..5, "b\n"@8..13, ""@16..18]@0..18"#),
        ("a: |\n  x\n  y\n\nb: 1", r#"{a@0..1: "x\ny\n"@7..12, b@14..15: 1@17..18}@0..18"#),
        ("a: x\n  y\nb: 1", "{a@0..1: x y@3..8, b@9..10: 1@12..13}@0..13"),
        ("a:\r\n  - b\r\n", "{a@0..1: [b@8..9]@6..9}@0..9"),
        ("{}", "{}@0..2"),
        ("true: 1", "{true@0..4: 1@6..7}@0..7"),
        ("", "null@0..0"),
        ("# nothing\n", "null@0..0"),
        ("\u{feff}a: 1", "{a@0..1: 1@3..4}@0..4"),
        ("---\na: 1\n...\n", "{a@4..5: 1@7..8}@4..8"),
    ] {
        let (node, problems) = read(text);
        assert_eq!(node.as_ref().map(one_line).as_deref(), Some(expected), "{text:?}");
        assert!(problems.is_empty(), "{text:?}: {problems:?}");
    }
}

#[test]
fn unsupported_yaml_is_reported_and_the_rest_is_parsed() {
    for (text, tree, expected) in [
        ("a: &x 1\nb: *x", "{a@0..1: 1@6..7, b@8..9: invalid@11..13}@0..13", vec!["1:4 alias", "2:4 alias"]),
        ("b: *x\nc: 1", "{b@0..1: invalid@3..5, c@6..7: 1@9..10}@0..10", vec!["1:4 alias"]),
        ("&x a: 1", "{a@3..4: 1@6..7}@0..7", vec!["1:1 alias"]),
        ("a: !foo 1\nb: !!str 2", "{a@0..1: 1@8..9, b@10..11: 2@19..20}@0..20", vec!["1:4 tag", "2:4 tag"]),
        ("a: !foo [1]", "{a@0..1: [1@9..10]@8..11}@0..11", vec!["1:4 tag"]),
        (
            "a: 1\nb: 2\na: 3",
            "{a@0..1: 1@3..4, b@5..6: 2@8..9, a@10..11: 3@13..14}@0..14",
            vec!["3:1 duplicate-key"],
        ),
        ("{a: 1, 'a': 2}", r#"{a@1..2: 1@4..5, "a"@7..10: 2@12..13}@0..14"#, vec!["1:8 duplicate-key"]),
        ("[a]: 1\nb: 2", "{invalid@0..3: 1@5..6, b@7..8: 2@10..11}@0..11", vec!["1:1 key-not-text"]),
        (": 1", "{invalid@0..0: 1@2..3}@0..3", vec!["1:1 key-not-text"]),
        ("<<: {a: 1}", "{invalid@0..2: {a@5..6: 1@8..9}@4..10}@0..10", vec!["1:1 merge-key"]),
        ("a: 1\n---\nb: 2", "{a@0..1: 1@3..4}@0..4", vec!["2:1 several-documents"]),
    ] {
        let (node, problems) = read(text);
        assert_eq!(node.as_ref().map(one_line).as_deref(), Some(tree), "{text:?}");
        assert_eq!(problems, expected, "{text:?}");
    }
}

#[test]
fn a_syntax_error_ends_parsing_with_one_problem() {
    for (text, expected) in [
        ("a: [1, 2", "1:4 syntax"),
        ("a: \"x", "1:4 syntax"),
        ("a: b: c", "1:5 syntax"),
        ("ä: {\n  ö: /items/{id} }", "2:13 syntax"),
        ("rules:\n  - id: x\n   match: y", "3:4 syntax"),
        ("a: @x", "1:4 syntax"),
        ("a:\n\t- b", "2:1 syntax"),
        ("%YAML 1.2\n---\na: 1", "1:1 syntax"),
        ("a: b\0c: d", "1:5 control-character"),
        ("a: b # \u{1b}[31m", "1:8 control-character"),
        ("a: *x\nb: [", "2:4 syntax"),
    ] {
        let (node, problems) = read(text);
        assert_eq!(node, None, "{text:?}");
        assert_eq!(problems.last().map(String::as_str), Some(expected), "{text:?}");
        let others = problems.iter().filter(|problem| !problem.ends_with("alias")).count();
        assert_eq!(others, 1, "{text:?}: {problems:?}");
    }
}

#[test]
fn invalid_utf8_is_reported_at_its_position() {
    let source = Source::new("f", b"a: 1\nb: \xc3\x28\nc: [");
    let mut problems = Problems::new();
    assert_eq!(parse(&source, &mut problems), None);
    assert_eq!(problems.len(), 1);
    let problem = problems.in_order()[0];
    assert_eq!((problem.code, problem.label.span.start), ("not-utf8", 8));
    assert_eq!(problem.message, "invalid UTF-8: byte 0xc3 at offset 8");

    let mut problems = Problems::new();
    let utf16: Vec<u8> = "\u{feff}a: 1".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(parse(&Source::new("f", &utf16), &mut problems), None);
    assert_eq!(problems.in_order()[0].help.as_deref(), Some("the file looks like UTF-16; save it as UTF-8"));
}

#[test]
fn depth_size_and_node_limits_are_exact() {
    let flow = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let block = |depth: usize| format!("{}x", "- ".repeat(depth));
    let mixed = |depth: usize| format!("{}[{}]", "- ".repeat(depth / 2), flow(depth - depth / 2 - 1));
    let shapes: [&dyn Fn(usize) -> String; 3] = [&flow, &block, &mixed];
    for deep in shapes {
        assert_eq!(read(&deep(DEPTH_MAX)).1, [""; 0], "{}", deep(DEPTH_MAX));
        let (node, problems) = read(&deep(DEPTH_MAX + 1));
        assert_eq!(node, None);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].ends_with("too-deep"), "{problems:?}");
    }

    let wide = |nodes: usize| "- a\n".repeat(nodes - 1);
    assert!(read(&wide(NODES_MAX)).0.is_some());
    let (node, problems) = read(&wide(NODES_MAX + 1));
    assert_eq!(node, None);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].ends_with("too-many-nodes"), "{problems:?}");

    let (node, problems) = read(&" ".repeat(SOURCE_BYTES_MAX + 1));
    assert_eq!((node, problems), (None, vec!["1:1 too-large".to_owned()]));
}

/// Parses, checks and renders any bytes.
fn process(bytes: &[u8]) -> Problems {
    let source = Source::new("f", bytes);
    let problems = example::problems(&source);
    let (plain, coloured) = (problems.render(&source, Colour::Plain), problems.render(&source, Colour::Ansi));
    assert_eq!((plain.is_empty(), coloured.is_empty()), (problems.is_empty(), problems.is_empty()));
    let headers = plain.lines().filter(|line| line.trim_start().starts_with("--> "));
    for (header, problem) in headers.zip(problems.in_order()) {
        let at = source.position(problem.label.span.start);
        assert!(header.ends_with(&format!(" f:{}:{}", at.line, at.column)), "{header} for {at:?}");
    }
    let listed = problems.len().min(crate::problem::PROBLEMS_MAX + 1);
    assert_eq!(problems.to_json(&source).as_array().map(Vec::len), Some(listed));
    crate::sarif([(&source, &problems)]);
    problems
}

/// Asserts that every span is on character boundaries and inside the span of its parent.
fn spans_nest(source: &Source, node: &Node, within: SourceSpan) {
    assert!(source.text().get(node.span.start..node.span.end).is_some());
    assert!(within.start <= node.span.start && node.span.end <= within.end, "{:?} in {within:?}", node.span);
    for item in node.list().unwrap_or_default() {
        spans_nest(source, item, node.span);
    }
    for entry in node.entries() {
        spans_nest(source, &entry.key, node.span);
        spans_nest(source, &entry.value, node.span);
    }
}

/// A text of pieces that are special to YAML or to the example's shape.
fn yamlish() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "rules",
        "id",
        "limit",
        "version",
        "token-bucket",
        "match",
        "not",
        "per",
        ": ",
        ":",
        "- ",
        "\n",
        "\n  ",
        "\n    ",
        "\r\n",
        "\r",
        "\t",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "?",
        "? ",
        "&x ",
        "*x",
        "!t ",
        "!!str ",
        "|\n",
        ">\n",
        "\"",
        "'",
        "\\",
        "#",
        " # ",
        "---\n",
        "...\n",
        "%",
        "@",
        "`",
        "~",
        "null",
        "true",
        "1",
        "2/s",
        "ä",
        "語",
        "𝄞",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\0",
        "\u{7f}",
        "<<",
        "=",
        "-",
        "👨‍👩‍👧",
        "e\u{301}",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_processed(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        process(&bytes);
    }

    #[test]
    fn any_yaml_like_text_is_processed(text in yamlish()) {
        let problems = process(text.as_bytes());
        let source = Source::new("f", text.as_bytes());
        match parse(&source, &mut Problems::new()) {
            Some(node) => spans_nest(&source, &node, SourceSpan::new(0, source.text().len())),
            None => prop_assert!(problems.has_errors()),
        }
    }
}

/// The worst cases of the largest file stay far below a noticeable delay.
#[test]
fn the_largest_files_are_processed_in_bounded_time() {
    let fill = |head: &str, piece: &str| {
        let mut text = head.to_owned();
        while text.len() + piece.len() <= SOURCE_BYTES_MAX {
            text.push_str(piece);
        }
        text
    };
    let pieces = [
        "[",
        "{",
        "- ",
        "? ",
        ": ",
        "a: ",
        "a: b\n",
        "&a ",
        "*a ",
        "- *a\n",
        "- &a b\n",
        "- !t b\n",
        "!a ",
        "\"",
        "'",
        "#",
        "# \n",
        "\n",
        "\t",
        " ",
        "---\n",
        "a",
        "ü",
        "|\n",
        "{a: b}, ",
        "[a,",
        ",",
        "]",
        "a:\n",
        "- a\n",
        "a #\n",
        "[?",
        "{? ",
        "\"\\u",
        "- |\n",
        "? a\n",
        "{}:",
        "- {limt: x}\n",
        "- {limit: dney}\n",
        "- {limit: {x: y}}\n",
        "*a, ",
    ];
    let keys: String = (0..100_000).map(|n| format!("lim{n}: x\n")).collect();
    let mut texts = vec![keys];
    for head in ["", "[", "version: 1\nrules:\n"] {
        texts.extend(pieces.iter().map(|piece| fill(head, piece)));
    }
    for text in texts {
        let start = Instant::now();
        process(text.as_bytes());
        let took = start.elapsed();
        let head: String = text.chars().take(40).collect();
        assert!(took < Duration::from_secs(10), "{took:?} for {head:?}");
    }
}
