//! Counts allocated bytes that are not yet freed, while counting is switched on.

#![expect(unsafe_code, reason = "the trait of global allocators is unsafe; each call is passed on unchanged")]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use mimalloc::MiMalloc;

/// The allocator of all contenders. While counting is off, it costs one load more than mimalloc alone.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

/// Returns what `make` returns, and by how many bytes the heap grew.
pub(crate) fn held_by<T>(make: impl FnOnce() -> T) -> (T, i64) {
    LIVE_BYTES.store(0, Ordering::SeqCst);
    IS_COUNTING.store(true, Ordering::SeqCst);
    let made = make();
    IS_COUNTING.store(false, Ordering::SeqCst);
    (made, LIVE_BYTES.load(Ordering::SeqCst))
}

fn count(bytes: usize, sign: i64) {
    if IS_COUNTING.load(Ordering::Relaxed) {
        LIVE_BYTES.fetch_add(sign * bytes as i64, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed to mimalloc with unchanged arguments, and its result is returned unchanged.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller upholds the contract, which is also mimalloc's.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: passed on unchanged.
        unsafe { MiMalloc.alloc(layout) }
    }

    // SAFETY: the caller upholds the contract, which is also mimalloc's.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: passed on unchanged.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    // SAFETY: the caller upholds the contract, which is also mimalloc's.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: passed on unchanged.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    // SAFETY: the caller upholds the contract, which is also mimalloc's.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: passed on unchanged.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_bytes_are_counted_and_freed_bytes_are_not() {
        let (kept, bytes) = held_by(|| {
            drop(vec![0_u8; 5_000]);
            let mut kept = Vec::<u8>::with_capacity(10);
            kept.reserve_exact(1_000);
            kept
        });
        assert_eq!(bytes, kept.capacity() as i64);
    }
}
