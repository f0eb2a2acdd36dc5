//! The locks and atomics of the store. Under the feature `shuttle` they are those of a scheduler that explores how threads
//! interleave.

#[cfg(not(feature = "shuttle"))]
pub(super) use parking_lot::{Mutex, MutexGuard, RwLock};
#[cfg(not(feature = "shuttle"))]
pub(super) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(feature = "shuttle")]
pub(super) use self::explored::{Mutex, MutexGuard, RwLock};
#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The scheduler's locks with the signatures of `parking_lot`.
#[cfg(feature = "shuttle")]
mod explored {
    pub(crate) use shuttle::sync::MutexGuard;
    use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

    #[derive(Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no thread has panicked")
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> RwLock<T> {
            RwLock(shuttle::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect("no thread has panicked")
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect("no thread has panicked")
        }
    }
}
