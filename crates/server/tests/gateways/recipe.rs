//! A gateway as its page shows it: its files are those of the page, only ports and patience are others.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tollgate_testkit::tools::Tool;

pub(crate) struct Recipe {
    pub(crate) tool: Tool,
    pub(crate) page: &'static str,
    /// The files that configure it, and the language in which the page shows each.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// What starts it, in the folder of those files.
    pub(crate) arguments: &'static [&'static str],
    /// Whether clients see in answers of the shop where they stand. If not, the shop sees it.
    pub(crate) tells_allowed: bool,
    /// The body when the limit of searches is used up, as far as it does not depend on the wait.
    pub(crate) used_up: &'static str,
    /// The body when an order cannot be counted.
    pub(crate) uncounted: &'static str,
}

/// The ports of the files, and those that stand for them here.
pub(crate) type Ports<'a> = &'a [(u16, u16)];

impl Recipe {
    /// A copy of its folder in `examples/gateways`, with other ports and the given changes.
    pub(crate) fn copy(&self, ports: Ports<'_>, change: &dyn Fn(String) -> String) -> TempDir {
        let copy = tempfile::tempdir().expect("a folder");
        // Programs that give up their rights still look into it.
        fs::set_permissions(copy.path(), fs::Permissions::from_mode(0o755)).expect("a folder of ours");
        for entry in fs::read_dir(self.examples()).expect("there are examples") {
            let from = entry.expect("an entry").path();
            let name = from.file_name().expect("a name");
            let text = with_ports(&change(fs::read_to_string(&from).expect("text")), ports);
            // A machine that is busy with other tests takes longer than one should wait in production.
            let text = text.replace("250ms", "20s").replace("0.25s", "20s");
            fs::write(copy.path().join(name), text).expect("a file can be written");
        }
        copy
    }

    /// One of its files, as it is.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.examples().join(name)).expect("text")
    }

    /// Asserts that the page shows the files, all of each.
    pub(crate) fn is_on_its_page(&self) {
        for (name, language) in self.files {
            let text = self.text(name);
            assert!(
                self.page.contains(&format!("```{language}\n{text}```\n")),
                "the page does not show {name} as it is:\n{text}"
            );
        }
        for body in [self.used_up, self.uncounted] {
            assert!(self.page.contains(body), "the page does not show {body}");
        }
    }

    fn examples(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways").join(self.tool.name())
    }
}

/// The text with other ports. Numbers are compared whole and once, because one port may contain another.
fn with_ports(text: &str, ports: Ports<'_>) -> String {
    let pieces = text.split_inclusive(|c: char| !c.is_ascii_digit());
    let pieces = pieces.map(|piece| {
        let (number, end) = piece.split_at(piece.bytes().take_while(u8::is_ascii_digit).count());
        let port = ports.iter().find(|(shown, _)| number == shown.to_string());
        port.map_or_else(|| piece.to_owned(), |(_, port)| format!("{port}{end}"))
    });
    pieces.collect()
}

#[test]
fn ports_are_replaced_whole_and_once() {
    let ports = [(8080, 18_081), (8081, 18_080)];
    assert_eq!(with_ports("a:8080,b-8081;18080 8080", &ports), "a:18081,b-18080;18080 18081");
}
