//! Commands about rules: write, convert, check and try them.

pub(crate) mod estimate;
pub(crate) mod explain;
pub(crate) mod guide;
pub(crate) mod import;
pub(crate) mod lint;
pub(crate) mod presets;
pub(crate) mod schema;
pub(crate) mod simulate;
mod simulate_progress;
pub(crate) mod test;
pub(crate) mod r#try;
