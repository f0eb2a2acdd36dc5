//! The commands: their table, their arguments and their replies.

mod arguments;
mod check;
pub(crate) mod info;
pub(crate) mod limit_command;
pub(crate) mod table;
pub(crate) mod throttle;

#[cfg(test)]
mod redis_cell_tests;
