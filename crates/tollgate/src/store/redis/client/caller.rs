//! Calls of the script as bytes, for whoever brings a connection: the tests that compare the twins with core.

use std::time::Duration;

use tollgate_core::{Outcome, Plan, StoreError, Time};

use crate::store::redis::TimeSource;
use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::batch::{Call, Terms};
use crate::store::redis::protocol::reply::{self, Reply};
use crate::store::redis::protocol::script::Scripts;
use crate::store::redis::protocol::wire::{Attempt, Encoded, decode};

/// Makes commands out of Plans and outcomes out of replies.
#[doc(hidden)]
pub struct Caller {
    scripts: Scripts,
    terms: Terms,
}

impl Caller {
    /// Scripts are made of what `edit` makes of a file's name and source.
    pub fn new(
        time: TimeSource,
        margin: Duration,
        edit: impl Fn(&str, &str) -> String + Send + Sync + 'static,
    ) -> Caller {
        Caller { scripts: Scripts::edited(Box::new(edit)), terms: Terms::new(time, margin) }
    }

    /// The command that carries out these Plans, each at its caller's instant, one after another in one step.
    pub fn command(&self, plans: &[(&Plan<'_>, Time)], by_digest: bool) -> Vec<u8> {
        let mut command = Vec::new();
        self.call(plans).write(&mut command, by_digest);
        command
    }

    fn call(&self, plans: &[(&Plan<'_>, Time)]) -> Call {
        let encode = |(plan, now): &(&Plan<'_>, Time)| Encoded::new(plan, "", *now, Attempt::Only);
        let mut plans: Vec<Encoded> = plans.iter().map(encode).collect();
        let mut plans: Vec<&mut Encoded> = plans.iter_mut().collect();
        Call::new(&mut plans, self.terms, &self.scripts)
    }

    /// What was found for each of the Plans, read from whatever a server sent; None if the reply has not come whole.
    pub fn read(
        &self,
        plans: &[&Plan<'_>],
        sent: &[u8],
    ) -> Result<Option<Vec<Result<Outcome, StoreError>>>, RedisError> {
        Ok(match reply::parse(sent)? {
            Some((Reply::Value(Some(reply)), _)) => Some(self.outcomes(plans, reply)),
            Some((Reply::Value(None) | Reply::List(_), _)) => {
                return Err(RedisError::Nonsense("the script answers nothing"));
            }
            Some((Reply::Error(answer), _)) => return Err(RedisError::Refused(answer)),
            None => None,
        })
    }

    /// What was found for each of the Plans, if all of them had the same instant.
    pub fn outcomes(&self, plans: &[&Plan<'_>], reply: &[u8]) -> Vec<Result<Outcome, StoreError>> {
        let timed: Vec<(&Plan<'_>, Time)> = plans.iter().map(|plan| (*plan, Time::ZERO)).collect();
        let mut parts: Vec<_> = self.call(&timed).split(reply).collect();
        parts.sort_unstable_by_key(|&(place, _)| place);
        parts.into_iter().map(|(place, part)| decode(plans[place], part?)).collect()
    }
}
