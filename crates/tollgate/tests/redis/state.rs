//! State of large subjects: the memory it takes, its answers, and the time that a check of it takes.

mod footprint;
mod long_logs;
mod stamped;
mod stamped_cost;
mod store_time;
