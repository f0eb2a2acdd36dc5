//! The control: a naive limiter on the same store, under the same fault.
//!
//! It increments a counter and sets the expiry afterwards, and its client repeats a command whose reply is missing. The
//! faults that it survives prove nothing about ours.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::place::{Contents, NAIVE, WINDOW};
use super::traffic::LIMIT;
use crate::drill::DrillError;
use crate::naive::NaiveStore;
use crate::servers::random::Random;

const THREADS: u64 = 4;
const SUBJECTS: u32 = 2_000;
const TIMEOUT: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(20);

/// The figures of the naive limiter.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Naive {
    /// Checks.
    pub checks: u64,
    /// Admissions beyond the limits.
    pub over_admitted: u64,
    /// Charges that no check explains.
    pub double_charged: u64,
    /// Keys that never expire.
    pub orphans: u64,
}

#[derive(Clone, Copy, Default)]
struct Account {
    admitted: u64,
    answered: u64,
    failed: u64,
}

pub(super) struct Control {
    is_over: Arc<AtomicBool>,
    /// The port of the server that has its keys now.
    port: Arc<AtomicU16>,
    accounts: Arc<Mutex<Vec<Account>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Control {
    pub(super) fn start(port: u16, password: Option<&str>, seed: u64) -> Control {
        let is_over = Arc::new(AtomicBool::new(false));
        let port = Arc::new(AtomicU16::new(port));
        let accounts = Arc::new(Mutex::new(vec![Account::default(); SUBJECTS as usize]));
        let threads = (0..THREADS).map(|number| {
            let (is_over, port, accounts) = (Arc::clone(&is_over), Arc::clone(&port), Arc::clone(&accounts));
            let password = password.map(str::to_owned);
            let mut random = Random::new(seed ^ number << 48);
            thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let port = port.load(Ordering::SeqCst);
                    match NaiveStore::connect_within(port, password.as_deref(), TIMEOUT) {
                        Ok(store) => ask(&store, &is_over, &accounts, &mut random),
                        Err(_) => thread::sleep(PAUSE_AFTER_FAILURE),
                    }
                }
            })
        });
        let threads = threads.collect();
        Control { is_over, port, accounts, threads }
    }

    /// Connects to another server from now on.
    pub(super) fn moved(&self, port: u16) {
        self.port.store(port, Ordering::SeqCst);
    }

    pub(super) fn stop(&mut self) -> Result<(), DrillError> {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| "the naive limiter panicked")?;
        }
        Ok(())
    }

    pub(super) fn figures(&self, contents: &Contents) -> Naive {
        let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut naive = Naive { orphans: contents.naive_orphans(), ..Naive::default() };
        for (user, account) in accounts.iter().enumerate() {
            let Account { admitted, answered, failed } = *account;
            naive.checks += answered + failed;
            naive.over_admitted += admitted.saturating_sub(LIMIT);
            naive.double_charged += contents.naive(user).saturating_sub(answered + failed);
        }
        naive
    }
}

/// Asks until a command fails for good.
fn ask(store: &NaiveStore, is_over: &AtomicBool, accounts: &Mutex<Vec<Account>>, random: &mut Random) {
    while !is_over.load(Ordering::SeqCst) {
        let user = f64::from(SUBJECTS).powf(random.fraction()) as usize;
        let charged = store.charge(&format!("{NAIVE}{user}"), 1, WINDOW.ms_ceil());
        let mut accounts = accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let account = &mut accounts[user];
        match &charged {
            Ok(used) => {
                account.answered += 1;
                account.admitted += u64::from(*used <= LIMIT);
            }
            Err(_) => account.failed += 1,
        }
        drop(accounts);
        if charged.is_err() {
            return thread::sleep(PAUSE_AFTER_FAILURE);
        }
        thread::sleep(PAUSE);
    }
}
