//! Instants, spans and ticks, in integer microseconds. Nothing here reads a clock.

pub mod calendar;

use std::fmt;
use std::ops::Sub;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Largest integer that every store computes exactly. Lua's numbers are doubles.
pub const EXACT_MAX: u64 = (1 << 53) - 1;

/// An instant: microseconds since 1970-01-01T00:00:00Z, never above [`EXACT_MAX`] (the year 2255).
///
/// Sums saturate at [`Time::MAX`], which stands for "never".
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
    /// Returns the tick's length in microseconds.
    #[inline]
    pub const fn us(self) -> u64 {
        match self {
            Tick::Micro => 1,
            Tick::Milli => 1_000,
        }
    }

    /// Returns the number of whole ticks in a span.
    #[inline]
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
    /// The last instant. Sums saturate here.
    pub const MAX: Time = Time(EXACT_MAX);

    /// Returns the instant `us` microseconds after 1970, at most [`Time::MAX`].
    #[inline]
    pub const fn from_us(us: u64) -> Time {
        if us > EXACT_MAX { Time::MAX } else { Time(us) }
    }

    /// Returns the microseconds since 1970.
    #[inline]
    pub const fn us(self) -> u64 {
        self.0
    }

    /// Returns the instant `span` later.
    #[inline]
    pub const fn plus(self, span: Span) -> Time {
        Time::from_us(self.0 + span.0)
    }

    /// Returns the instant `span` earlier, at least [`Time::ZERO`].
    #[inline]
    pub const fn minus(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Rounds down to a multiple of `span` since 1970.
    #[inline]
    pub const fn floor(self, span: Span) -> Time {
        // Most limits count in ticks of 1 us. This avoids a division, the most expensive step of a decision.
        if span.0 == 1 { self } else { self.floor_dividing(span) }
    }

    /// Rounds up to a multiple of `span` since 1970.
    #[inline]
    pub const fn ceil(self, span: Span) -> Time {
        if span.0 == 1 { self } else { self.ceil_dividing(span) }
    }

    // Never inlined: otherwise the compiler divides every time and selects the result afterwards, while the caller holds
    // a lock.
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
    /// The empty span.
    pub const ZERO: Span = Span(0);
    /// The longest span.
    pub const MAX: Span = Span(EXACT_MAX);

    /// Returns a span of `us` microseconds, at most [`Span::MAX`].
    #[inline]
    pub const fn from_us(us: u64) -> Span {
        if us > EXACT_MAX { Span::MAX } else { Span(us) }
    }

    /// Returns a span of `ms` milliseconds, at most [`Span::MAX`].
    pub const fn from_ms(ms: u64) -> Span {
        Span::from_us(ms.saturating_mul(1_000))
    }

    /// Returns a span of `s` seconds, at most [`Span::MAX`].
    pub const fn from_secs(s: u64) -> Span {
        Span::from_us(s.saturating_mul(1_000_000))
    }

    /// Returns the microseconds.
    #[inline]
    pub const fn us(self) -> u64 {
        self.0
    }

    /// Returns the milliseconds, rounded up so that a wait is never too short.
    pub const fn ms_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Returns the seconds, rounded up.
    pub const fn secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    #[inline(never)]
    const fn whole_ms(self) -> u64 {
        self.0 / 1_000
    }

    /// Whether it is empty.
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

/// Formats as in a rules file, in the largest unit that gives a whole number.
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
    fn a_span_displays_in_the_largest_whole_unit() {
        for (us, text) in [(0, "0d"), (90_000_000, "90s"), (7_200_000_000, "2h"), (1_500, "1500us")] {
            assert_eq!(Span::from_us(us).to_string(), text);
        }
    }
}
