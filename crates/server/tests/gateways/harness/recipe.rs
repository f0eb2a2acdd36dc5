//! A gateway as its page shows it. Only ports and timeouts differ from the files of the page.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tollgate_testkit::tools::Tool;

pub(crate) struct Recipe {
    pub(crate) tool: Tool,
    /// Its folder in `examples/gateways`.
    pub(crate) folder: &'static str,
    pub(crate) page: &'static str,
    /// The files that configure it, and the language in which the page shows each.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// The arguments that start it in the folder of those files.
    pub(crate) arguments: &'static [&'static str],
    /// Whether allowed responses have the limit headers. Otherwise the shop gets them.
    pub(crate) shows_allowed: bool,
    /// The body of a refused search, up to the wait.
    pub(crate) refused_body: &'static str,
    /// The body of a refused order while the store is down.
    pub(crate) store_down_body: &'static str,
}

/// Ports in the files, and the free ports that replace them.
pub(crate) type Ports<'a> = &'a [(u16, u16)];

impl Recipe {
    /// A copy of its folder in `examples/gateways`, with other ports and the given changes.
    pub(crate) fn copy(&self, ports: Ports<'_>, change: &dyn Fn(String) -> String) -> TempDir {
        let copy = tempfile::tempdir().expect("a folder");
        // Programs that drop their privileges still read it.
        fs::set_permissions(copy.path(), fs::Permissions::from_mode(0o755)).expect("a folder of ours");
        for entry in fs::read_dir(self.examples()).expect("there are examples") {
            let from = entry.expect("an entry").path();
            let name = from.file_name().expect("a name");
            let text = with_ports(&change(fs::read_to_string(&from).expect("text")), ports);
            // On a machine that is busy with other tests, the timeouts of the page are too short.
            let text = text.replace("250ms", "20s").replace("0.25s", "20s");
            fs::write(copy.path().join(name), text).expect("a file can be written");
        }
        copy
    }

    /// The text of one of its files.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.examples().join(name)).expect("text")
    }

    /// Asserts that the page shows the files completely.
    pub(crate) fn assert_shown_on_its_page(&self) {
        for (name, language) in self.files {
            let text = self.text(name);
            assert!(
                self.page.contains(&format!("```{language}\n{text}```\n")),
                "the page does not show {name} as it is:\n{text}"
            );
        }
        for body in [self.refused_body, self.store_down_body] {
            assert!(self.page.contains(body), "the page does not show {body}");
        }
    }

    fn examples(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways").join(self.folder)
    }
}

/// Replaces ports in a text. Whole numbers are compared, and each is replaced once.
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
