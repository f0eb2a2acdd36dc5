//! Properties that hold for any bytes a server receives. The fuzz targets and the tests that replay their corpora check
//! them; each function panics if its property does not hold.

mod import;
mod json;
mod log;
mod proxy_protocol;
mod resp;
mod rls;

pub use import::import;
pub use json::json;
pub use log::log;
pub use proxy_protocol::proxy_protocol;
pub use resp::resp;
pub use rls::rls;
