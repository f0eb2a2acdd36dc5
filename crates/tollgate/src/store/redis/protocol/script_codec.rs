//! Script calls as bytes, without a connection: for tests and benchmarks that bring their own.

use std::time::Duration;

use tollgate_core::stamped::NODE_UNKNOWN;
use tollgate_core::{Outcome, Plan, StoreError, Time};

use super::batch::{Call, CallSettings};
use super::plan_codec::{Attempt, EncodedPlan, decode};
use super::resp::{self, Reply};
use super::script::Scripts;
use crate::store::redis::TimeSource;
use crate::store::redis::error::RedisError;

/// Encodes Plans as commands and decodes replies into Outcomes.
#[doc(hidden)]
pub struct ScriptCodec {
    scripts: Scripts,
    call_settings: CallSettings,
    node: u64,
}

impl ScriptCodec {
    /// `edit` receives the name and source of each Lua file and returns the source to use.
    pub fn new(
        time: TimeSource,
        margin: Duration,
        edit: impl Fn(&str, &str) -> String + Send + Sync + 'static,
    ) -> ScriptCodec {
        ScriptCodec {
            scripts: Scripts::with_edit(Box::new(edit)),
            call_settings: CallSettings::new(time, margin),
            node: NODE_UNKNOWN,
        }
    }

    /// Sets the number of the node that the commands are sent to.
    pub fn with_node(self, node: u64) -> ScriptCodec {
        ScriptCodec { node, ..self }
    }

    /// Encodes the command that applies these Plans in order, each at its caller's time, in one step.
    pub fn command(&self, plans: &[(&Plan<'_>, Time)], by_digest: bool) -> Vec<u8> {
        let mut command = Vec::new();
        self.call(plans).write(&mut command, by_digest);
        command
    }

    fn call(&self, plans: &[(&Plan<'_>, Time)]) -> Call {
        let encode = |(plan, now): &(&Plan<'_>, Time)| EncodedPlan::new(plan, "", *now, Attempt::Unnumbered);
        let mut plans: Vec<EncodedPlan> = plans.iter().map(encode).collect();
        let mut plans: Vec<&mut EncodedPlan> = plans.iter_mut().collect();
        Call::new(&mut plans, self.node, self.call_settings, &self.scripts)
    }

    /// Parses a server's bytes into one Outcome per Plan. Returns None if the reply is incomplete.
    pub fn read(
        &self,
        plans: &[&Plan<'_>],
        bytes: &[u8],
    ) -> Result<Option<Vec<Result<Outcome, StoreError>>>, RedisError> {
        Ok(match resp::parse(bytes)? {
            Some((Reply::Value(Some(reply)), _)) => Some(self.outcomes(plans, reply)),
            Some((Reply::Value(None) | Reply::Array(_), _)) => {
                return Err(RedisError::UnexpectedReply("the script's reply is not a string"));
            }
            Some((Reply::Error(text), _)) => return Err(RedisError::ErrorReply(text)),
            None => None,
        })
    }

    /// Decodes the script's reply into one Outcome per Plan. All Plans must have had the same time.
    pub fn outcomes(&self, plans: &[&Plan<'_>], reply: &[u8]) -> Vec<Result<Outcome, StoreError>> {
        let timed: Vec<(&Plan<'_>, Time)> = plans.iter().map(|plan| (*plan, Time::ZERO)).collect();
        let mut replies: Vec<_> = self.call(&timed).split(reply).collect();
        replies.sort_unstable_by_key(|&(index, _)| index);
        replies.into_iter().map(|(index, reply)| decode(plans[index], reply?)).collect()
    }
}
