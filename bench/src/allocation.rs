//! Counts the bytes that are allocated and not yet freed, while somebody asks for it.

#![expect(unsafe_code, reason = "the trait of global allocators is unsafe; each call is passed on unchanged")]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use mimalloc::MiMalloc;

/// The same allocator for everyone. While nobody counts, it costs one load more than mimalloc alone.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

/// The value that `make` gives, and by how many bytes the heap is larger after it than before.
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

// SAFETY: every call goes to mimalloc with the arguments it came with, and its answer is given back as it is.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller's promises are the ones that mimalloc needs.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: passed on unchanged.
        unsafe { MiMalloc.alloc(layout) }
    }

    // SAFETY: the caller's promises are the ones that mimalloc needs.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: passed on unchanged.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    // SAFETY: the caller's promises are the ones that mimalloc needs.
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: passed on unchanged.
        unsafe { MiMalloc.dealloc(place, layout) }
    }

    // SAFETY: the caller's promises are the ones that mimalloc needs.
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: passed on unchanged.
        unsafe { MiMalloc.realloc(place, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_counted_and_what_is_freed_is_not() {
        let (kept, bytes) = held_by(|| {
            drop(vec![0_u8; 5_000]);
            let mut kept = Vec::<u8>::with_capacity(10);
            kept.reserve_exact(1_000);
            kept
        });
        assert_eq!(bytes, kept.capacity() as i64);
    }
}
