//! How late a busy machine wakes a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(1);

/// A thread that sleeps for a millisecond at a time, and measures how late it wakes.
pub(crate) struct StallWatch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl StallWatch {
    pub(crate) fn start() -> StallWatch {
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut worst = Duration::ZERO;
            while !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                thread::sleep(PAUSE);
                worst = worst.max(began.elapsed().saturating_sub(PAUSE));
            }
            worst
        });
        StallWatch { is_over, thread }
    }

    /// Ends the thread, and returns the longest delay.
    pub(crate) fn end(self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
