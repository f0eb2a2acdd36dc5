//! A language model that needs no account: it answers with words at a constant pace.

use std::time::Duration;

/// The simulated model. One word is one token.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// The time that one token takes.
    pub pace: Duration,
}

/// An answer that is being generated.
pub(crate) struct Answer {
    pace: Duration,
    wanted: u64,
    sent: u64,
}

impl Model {
    /// Returns the tokens of a text, at least 1.
    pub fn count(&self, text: &str) -> u64 {
        text.split_whitespace().count().max(1) as u64
    }

    pub(crate) const fn answer(&self, wanted: u64) -> Answer {
        Answer { pace: self.pace, wanted, sent: 0 }
    }
}

impl Answer {
    pub(crate) const fn is_complete(&self) -> bool {
        self.sent == self.wanted
    }

    /// Returns the next token.
    pub(crate) async fn next(&mut self) -> String {
        if !self.pace.is_zero() {
            tokio::time::sleep(self.pace).await;
        }
        self.sent += 1;
        format!("word-{}", self.sent)
    }
}
