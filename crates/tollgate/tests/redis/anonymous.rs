//! Anonymous subjects on a real server: the cap, and how long their state is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::{HashKey, Limiter};
use tollgate_testkit::redis::{Flavour, Server};

use crate::common::{clean, runtime, settings};

const CAP: u64 = 50;
const LIMIT: u64 = 2;
const ADDRESSES: u32 = 20_000;
const SERVERS: u64 = 3;

fn address(number: u32) -> String {
    std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string()
}

async fn limiter(server: &Server, rule: &str, margin: Duration) -> Limiter {
    let rules = format!("{{ version: 1, rules: [{rule}] }}");
    let builder = Limiter::builder().rules_yaml(rules).hash_key(HashKey::new([7; 32]));
    builder.redis(settings(&server.url()).margin(margin)).build().await.unwrap()
}

fn keys(server: &Server) -> usize {
    server.admin().unwrap().scan("tg:1:*").unwrap().len()
}

#[test]
fn a_flood_of_addresses_makes_at_most_the_cap_of_keys_for_each_server() {
    let server = Server::start(Flavour::Redis70).unwrap();
    runtime().block_on(async {
        let rule = format!(
            "{{ id: r, per: [user | ip], ip_subjects_max: {CAP}, limit: {{ fixed-window: {LIMIT}/30d }} }}"
        );
        let admitted = Arc::new(AtomicU64::new(0));
        let mut floods = Vec::new();
        for number in 0..SERVERS as u32 {
            let (limiter, admitted) =
                (limiter(&server, &rule, Duration::from_secs(1)).await, Arc::clone(&admitted));
            // Known before the flood: it keeps its own count.
            let known = format!("192.0.2.{number}");
            assert!(limiter.check([("ip", known.as_str())]).await.unwrap().allowed());
            floods.push(tokio::spawn(async move {
                for start in (0..ADDRESSES).step_by(100) {
                    let checks: Vec<_> = (start..start + 100)
                        .map(|address_number| {
                            let (limiter, address) =
                                (limiter.clone(), address(number * ADDRESSES + address_number));
                            tokio::spawn(async move {
                                limiter.check([("ip", address.as_str())]).await.unwrap().allowed()
                            })
                        })
                        .collect();
                    for check in checks {
                        admitted.fetch_add(u64::from(check.await.unwrap()), Ordering::Relaxed);
                    }
                }
                assert!(limiter.check([("ip", known.as_str())]).await.unwrap().allowed(), "its second unit");
                assert!(!limiter.check([("ip", known.as_str())]).await.unwrap().allowed());
                for user in 0..20 {
                    let user = format!("u{number}-{user}");
                    let allowed = limiter.check([("user", user.as_str())]).await.unwrap().allowed();
                    assert!(allowed, "a subject with a user is not anonymous");
                }
            }));
        }
        for flood in floods {
            flood.await.unwrap();
        }
        // One key and one unit for each place that the flood took, and the units of the shared overflow subject.
        let places = SERVERS * (CAP - 1);
        assert_eq!(admitted.load(Ordering::Relaxed), places + LIMIT);
        let expected = SERVERS * CAP + 1 + SERVERS * 20;
        assert_eq!(keys(&server) as u64, expected, "of {} addresses", u64::from(ADDRESSES) * SERVERS);
    });
    clean(&server);
}

#[test]
fn places_are_free_again_when_keys_have_expired() {
    let server = Server::start(Flavour::Redis70).unwrap();
    runtime().block_on(async {
        let rule = "{ id: r, per: ip, ip_subjects_max: 10, limit: { token-bucket: 100/s, burst: 10 } }";
        let limiter = limiter(&server, rule, Duration::from_secs(1)).await;
        let own_count = async |number| {
            let (address, mut remaining) = (address(number), Vec::new());
            for _ in 0..2 {
                remaining.push(limiter.check([("ip", address.as_str())]).await.unwrap().remaining().unwrap());
            }
            remaining[0] == 9
        };
        for number in 0..10 {
            assert!(own_count(number).await);
        }
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !own_count(1_000).await {
            // The overflow subject drains meanwhile, so only a separate place can show nine units left every time.
            assert!(std::time::Instant::now() < deadline, "no place became free");
            for number in 2_000..2_010 {
                own_count(number).await;
            }
        }
    });
}

#[test]
fn a_receipt_of_the_overflow_subject_gives_its_units_back_to_it() {
    let server = Server::start(Flavour::Redis70).unwrap();
    runtime().block_on(async {
        let rule = "{ id: r, per: ip, ip_subjects_max: 1, limit: { fixed-window: 2/30d } }";
        let limiter = limiter(&server, rule, Duration::from_secs(1)).await;
        let check = async |number| {
            let address = address(number);
            limiter.check([("ip", address.as_str())]).await.unwrap()
        };
        assert!(check(0).await.allowed());
        let overflowed = check(1).await;
        assert!(overflowed.allowed() && check(2).await.allowed());
        assert!(!check(3).await.allowed(), "the overflow subject has two units");
        let returned = limiter.refund(&overflowed).await.unwrap();
        assert_eq!(returned[0].amount, Ok(1));
        assert!(check(4).await.allowed());
        assert!(!check(5).await.allowed());
        assert_eq!(keys(&server), 2 + 1, "the subject, the overflow subject, and the memory of the return");
    });
}

#[test]
fn state_of_an_anonymous_subject_is_kept_without_the_margin_and_not_shorter() {
    const MARGIN: Duration = Duration::from_secs(1_000);
    let server = Server::start(Flavour::Redis70).unwrap();
    runtime().block_on(async {
        let rules = [
            "{ id: bucket, per: [user | ip], limit: { token-bucket: 1/s, burst: 100 } }",
            "{ id: log, per: [user | ip], limit: { sliding-log: 100/100s } }",
            "{ id: quota, per: [user | ip], limit: { quota: 100/100s, period: rolling } }",
        ];
        let limiter = limiter(&server, &rules.join(", "), MARGIN).await;
        for request in [("ip", "192.0.2.1"), ("user", "u")] {
            let decision = limiter.check(tollgate::Request::from([request]).cost(60)).await.unwrap();
            assert!(decision.allowed());
        }
        let mut admin = server.admin().unwrap();
        let mut ttls: Vec<(String, i64)> = Vec::new();
        for key in admin.scan("tg:1:*").unwrap() {
            let ttl = admin.pttl(&key).unwrap();
            let rule = String::from_utf8(key).unwrap().split(':').nth(4).unwrap().to_owned();
            ttls.push((rule, ttl));
        }
        ttls.sort();
        for (rule, counts_ms) in [("bucket", 60_000), ("log", 100_000), ("quota", 100_000)] {
            let of_rule: Vec<i64> = ttls.iter().filter(|(of, _)| of == rule).map(|(_, ttl)| *ttl).collect();
            let [anonymous, known] = of_rule[..] else { panic!("{rule}: {ttls:?}") };
            assert!((counts_ms - 10_000..=counts_ms).contains(&anonymous), "{rule}: {ttls:?}");
            let margin_ms = MARGIN.as_millis() as i64;
            assert!(
                (counts_ms + margin_ms - 10_000..=counts_ms + margin_ms).contains(&known),
                "{rule}: {ttls:?}"
            );
        }
    });
}
