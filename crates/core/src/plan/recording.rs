//! How the ledger records what a rule admits.

/// How the ledger records the charges of an item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Recording {
    /// Whether events of one second are folded into one row.
    pub totals: bool,
    /// Whether the answer waits for the commit in the database.
    pub wait: bool,
    /// Whether the failure policy answers while the database does not. Otherwise the journal queues.
    pub refuse_when_down: bool,
    /// Whether the store keeps the state under a [stamp](crate::stamped). The store in front of the ledger sets it.
    pub stamped: bool,
}

impl Recording {
    /// The flag of a recorded charge in the second byte of a receipt, and the flags beside it.
    pub(crate) const RECORDED: u8 = 0x20;
    const WAIT: u8 = 0x10;
    const TOTALS: u8 = 0x08;
    /// All flags.
    pub(crate) const FLAGS: u8 = Recording::RECORDED | Recording::WAIT | Recording::TOTALS;

    /// Returns the flags of a receipt. Follow-ups queue while the database is down: use must not vanish.
    pub(crate) const fn to_flags(recording: Option<Recording>) -> u8 {
        match recording {
            None => 0,
            Some(Recording { totals, wait, .. }) => {
                let wait = if wait { Recording::WAIT } else { 0 };
                Recording::RECORDED | wait | if totals { Recording::TOTALS } else { 0 }
            }
        }
    }

    /// Returns what the flags of a receipt say.
    pub(crate) const fn from_flags(flags: u8) -> Option<Recording> {
        if flags & Recording::RECORDED == 0 {
            return None;
        }
        let (wait, totals) = (flags & Recording::WAIT != 0, flags & Recording::TOTALS != 0);
        Some(Recording { totals, wait, refuse_when_down: false, stamped: false })
    }
}
