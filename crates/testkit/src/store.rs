//! What every store must do, and the model and the counter-example to compare stores with.

pub mod conformance;
pub mod model;
pub mod naive;
pub mod twin;
