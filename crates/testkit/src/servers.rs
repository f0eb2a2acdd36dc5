//! Real programs that tests start: Redis servers, proxies that inject faults, Tollgate itself, callgrind, and tools in other languages.

pub mod callgrind;
pub mod drill;
pub mod fault_proxy;
pub mod http1;
pub mod http2;
mod ports;
pub mod postgres;
pub mod random;
pub mod redis;
pub mod serving;
pub mod tools;
mod unpacked;
