//! The turn of a connection: how much it does before other connections of its thread are served.

use std::time::{Duration, Instant};

/// Commands of one turn. A client that waits for replies sends fewer at a time.
const COMMANDS_MAX: u32 = 64;
/// Duration of one turn. Commands of slow limits use it up earlier.
const DURATION_MAX: Duration = Duration::from_micros(50);
/// The clock is read once for this many commands.
const CLOCK_EVERY: u32 = 16;

/// A turn that has begun.
#[derive(Debug, Default)]
pub(super) struct Turn {
    commands: u32,
    /// When the clock was read first.
    since: Option<Instant>,
}

impl Turn {
    /// Whether the next command belongs to the next turn. Counts the command if not.
    #[inline]
    pub(super) fn is_over(&mut self) -> bool {
        if self.commands.is_multiple_of(CLOCK_EVERY) && self.commands > 0 {
            let since = *self.since.get_or_insert_with(Instant::now);
            if self.commands >= COMMANDS_MAX || since.elapsed() >= DURATION_MAX {
                return true;
            }
        }
        self.commands += 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_after_its_commands_or_its_time() {
        let mut turn = Turn::default();
        let commands = (0..).take_while(|_| !turn.is_over()).count();
        assert!(commands <= COMMANDS_MAX as usize && commands >= CLOCK_EVERY as usize, "{commands}");
        let mut slow = Turn { commands: 1, since: Instant::now().checked_sub(DURATION_MAX) };
        let commands = (0..).take_while(|_| !slow.is_over()).count();
        assert_eq!(commands, CLOCK_EVERY as usize - 1);
    }
}
