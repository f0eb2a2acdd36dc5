//! Bounds the output of all RESP connections that their clients have not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// While the budget is exhausted, a connection with this much unread output runs no more commands.
pub(crate) const OUTPUT_MIN: usize = 16 * 1024;

/// The unread output of all connections.
#[derive(Debug)]
pub(crate) struct OutputBudget {
    unread: AtomicUsize,
    max: usize,
}

/// The part of one connection. Dropping it gives the part back.
#[derive(Debug)]
pub(crate) struct OutputShare {
    budget: Arc<OutputBudget>,
    unread: usize,
}

impl OutputBudget {
    pub(crate) const fn new(max: usize) -> OutputBudget {
        OutputBudget { unread: AtomicUsize::new(0), max }
    }

    /// Bytes that clients have not read.
    pub(crate) fn unread(&self) -> usize {
        self.unread.load(Ordering::Relaxed)
    }

    fn is_exhausted(&self) -> bool {
        self.unread() >= self.max
    }
}

impl OutputShare {
    pub(crate) const fn new(budget: Arc<OutputBudget>) -> OutputShare {
        OutputShare { budget, unread: 0 }
    }

    /// Sets the unread output of this connection. Usually it is empty before and after.
    #[inline]
    pub(crate) fn set(&mut self, unread: usize) {
        if unread != self.unread {
            // Two's complement: adding the wrapped difference subtracts.
            self.budget.unread.fetch_add(unread.wrapping_sub(self.unread), Ordering::Relaxed);
            self.unread = unread;
        }
    }

    /// How much output may wait on this connection before it runs no more commands.
    #[inline]
    pub(crate) fn limit(&self, usual: usize) -> usize {
        if self.budget.is_exhausted() { OUTPUT_MIN.min(usual) } else { usual }
    }
}

impl Drop for OutputShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exhausted_budget_leaves_each_connection_little_until_output_is_read() {
        let budget = Arc::new(OutputBudget::new(1_000_000));
        let mut shares: Vec<_> = (0..4).map(|_| OutputShare::new(Arc::clone(&budget))).collect();
        shares[0].set(600_000);
        assert_eq!(shares[1].limit(256 * 1024), 256 * 1024);
        shares[1].set(400_000);
        assert_eq!(shares[2].limit(256 * 1024), OUTPUT_MIN);
        shares[0].set(100);
        assert_eq!((budget.unread(), shares[2].limit(256 * 1024)), (400_100, 256 * 1024));
        drop(shares);
        assert_eq!(budget.unread(), 0, "a closed connection gives its part back");
    }
}
