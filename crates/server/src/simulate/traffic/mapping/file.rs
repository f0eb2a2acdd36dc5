//! The file of `--map-file`.

use std::path::Path;
use std::sync::LazyLock;

use tollgate_document::shape::{fields, map_of, text};
use tollgate_document::{Node, Problems, Shape, check, parse};

use super::{Assignment, DurationSource, Mapping, Source, TimeSource};
use crate::cli::terminal;
use crate::failure::Failure;
use crate::files;

/// The shape of a map file.
fn shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
        let name = text("the name of an attribute");
        let source = text("a source like x_tenant, query:key or path~^/v1/(\\w+)")
            .checked(|text| Source::parse(text).map(drop))
            .examples(&[
                "x_tenant",
                ".request.headers.X-User[0]",
                "query:key",
                "const:free",
                "path~^/v1/(\\w+)",
            ]);
        fields("a map file")
            .optional("attributes", map_of("attributes and their sources", name, source), "As --map.")
            .optional(
                "time",
                text("FIELD:FORMAT").checked(|text| TimeSource::parse(text).map(drop)),
                "As --time.",
            )
            .optional("cost_from", text("a field"), "As --cost-from.")
            .optional(
                "duration_from",
                text("FIELD:UNIT").checked(|text| DurationSource::parse(text).map(drop)),
                "As --duration-from.",
            )
            .into()
    });
    &SHAPE
}

/// Reads a map file.
pub(crate) fn read(path: &Path) -> Result<Mapping, Failure> {
    let source = files::read(path)?;
    let mut problems = Problems::new();
    let root = parse(&source, &mut problems);
    if let Some(root) = &root {
        check(shape(), root, &mut problems);
    }
    match root.filter(|_| !problems.has_errors()) {
        Some(root) => Ok(mapping(&root)),
        None => {
            crate::stderr::write(&terminal::problems(&problems, &source));
            let hint =
                "correct the problems above; `tollgate simulate --help` shows the sources of attributes";
            Err(Failure::new(format!("invalid map file {}", source.name()), hint))
        }
    }
}

/// Takes the mapping from checked nodes.
fn mapping(root: &Node) -> Mapping {
    let text = |key| root.get(key).and_then(Node::scalar);
    let entries = root.get("attributes").map_or(&[][..], Node::entries).iter();
    Mapping {
        attributes: entries
            .filter_map(|entry| {
                let source = Source::parse(entry.value.scalar()?).ok()?;
                Some(Assignment { attribute: entry.key.scalar()?.to_owned(), source })
            })
            .collect(),
        time: text("time").and_then(|text| TimeSource::parse(text).ok()),
        cost_from: text("cost_from").map(str::to_owned),
        duration_from: text("duration_from").and_then(|text| DurationSource::parse(text).ok()),
    }
}
