//! Runs every session that the RESP page shows with redis-cli, and compares the output with the page.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, iter};

use crate::start;

const PAGE: &str = "docs/reference/resp.md";
const PROMPT: &str = "127.0.0.1:6380> ";

#[test]
fn every_session_of_the_resp_page_prints_what_the_page_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join(PAGE)).expect("the page can be read");
    let blocks: Vec<&str> =
        page.split("```").skip(1).step_by(2).filter(|block| block.contains(PROMPT)).collect();
    assert!(blocks.len() >= 5, "{} sessions", blocks.len());
    let server = start(&[]);
    for block in blocks {
        let lines = || block.lines().skip(1);
        let commands: Vec<&str> = lines().filter_map(|line| line.strip_prefix(PROMPT)).collect();
        let shown: Vec<&str> = lines().filter(|line| !line.starts_with(PROMPT) && !line.is_empty()).collect();
        let mut cli = Command::new("redis-cli")
            .args(["--no-raw", "-p", &server.resp.port().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-cli runs");
        let mut input = cli.stdin.take().expect("it is piped");
        input.write_all((commands.join("\n") + "\n").as_bytes()).expect("it reads");
        drop(input);
        let printed = cli.wait_with_output().expect("it ends").stdout;
        let printed = String::from_utf8(printed).expect("text");
        let printed: Vec<&str> = printed.lines().filter(|line| !line.is_empty()).collect();
        let masked = |lines: &[&str]| lines.iter().map(|line| mask(line)).collect::<Vec<_>>().join("\n");
        assert_eq!(masked(&printed), masked(&shown), "{commands:?}");
    }
}

/// Replaces instants and receipts, which differ from run to run. The page shows the beginning of a receipt.
fn mask(line: &str) -> String {
    let words = line.trim_end().split(' ').map(|word| {
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        let is_receipt = word.starts_with('"') && (word.ends_with("…\"") || word.len() > 100);
        match word {
            _ if digits >= 13 && digits == word.len() => "INSTANT",
            _ if is_receipt => "RECEIPT",
            word => word,
        }
    });
    words.zip(iter::once("").chain(iter::repeat(" "))).flat_map(|(word, blank)| [blank, word]).collect()
}
