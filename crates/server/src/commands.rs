//! One file per command.

pub(crate) mod r#try;
