//! Limits, Plans and decisions as pure functions.
//!
//! Data flows one way. The attributes of a request become a [`Plan`], a store turns the Plan into an [`Outcome`], and
//! [`PlanDecision::new`] turns the Outcome into one decision. Nothing here reads a clock, opens a file or a socket, or
//! knows a transport: `now` is an argument everywhere.
//!
//! ```
//! use tollgate_core::algorithm::bucket::Bucket;
//! use tollgate_core::{Limit, Operation, Span, State, Time};
//!
//! // Two tokens per second, saved up to five.
//! let limit = Limit::Bucket(Bucket::tokens(2, Span::from_secs(1), 5)?);
//! let mut state: Option<State> = None;
//! let now = Time::from_us(1_700_000_000_000_000);
//!
//! let step = limit.decide(state.as_ref(), now, &Operation::charge(4));
//! assert!(step.answer.is_admitted());
//! assert_eq!(step.answer.remaining, 1);
//! State::commit(&mut state, step.write.expect("an admission writes").change);
//!
//! let step = limit.decide(state.as_ref(), now, &Operation::charge(2));
//! assert!(step.answer.is_refused());
//! assert!(step.write.is_none(), "a refusal changes nothing");
//! # Ok::<(), tollgate_core::LimitError>(())
//! ```

pub mod account;
pub mod algorithm;
pub mod decision;
pub mod key;
pub mod limit;
pub mod plan;
pub mod request;
pub mod rules;
pub mod stamped;
pub mod state;
pub mod store;
pub mod time;

pub use account::Account;
pub use algorithm::machine::{Machine, Step, Write};
pub use decision::exactness::Exactness;
pub use decision::{OnFailure, PlanDecision};
pub use key::{HoldKey, Key, Keyspace, StoredKey, Subject, SubjectHasher, SubjectHashers};
pub use limit::error::LimitError;
pub use limit::{Algorithm, Limit};
pub use plan::answer::{Answer, Decline, Retry, Verdict};
pub use plan::evaluate::{Evaluation, evaluate, evaluate_holds, evaluate_stamped, single_item_writes};
pub use plan::hold::{Generation, Hold, HoldChange, HoldLookup, HoldStatus, HoldWrite};
pub use plan::layers::Layers;
pub use plan::operation::{Mark, Operation, Report, Token};
pub use plan::receipt::{Nonce, Receipt};
pub use plan::recording::Recording;
pub use plan::request_id::RequestId;
pub use plan::{Item, Outcome, Plan, PlanError};
pub use request::attributes::Attributes;
pub use request::client_address::{
    Cidr, ClientAddress, Prefixes, ProxyHeader, TrustedProxies, client_address,
};
pub use state::{Change, CorruptState, State};
pub use store::{Store, StoreError};
pub use time::{EXACT_MAX, Span, Tick, Time};
