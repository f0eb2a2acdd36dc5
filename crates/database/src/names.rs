//! Names of accounts on their way to the journal: each is recorded once per process, with the next record of its account.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ledger::{Record, Subject};

/// Accounts whose names are remembered. Beyond it all are forgotten, and names are recorded again.
const ACCOUNTS_MAX: usize = 65_536;
/// Longest recorded name, in bytes.
const NAME_MAX: usize = 256;

/// The names that this process has seen.
#[derive(Debug, Default)]
pub(crate) struct Names {
    seen: Mutex<HashMap<Subject, Name>>,
}

#[derive(Debug)]
struct Name {
    text: Arc<str>,
    is_recorded: bool,
}

impl Names {
    /// Notes the name of an account, for its next record. A long name is cut.
    pub(crate) fn note(&self, subject: &Subject, name: &str) {
        let name = cut(name);
        let mut seen = self.lock();
        if seen.get(subject).is_some_and(|known| *known.text == *name) {
            return;
        }
        if seen.len() >= ACCOUNTS_MAX {
            seen.clear();
        }
        seen.insert(subject.clone(), Name { text: name.into(), is_recorded: false });
    }

    /// Returns the records with the names that are not recorded yet. `None` if no name is new, which is the usual case.
    pub(crate) fn attach(&self, records: &[Record]) -> Option<Vec<Record>> {
        let mut seen = self.lock();
        if seen.is_empty() {
            return None;
        }
        let mut named: Option<Vec<Record>> = None;
        for (index, record) in records.iter().enumerate() {
            let known = seen.get_mut(&record.account.subject).filter(|known| !known.is_recorded);
            if let Some(known) = known {
                known.is_recorded = true;
                named.get_or_insert_with(|| records.to_vec())[index].name = Some(Arc::clone(&known.text));
            }
        }
        named
    }

    /// Forgets that the names of these records were recorded: their append has failed.
    pub(crate) fn detach(&self, records: &[Record]) {
        let mut seen = self.lock();
        for record in records.iter().filter(|record| record.name.is_some()) {
            if let Some(known) = seen.get_mut(&record.account.subject) {
                known.is_recorded = false;
            }
        }
    }

    /// A thread that panicked with the lock left a map that is whole.
    fn lock(&self) -> MutexGuard<'_, HashMap<Subject, Name>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_MAX)]
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::ledger::{Account, Detail, Event, Id};

    fn record(byte: u8) -> Record {
        let subject = Subject { rule: "tokens".into(), id: Id([byte; 16]) };
        Record {
            account: Account { subject, period_us: 0 },
            ends_us: 0,
            allowance: 0,
            at_us: 0,
            rev: 0,
            detail: Detail::Entries,
            request: None,
            name: None,
            event: Event::Use { cost: 1 },
        }
    }

    fn attached(names: &Names, records: &[Record]) -> Vec<Option<String>> {
        let named = names.attach(records).unwrap_or_else(|| records.to_vec());
        named.into_iter().map(|record| record.name.map(|name| name.to_string())).collect()
    }

    #[test]
    fn a_name_is_attached_once_and_again_when_it_changes_or_its_append_failed() {
        let names = Names::default();
        let (one, two) = (record(1), record(2));
        let of = |name: &str| Some(name.to_owned());
        assert_eq!(attached(&names, &[one.clone(), two.clone()]), [None, None]);
        names.note(&one.account.subject, "Acme");
        assert_eq!(attached(&names, &[two.clone(), one.clone(), one.clone()]), [None, of("Acme"), None]);
        names.note(&one.account.subject, "Acme");
        assert_eq!(attached(&names, from_ref(&one)), [None]);
        names.note(&one.account.subject, "Acme Ltd");
        let named = names.attach(from_ref(&one)).expect("the name is new");
        names.detach(&named);
        assert_eq!(attached(&names, from_ref(&one)), [of("Acme Ltd")]);
        let long = "é".repeat(200);
        names.note(&two.account.subject, &long);
        assert_eq!(attached(&names, &[two]), [of(&long[..NAME_MAX])]);
    }
}
