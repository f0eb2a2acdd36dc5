//! Instants, spans and ticks. Everything is integer microseconds; nothing here reads a clock.

use std::fmt;
use std::ops::Sub;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest integer that every host computes with exactly: Lua's numbers are doubles.
pub const EXACT_MAX: u64 = (1 << 53) - 1;

/// An instant: microseconds since 1970-01-01T00:00:00Z, never above [`EXACT_MAX`] (the year 2255).
///
/// Sums saturate at [`Time::MAX`]: an instant that far away means "not in this program's lifetime".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A length of time in microseconds, never above [`EXACT_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

/// The resolution in which a limit counts time.
///
/// A limit whose largest intermediate would pass [`EXACT_MAX`] in microseconds counts in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tick {
    /// One microsecond.
    Micro,
    /// One millisecond.
    Milli,
}

impl Tick {
    /// The tick's length in microseconds.
    pub const fn us(self) -> u64 {
        match self {
            Tick::Micro => 1,
            Tick::Milli => 1_000,
        }
    }

    /// How many whole ticks a span has.
    pub const fn whole_in(self, span: Span) -> u64 {
        match self {
            Tick::Micro => span.0,
            Tick::Milli => span.whole_ms(),
        }
    }
}

impl Time {
    /// The first instant.
    pub const ZERO: Time = Time(0);
    /// The last instant; sums end here.
    pub const MAX: Time = Time(EXACT_MAX);

    /// The instant `us` microseconds after 1970, or the last one if that is later.
    pub const fn from_us(us: u64) -> Time {
        if us > EXACT_MAX { Time::MAX } else { Time(us) }
    }

    /// Microseconds since 1970.
    pub const fn us(self) -> u64 {
        self.0
    }

    /// The instant `span` later.
    pub const fn plus(self, span: Span) -> Time {
        Time::from_us(self.0 + span.0)
    }

    /// The instant `span` earlier, or the first one if there is none.
    pub const fn minus(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The start of the interval of length `span`, counted from 1970, that holds this instant.
    #[inline]
    pub const fn floor(self, span: Span) -> Time {
        // Most limits count in ticks of one: a division is the dearest step of a decision.
        if span.0 == 1 { self } else { self.floor_dividing(span) }
    }

    /// The first start of such an interval at or after this instant.
    #[inline]
    pub const fn ceil(self, span: Span) -> Time {
        if span.0 == 1 { self } else { self.ceil_dividing(span) }
    }

    // Never inlined, like all that a tick of one spares: next to the branch that spares it, the compiler would rather
    // divide every time and choose afterwards, and whoever holds a lock would wait for it.
    #[inline(never)]
    const fn floor_dividing(self, span: Span) -> Time {
        Time(self.0 - self.0 % span.0)
    }

    #[inline(never)]
    const fn ceil_dividing(self, span: Span) -> Time {
        Time::from_us(self.0.div_ceil(span.0) * span.0)
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// The longest span.
    pub const MAX: Span = Span(EXACT_MAX);

    /// A span of `us` microseconds, or the longest one if that is longer.
    pub const fn from_us(us: u64) -> Span {
        if us > EXACT_MAX { Span::MAX } else { Span(us) }
    }

    /// A span of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Span {
        Span::from_us(ms.saturating_mul(1_000))
    }

    /// A span of `s` seconds.
    pub const fn from_secs(s: u64) -> Span {
        Span::from_us(s.saturating_mul(1_000_000))
    }

    /// Microseconds.
    pub const fn us(self) -> u64 {
        self.0
    }

    /// Milliseconds, rounded up: a wait is never understated.
    pub const fn ms_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Seconds, rounded up.
    pub const fn secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    #[inline(never)]
    const fn whole_ms(self) -> u64 {
        self.0 / 1_000
    }

    /// Whether there is nothing in it.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Sub for Time {
    type Output = Span;

    fn sub(self, earlier: Time) -> Span {
        self.since(earlier)
    }
}

/// Rounds down to whole microseconds; anything longer than [`Span::MAX`] becomes that.
impl From<Duration> for Span {
    fn from(duration: Duration) -> Span {
        Span::from_us(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Duration {
        Duration::from_micros(span.0)
    }
}

/// An instant before 1970 becomes [`Time::ZERO`].
impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Time {
        Time::ZERO.plus(time.duration_since(UNIX_EPOCH).unwrap_or_default().into())
    }
}

impl From<Time> for SystemTime {
    fn from(time: Time) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(time.0)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}us", self.0)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// As a rules file writes it: the largest unit that leaves a whole number.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 6] = [
            (86_400_000_000, "d"),
            (3_600_000_000, "h"),
            (60_000_000, "min"),
            (1_000_000, "s"),
            (1_000, "ms"),
            (1, "us"),
        ];
        let (unit, name) =
            UNITS.into_iter().find(|(unit, _)| self.0.is_multiple_of(*unit)).unwrap_or((1, "us"));
        write!(f, "{}{name}", self.0 / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate_and_never_wrap() {
        assert_eq!(Time::MAX.plus(Span::MAX), Time::MAX);
        assert_eq!(Time::ZERO.minus(Span::from_us(1)), Time::ZERO);
        assert_eq!(Time::ZERO - Time::MAX, Span::ZERO);
        assert_eq!(Time::from_us(u64::MAX), Time::MAX);
        assert_eq!(Span::from_secs(u64::MAX), Span::MAX);
    }

    #[test]
    fn times_of_the_standard_library_convert_without_loss() {
        let day = Duration::from_micros(86_400_000_001);
        assert_eq!(Duration::from(Span::from(day)), day);
        assert_eq!(Span::from(Duration::MAX), Span::MAX);
        let instant = UNIX_EPOCH + day;
        assert_eq!(SystemTime::from(Time::from(instant)), instant);
        assert_eq!(Time::from(UNIX_EPOCH - day), Time::ZERO);
    }

    #[test]
    fn waits_round_up() {
        assert_eq!(Span::from_us(1).ms_ceil(), 1);
        assert_eq!(Span::from_us(1_000_001).secs_ceil(), 2);
        assert_eq!(Span::ZERO.secs_ceil(), 0);
    }

    #[test]
    fn a_span_reads_as_people_write_it() {
        for (us, text) in [(0, "0d"), (90_000_000, "90s"), (7_200_000_000, "2h"), (1_500, "1500us")] {
            assert_eq!(Span::from_us(us).to_string(), text);
        }
    }
}
