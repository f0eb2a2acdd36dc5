//! One file per command.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod estimate;
pub(crate) mod explain;
pub(crate) mod guide;
pub(crate) mod import;
pub(crate) mod lint;
pub(crate) mod man;
pub(crate) mod presets;
pub(crate) mod reset;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod token;
pub(crate) mod r#try;
