//! The rules of a simulation, and the naive share of each limit.

use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::meter::Meter;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::{Limit, LimitError, Span};

use crate::random::Random;

/// One rule. The rules file and the expectation are both made from it.
#[derive(Clone, Debug)]
pub(super) struct SimulatedRule {
    pub(super) id: &'static str,
    counts: Counts,
    pub(super) policy: Policy,
    /// For how long a server may spend a part of the limit that it has booked; 0 if the rule has no slices.
    hold_ms: u64,
    /// The actions that it matches.
    actions: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Counts {
    Window {
        limit: u64,
        seconds: u64,
    },
    Bucket {
        per_second: u64,
        burst: u64,
    },
    /// A quota per calendar hour.
    Hourly {
        quota: u64,
    },
    /// A quota per period from the first use.
    Rolling {
        quota: u64,
        seconds: u64,
    },
    Meter {
        limit: u64,
    },
}

/// For how long consumption counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lasting {
    /// Until the end of the calendar hour.
    Hour,
    /// This long from the first use.
    FromFirstUse(Span),
    /// For ever.
    Always,
}

/// What answers while the store does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    Open,
    Closed,
    Percent(u64),
    Fair,
    Cap { amount: u64, seconds: u64 },
}

/// The actions of requests.
pub(super) const ACTIONS: [&str; 7] = ["window", "bucket", "both", "capped", "strict", "counted", "rolled"];

/// The actions of hot keys, whose rules have slices. The last one is counted by a rule without slices too.
pub(super) const HOT_ACTIONS: [&str; 3] = ["hot-window", "hot-bucket", "hot-both"];

/// The longest time for which a server holds a part of a limit.
pub(super) const HOLD_MAX: Span = Span::from_ms(1_000);

/// Draws the rules of a run.
pub(super) fn draw(random: &mut Random) -> Vec<SimulatedRule> {
    let mut from = |least: usize, end: usize| (least + random.below(end - least)) as u64;
    let window = |limit, seconds| Counts::Window { limit, seconds };
    let rule = |id, counts, policy, actions| SimulatedRule { id, counts, policy, hold_ms: 0, actions };
    let sliced = |rule: SimulatedRule, hold_ms| SimulatedRule { hold_ms, ..rule };
    let policy = if from(0, 2) == 0 { Policy::Open } else { Policy::Closed };
    vec![
        rule(
            "window-share",
            window(from(4, 40), from(1, 6)),
            Policy::Percent(from(10, 101)),
            "[window, both, strict]",
        ),
        rule(
            "bucket-share",
            Counts::Bucket { per_second: from(1, 8), burst: from(4, 30) },
            Policy::Fair,
            "[bucket, both]",
        ),
        rule(
            "window-cap",
            window(from(10, 60), from(2, 6)),
            Policy::Cap { amount: from(1, 8), seconds: from(1, 4) },
            "[capped]",
        ),
        rule("window-open", window(from(10, 60), from(2, 6)), Policy::Open, "[capped, window]"),
        rule("window-closed", window(from(10, 60), from(2, 6)), Policy::Closed, "[strict]"),
        sliced(
            rule("window-sliced", window(from(60, 160), from(1, 4)), policy, "[hot-window, hot-both]"),
            from(200, HOLD_MAX.us() as usize / 1_000 + 1),
        ),
        sliced(
            rule(
                "bucket-sliced",
                Counts::Bucket { per_second: from(20, 60), burst: from(90, 160) },
                policy,
                "[hot-bucket]",
            ),
            from(300, HOLD_MAX.us() as usize / 1_000 + 1),
        ),
        rule(
            "quota-hourly",
            Counts::Hourly { quota: from(20, 80) },
            Policy::Percent(from(20, 101)),
            "[counted]",
        ),
        rule(
            "meter",
            Counts::Meter { limit: from(60, 200) },
            Policy::Percent(from(20, 101)),
            "[counted, rolled]",
        ),
        rule(
            "quota-rolling",
            Counts::Rolling { quota: from(10, 40), seconds: from(2, 9) },
            Policy::Cap { amount: from(4, 12), seconds: from(1, 4) },
            "[rolled]",
        ),
        rule("window-beside", window(from(20, 120), from(1, 4)), policy, "[hot-both]"),
    ]
}

/// Returns the rules file.
pub(super) fn yaml(rules: &[SimulatedRule]) -> String {
    let lines = rules.iter().map(|rule| {
        let SimulatedRule { id, counts, policy, hold_ms, actions } = rule;
        let slices = match hold_ms {
            0 => String::new(),
            ms => format!(", slices: {{ hold: {ms}ms }}"),
        };
        let limit = match counts {
            Counts::Window { limit, seconds } => format!("{{ fixed-window: {limit}/{seconds}s }}"),
            Counts::Bucket { per_second, burst } => {
                format!("{{ token-bucket: {per_second}/s, burst: {burst} }}")
            }
            Counts::Hourly { quota } => format!("{{ quota: {quota}/hour }}"),
            Counts::Rolling { quota, seconds } => {
                format!("{{ quota: {quota}/{seconds}s, period: rolling }}")
            }
            Counts::Meter { limit } => format!("{{ meter: {limit} }}"),
        };
        let policy = match policy {
            Policy::Open => "open".to_owned(),
            Policy::Closed => "closed".to_owned(),
            Policy::Percent(percent) => format!("local {percent}%"),
            Policy::Fair => "local fair".to_owned(),
            Policy::Cap { amount, seconds } => format!("cap {amount}/{seconds}s"),
        };
        format!(
            "  - {{ id: {id}, match: {{ action: {actions} }}, per: user, limit: {limit}, cost: request, on_failure: {policy}{slices} }}\n"
        )
    });
    format!("version: 1\nrules:\n{}", lines.collect::<String>())
}

impl SimulatedRule {
    /// Whether servers take parts of the limit.
    pub(super) const fn has_slices(&self) -> bool {
        self.hold_ms > 0
    }

    /// The limit in the store; `None` if it counts by periods, or without an end.
    pub(super) fn limit(&self) -> Option<Result<Limit, LimitError>> {
        self.lasting().is_none().then(|| self.scaled(1, 1, None))
    }

    /// For how long consumption counts, if what was admitted without the store is posted.
    pub(super) const fn lasting(&self) -> Option<Lasting> {
        match self.counts {
            Counts::Window { .. } | Counts::Bucket { .. } => None,
            Counts::Hourly { .. } => Some(Lasting::Hour),
            Counts::Rolling { seconds, .. } => Some(Lasting::FromFirstUse(Span::from_secs(seconds))),
            Counts::Meter { .. } => Some(Lasting::Always),
        }
    }

    /// The units per calendar hour, of a quota that counts them.
    pub(super) const fn hourly(&self) -> Option<u64> {
        match self.counts {
            Counts::Hourly { quota } => Some(quota),
            _ => None,
        }
    }

    /// The limit of the limiter in each of `servers` processes; `None` if the policy has none. `stored` has the periods of a
    /// quota.
    pub(super) fn local_limit(&self, servers: u64, stored: &Limit) -> Option<Result<Limit, LimitError>> {
        let periods = match stored {
            Limit::Quota(quota) => Some(quota.period()),
            _ => None,
        };
        match self.policy {
            Policy::Percent(percent) => Some(self.scaled(percent, 100, periods)),
            Policy::Fair => Some(self.scaled(1, servers, periods)),
            Policy::Cap { amount, seconds } => {
                Some(Bucket::tokens(amount, Span::from_secs(seconds), amount).map(Limit::Bucket))
            }
            Policy::Open | Policy::Closed => None,
        }
    }

    /// The share of some units, rounded down.
    pub(super) fn share_of(&self, units: u64, servers: u64) -> u64 {
        match self.policy {
            Policy::Percent(percent) => units * percent / 100,
            _ => units / servers,
        }
    }

    /// The capacity of a share and the length of its window, if it is a share of a window.
    pub(super) fn window_share(&self) -> Option<(u64, u64)> {
        match (self.counts, self.policy) {
            (Counts::Window { limit, seconds }, Policy::Percent(percent)) => {
                Some(((limit * percent / 100).max(1), seconds * 1_000_000))
            }
            _ => None,
        }
    }

    fn scaled(&self, parts: u64, of: u64, periods: Option<QuotaPeriod>) -> Result<Limit, LimitError> {
        let part = |units: u64| (units * parts / of).max(1);
        match self.counts {
            Counts::Window { limit, seconds } => {
                FixedWindow::new(part(limit), Span::from_secs(seconds)).map(Limit::FixedWindow)
            }
            Counts::Bucket { per_second, burst } => {
                let period = Span::from_ms((1_000 * of).div_ceil(parts));
                Bucket::tokens(per_second, period, part(burst)).map(Limit::Bucket)
            }
            Counts::Hourly { quota } | Counts::Rolling { quota, .. } => {
                let periods = periods.unwrap_or(QuotaPeriod::Rolling(Span::from_secs(1)));
                Quota::new(part(quota), 0, periods).map(Limit::Quota)
            }
            Counts::Meter { limit } => Meter::new(Some(part(limit)), None).map(Limit::Meter),
        }
    }
}
