//! The address of a server: fixed, or followed through the sentinels.

use std::future::pending;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::watch;

use super::address::Address;
use crate::store::redis::error::RedisError;

/// Finds the address of one server.
#[derive(Debug)]
pub(crate) enum PrimaryLocator {
    Fixed(Address),
    /// The primary that the sentinels know by this name.
    Sentinels {
        name: Arc<str>,
        primary: watch::Receiver<KnownPrimary>,
    },
}

/// What the sentinels say about the primary.
#[derive(Clone, Default, Debug)]
pub(crate) struct KnownPrimary {
    pub(crate) address: Option<Address>,
    /// The replica that the sentinels are promoting. It may become the primary before the sentinels notice, or never.
    pub(crate) chosen_replica: Option<Address>,
    /// Whether the chosen replica says that it is the primary. What the old primary still accepts will be lost.
    pub(crate) is_promoted: bool,
    /// Why the primary is not known.
    pub(crate) error: Option<RedisError>,
}

/// Addresses that may be the server's, the likeliest first.
pub(crate) type Candidates = SmallVec<[Address; 2]>;

impl KnownPrimary {
    fn candidates(&self) -> Candidates {
        let mut candidates: Candidates = self.chosen_replica.iter().cloned().collect();
        if self.is_promoted && !candidates.is_empty() {
            return candidates;
        }
        let primary = self.address.iter().filter(|&address| self.chosen_replica.as_ref() != Some(address));
        candidates.extend(primary.cloned());
        candidates
    }
}

impl PrimaryLocator {
    /// The candidates known now. Empty until the sentinels name the primary.
    pub(crate) fn candidates(&self) -> Candidates {
        match self {
            PrimaryLocator::Fixed(address) => SmallVec::from_iter([address.clone()]),
            PrimaryLocator::Sentinels { primary, .. } => primary.borrow().candidates(),
        }
    }

    /// Waits until the sentinels name the primary, or until all of them have failed to.
    pub(crate) async fn wait_for_candidates(&self) -> Result<Candidates, RedisError> {
        let PrimaryLocator::Sentinels { name, primary } = self else { return Ok(self.candidates()) };
        let is_settled = |known: &KnownPrimary| !known.candidates().is_empty() || known.error.is_some();
        let known = primary.clone().wait_for(is_settled).await.map(|known| known.clone()).unwrap_or_default();
        let candidates = known.candidates();
        let source = known.error.map(Arc::new);
        if candidates.is_empty() {
            Err(RedisError::NoPrimary { name: Arc::clone(name), source })
        } else {
            Ok(candidates)
        }
    }

    /// Waits until this address is no longer a candidate.
    pub(crate) async fn moved_from(&self, address: &Address) {
        self.wait_for(|candidates| !candidates.is_empty() && !candidates.contains(address)).await;
    }

    /// Waits until the candidates differ from these.
    pub(crate) async fn changed_from(&self, known: &Candidates) {
        self.wait_for(|candidates| !candidates.is_empty() && candidates != known).await;
    }

    /// Waits until the condition holds: for ever, if the address is fixed.
    async fn wait_for(&self, condition: impl Fn(&Candidates) -> bool) {
        if let PrimaryLocator::Sentinels { primary, .. } = self
            && primary.clone().wait_for(|known| condition(&known.candidates())).await.is_ok()
        {
            return;
        }
        pending().await
    }

    /// The error of a connection attempt that took too long.
    pub(crate) fn timeout_error(&self) -> RedisError {
        match (self, self.candidates().into_iter().next_back()) {
            (PrimaryLocator::Sentinels { name, .. }, None) => {
                RedisError::NoPrimary { name: Arc::clone(name), source: None }
            }
            (_, address) => {
                let address = address.map_or_else(String::new, |address| address.to_string()).into();
                let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
                RedisError::Connect { address, source: Arc::new(source) }
            }
        }
    }
}
