//! What a response says of a decision: header fields, the body of a refusal, and the decision as JSON.

mod decision_json;
pub mod headers;
mod json;
pub mod problem;
