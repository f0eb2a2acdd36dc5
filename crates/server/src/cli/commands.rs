//! One file per command, by what the command is about.

pub(crate) mod control;
pub(crate) mod database;
pub(crate) mod operate;
pub(crate) mod program;
pub(crate) mod rules;
pub(crate) mod server;
