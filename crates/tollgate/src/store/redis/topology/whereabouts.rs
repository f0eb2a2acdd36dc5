//! Where a server is: at one address, or wherever the sentinels say.

use std::future::pending;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::watch;

use super::target::Address;
use crate::store::redis::error::RedisError;

/// Where a server is.
#[derive(Debug)]
pub(crate) enum Whereabouts {
    Fixed(Address),
    /// Wherever the sentinels say that the primary of this name is.
    Watched {
        name: Arc<str>,
        primary: watch::Receiver<Named>,
    },
}

/// What the sentinels say of the primary.
#[derive(Clone, Default, Debug)]
pub(crate) struct Named {
    /// The primary.
    pub(crate) address: Option<Address>,
    /// The replica that is to take its place, while a failover is under way. It may be the primary already, long before
    /// the sentinels see it; or it never will be.
    pub(crate) chosen: Option<Address>,
    /// Why nothing is known.
    pub(crate) trouble: Option<RedisError>,
}

/// Where the server may be, the likeliest first.
pub(crate) type Places = SmallVec<[Address; 2]>;

impl Named {
    fn places(&self) -> Places {
        let mut places: Places = self.chosen.iter().cloned().collect();
        places.extend(self.address.iter().filter(|&address| self.chosen.as_ref() != Some(address)).cloned());
        places
    }
}

impl Whereabouts {
    /// As far as is known.
    pub(crate) fn places(&self) -> Places {
        match self {
            Whereabouts::Fixed(address) => SmallVec::from_iter([address.clone()]),
            Whereabouts::Watched { primary, .. } => primary.borrow().places(),
        }
    }

    /// Once it is known, or known not to be.
    pub(crate) async fn known(&self) -> Result<Places, RedisError> {
        let Whereabouts::Watched { name, primary } = self else { return Ok(self.places()) };
        let told = |named: &Named| !named.places().is_empty() || named.trouble.is_some();
        let named = primary.clone().wait_for(told).await.map(|named| named.clone()).unwrap_or_default();
        let places = named.places();
        let source = named.trouble.map(Arc::new);
        if places.is_empty() {
            Err(RedisError::NoPrimary { name: Arc::clone(name), source })
        } else {
            Ok(places)
        }
    }

    /// Waits until it cannot be at this address any more.
    pub(crate) async fn leaves(&self, address: &Address) {
        self.until(|places| !places.is_empty() && !places.contains(address)).await;
    }

    /// Waits until it may be elsewhere than was thought.
    pub(crate) async fn differs(&self, thought: &Places) {
        self.until(|places| !places.is_empty() && places != thought).await;
    }

    async fn until(&self, wanted: impl Fn(&Places) -> bool) {
        if let Whereabouts::Watched { primary, .. } = self
            && primary.clone().wait_for(|named| wanted(&named.places())).await.is_ok()
        {
            return;
        }
        pending().await
    }

    /// What is told if nobody is reached there in time.
    pub(crate) fn unreached(&self) -> RedisError {
        match (self, self.places().into_iter().next_back()) {
            (Whereabouts::Watched { name, .. }, None) => {
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
