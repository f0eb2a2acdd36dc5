//! Lost replies, crashed holders, corrupt values and servers without memory.

mod corrupt_state;
mod full;
mod holders;
mod ledger;
mod losses;
mod out_of_memory;
