//! The dashboard: plain ES modules that use only the public API. They are part of the binary.

/// A file that browsers load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asset {
    pub(crate) path: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! asset {
    ($media_type:expr, $file:literal) => {
        Asset {
            path: concat!("/dashboard/", $file),
            media_type: $media_type,
            text: include_str!(concat!("dashboard/", $file)),
        }
    };
}

/// All files of the dashboard.
const ASSETS: &[Asset] = &[
    Asset { path: "/", media_type: HTML, text: include_str!("dashboard/index.html") },
    asset!(CSS, "style.css"),
    asset!(SVG, "icon.svg"),
    asset!(SCRIPT, "app.js"),
    asset!(SCRIPT, "api.js"),
    asset!(SCRIPT, "chart.js"),
    asset!(SCRIPT, "dialog.js"),
    asset!(SCRIPT, "dom.js"),
    asset!(SCRIPT, "format.js"),
    asset!(SCRIPT, "header.js"),
    asset!(SCRIPT, "session.js"),
    asset!(SCRIPT, "widgets.js"),
    asset!(SCRIPT, "pages/audit.js"),
    asset!(SCRIPT, "pages/change_dialogs.js"),
    asset!(SCRIPT, "pages/change_fields.js"),
    asset!(SCRIPT, "pages/changes.js"),
    asset!(SCRIPT, "pages/changes_made.js"),
    asset!(SCRIPT, "pages/overview.js"),
    asset!(SCRIPT, "pages/quotas.js"),
    asset!(SCRIPT, "pages/rule.js"),
    asset!(SCRIPT, "pages/rules.js"),
    asset!(SCRIPT, "pages/store.js"),
    asset!(SCRIPT, "pages/subject.js"),
];

/// Returns the file of this path.
pub(crate) fn asset(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_that_is_imported_is_served() {
        let mut imports = 0;
        for asset in ASSETS.iter().filter(|asset| asset.media_type == SCRIPT) {
            let folder = asset.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            // Only imports have the word `from` before a quotation mark.
            for name in asset.text.split(" from \"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let path = match name.strip_prefix("../") {
                    Some(name) => format!("{}/{name}", folder.trim_end_matches("/pages")),
                    None => format!("{folder}/{}", name.trim_start_matches("./")),
                };
                assert!(super::asset(&path).is_some(), "{} imports {path}", asset.path);
                imports += 1;
            }
        }
        assert!(imports > 50, "{imports}");
    }

    #[test]
    fn no_page_writes_html_or_runs_text() {
        for asset in ASSETS {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                " style=",
                "onclick=",
            ] {
                assert!(!asset.text.contains(word), "{} contains {word}", asset.path);
            }
        }
    }
}
