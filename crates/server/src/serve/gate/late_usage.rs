//! What Envoy reports after a request while the store is down. Envoy does not send it again, so it waits here.
//!
//! The wait is bounded: in time, so that each report is booked once under its id, in number and in bytes. What does not fit
//! and what waits too long is dropped and counted.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tollgate::core::Attributes;
use tollgate::core::rules::Request;

use crate::serve::observe::log::LogThrottle;
use crate::serve::observe::{Exposition, Kind};

/// How long a report waits at most.
const KEPT_MAX: Duration = Duration::from_secs(60);
/// How much earlier it is dropped than the store forgets its id.
const MARGIN: Duration = Duration::from_secs(1);
const REPORTS_MAX: usize = 10_000;
const BYTES_MAX: usize = 8 << 20;
/// How many reports are sent at a time.
pub(super) const SENT_AT_ONCE: usize = 50;
/// How often there may be something to send.
pub(super) const EVERY: Duration = Duration::from_millis(100);

/// Reports that wait for the store.
pub(super) struct LateUsage {
    waiting: Mutex<Waiting>,
    kept: Duration,
    booked: AtomicU64,
    dropped: AtomicU64,
    log: LogThrottle,
}

#[derive(Default)]
struct Waiting {
    /// In the order in which they came.
    reports: VecDeque<Report>,
    bytes: usize,
}

/// What kind of report it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Usage {
    /// Costs that were stated under postpaid rules.
    Record,
    /// Units that are given back.
    Credit,
}

/// One report.
pub(super) struct Report {
    pub(super) usage: Usage,
    pub(super) id: String,
    /// Descriptors that were checked together.
    requests: Vec<OwnedRequest>,
    bytes: usize,
    since: Instant,
}

struct OwnedRequest {
    attributes: Vec<(String, String)>,
    address: Option<IpAddr>,
    cost: u64,
    states_cost: bool,
}

impl LateUsage {
    /// `horizon` says how long the store remembers ids.
    pub(super) fn new(horizon: Duration) -> LateUsage {
        LateUsage {
            waiting: Mutex::default(),
            kept: KEPT_MAX.min(horizon.saturating_sub(MARGIN)),
            booked: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            log: LogThrottle::default(),
        }
    }

    /// Keeps a report whose first attempt began at `since`, if there is room.
    pub(super) fn add(&self, usage: Usage, id: String, requests: &[Request<'_>], since: Instant) {
        let requests: Vec<OwnedRequest> = requests.iter().map(OwnedRequest::of).collect();
        let bytes = id.len() + requests.iter().map(OwnedRequest::bytes).sum::<usize>();
        let mut waiting = self.waiting.lock();
        if waiting.reports.len() >= REPORTS_MAX || waiting.bytes + bytes > BYTES_MAX {
            drop(waiting);
            return self.drop_one("too many reports wait");
        }
        waiting.bytes += bytes;
        waiting.reports.push_back(Report { usage, id, requests, bytes, since });
    }

    /// Drops what has waited too long.
    pub(super) fn expire(&self, now: Instant) {
        let is_expired = |report: &Report| now.saturating_duration_since(report.since) >= self.kept;
        while self.take_if(is_expired).is_some() {
            self.drop_one("the store was down for too long");
        }
    }

    /// Takes the report that has waited longest.
    pub(super) fn take(&self) -> Option<Report> {
        self.take_if(|_| true)
    }

    fn take_if(&self, is_due: impl Fn(&Report) -> bool) -> Option<Report> {
        let mut waiting = self.waiting.lock();
        let report = waiting.reports.pop_front_if(|report| is_due(report))?;
        waiting.bytes -= report.bytes;
        Some(report)
    }

    /// Puts a report back that the store did not take.
    pub(super) fn put_back(&self, report: Report) {
        let mut waiting = self.waiting.lock();
        waiting.bytes += report.bytes;
        waiting.reports.push_front(report);
    }

    pub(super) fn note_booked(&self) {
        self.booked.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a report that is not booked, and logs it.
    pub(super) fn drop_one(&self, why: &str) {
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(suppressed) = self.log.pass(1) {
            tracing::error!(
                event = "usage_dropped",
                cause = why,
                dropped,
                suppressed,
                "usage that Envoy reported while the store was down was not booked"
            );
        }
    }

    pub(super) fn write(&self, page: &mut Exposition) {
        let (waiting, bytes) = {
            let waiting = self.waiting.lock();
            (waiting.reports.len(), waiting.bytes)
        };
        let gauge =
            |page: &mut Exposition, name, help, value: usize| page.single(name, Kind::Gauge, help, value);
        gauge(page, "rate_limit_late_usage_waiting", "Reports of Envoy that wait for the store.", waiting);
        gauge(page, "rate_limit_late_usage_bytes", "Size of these reports.", bytes);
        let mut family = page.family(
            "rate_limit_late_usage_total",
            Kind::Counter,
            "Reports of Envoy that the store did not take at once, by what became of them.",
        );
        family.sample(&[("outcome", "booked")], self.booked.load(Ordering::Relaxed));
        family.sample(&[("outcome", "dropped")], self.dropped.load(Ordering::Relaxed));
    }
}

impl Report {
    /// The attributes of each request.
    pub(super) fn attributes(&self) -> Vec<Attributes<'_>> {
        self.requests.iter().map(OwnedRequest::attributes).collect()
    }

    /// The requests with these attributes.
    pub(super) fn requests<'a>(&self, attributes: &'a [Attributes<'a>]) -> Vec<Request<'a>> {
        let request = |(owned, attributes): (&OwnedRequest, &'a Attributes<'a>)| {
            let request = Request::new(attributes);
            if owned.states_cost { request.cost(owned.cost) } else { request }
        };
        self.requests.iter().zip(attributes).map(request).collect()
    }
}

impl OwnedRequest {
    fn of(request: &Request<'_>) -> OwnedRequest {
        let attributes = request.attributes.iter();
        OwnedRequest {
            attributes: attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            address: request.attributes.client_address(),
            cost: request.cost,
            states_cost: request.states_cost,
        }
    }

    fn attributes(&self) -> Attributes<'_> {
        let mut attributes = Attributes::new();
        for (name, value) in &self.attributes {
            attributes.set(name, value);
        }
        if let Some(address) = self.address {
            attributes.set_client_address(address);
        }
        attributes
    }

    fn bytes(&self) -> usize {
        // With the heads of the two strings.
        let parts = self.attributes.iter().map(|(name, value)| name.len() + value.len() + 48);
        size_of::<OwnedRequest>() + parts.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_of<T>(value: &str, look: impl FnOnce(&[Request<'_>]) -> T) -> T {
        let attributes = Attributes::from([("user", value)]);
        look(&[Request::new(&attributes).cost(7)])
    }

    fn counts(late: &LateUsage) -> (usize, u64) {
        (late.waiting.lock().reports.len(), late.dropped.load(Ordering::Relaxed))
    }

    #[test]
    fn reports_are_bounded_in_number_and_in_bytes() {
        let (late, now) = (LateUsage::new(KEPT_MAX), Instant::now());
        for number in 0..REPORTS_MAX + 5 {
            request_of("a", |requests| late.add(Usage::Record, number.to_string(), requests, now));
        }
        assert_eq!(counts(&late), (REPORTS_MAX, 5));
        let late = LateUsage::new(KEPT_MAX);
        let large = "x".repeat(1 << 20);
        for number in 0..20 {
            request_of(&large, |requests| late.add(Usage::Credit, number.to_string(), requests, now));
        }
        assert_eq!(counts(&late), (7, 13), "8 MiB hold seven reports of a little more than 1 MiB");
        while late.take().is_some() {}
        assert_eq!(late.waiting.lock().bytes, 0);
    }

    #[test]
    fn a_report_expires_a_second_before_the_store_forgets_its_id() {
        let (late, now) = (LateUsage::new(Duration::from_secs(30)), Instant::now());
        request_of("a", |requests| late.add(Usage::Record, "1".to_owned(), requests, now));
        request_of("b", |requests| {
            late.add(Usage::Record, "2".to_owned(), requests, now + Duration::from_secs(5));
        });
        late.expire(now + Duration::from_millis(28_999));
        assert_eq!(counts(&late), (2, 0));
        late.expire(now + Duration::from_secs(29));
        assert_eq!(counts(&late), (1, 1));
        assert_eq!(late.take().map(|report| report.id), Some("2".to_owned()));
    }
}
