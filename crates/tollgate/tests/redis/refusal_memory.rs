//! Remembered refusals, counted in Redis.

use std::time::{Duration, Instant};

use tollgate::Limiter;
use tollgate::core::SubjectHasher;
use tollgate::core::decision::Source;
use tollgate_testkit::redis::{Flavour, Server};

use crate::common::{runtime, settings};

const RULES: &str = "{ version: 1, rules: [{ id: calls, per: user, limit: { fixed-window: 10/30d } }] }";

/// Number of script calls that Redis has run.
fn script_calls(server: &Server) -> u64 {
    let stats = server.admin().unwrap().info("commandstats").unwrap();
    let calls = |command: &str| {
        let line = stats.get(&format!("cmdstat_{command}"))?;
        line.split(',').find_map(|part| part.strip_prefix("calls=")?.parse::<u64>().ok())
    };
    calls("evalsha").unwrap_or(0) + calls("eval").unwrap_or(0)
}

async fn limiter(server: &Server) -> Limiter {
    let builder = Limiter::builder().rules_yaml(RULES).hash_key(SubjectHasher::new([5; 32]));
    builder.redis(settings(&server.url())).build().await.unwrap()
}

#[test]
fn an_attackers_refusals_cost_almost_no_round_trips_and_admit_nothing() {
    let server = Server::start(Flavour::Redis70).unwrap();
    runtime().block_on(async {
        let limiter = limiter(&server).await;
        let mut admitted = 0;
        while limiter.check([("user", "attacker")]).await.unwrap().allowed() {
            admitted += 1;
        }
        assert_eq!(admitted, 10);
        let (before, began) = (script_calls(&server), Instant::now());
        let (mut refused, mut remembered) = (0_u64, 0_u64);
        while began.elapsed() < Duration::from_secs(3) || refused < 5_000 {
            let decision = limiter.check([("user", "attacker")]).await.unwrap();
            assert!(!decision.allowed());
            refused += 1;
            remembered += u64::from(decision.source() == Source::Memory);
        }
        let asked = script_calls(&server) - before;
        println!("{refused} refusals, {remembered} without a round trip, {asked} script calls");
        assert!(asked * 100 <= refused, "{asked} script calls for {refused} refusals");
        assert!(asked >= 2, "the store is asked every second");
        assert!(remembered * 100 >= refused * 99);
    });
}

#[test]
fn a_reset_on_this_server_ends_a_remembered_refusal() {
    let server = Server::start(Flavour::Redis70).unwrap();
    runtime().block_on(async {
        let limiter = limiter(&server).await;
        let check = || limiter.check([("user", "u")]);
        while check().await.unwrap().allowed() {}
        assert_eq!(check().await.unwrap().source(), Source::Memory);
        limiter.reset([("user", "u")]).await.unwrap();
        assert!(check().await.unwrap().allowed());
    });
}
