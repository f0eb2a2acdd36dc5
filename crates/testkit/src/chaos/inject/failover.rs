//! A replica replaces a primary.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Happened, Scene};
use crate::chaos::account::Lost;
use crate::chaos::place::Contents;
use crate::drill::DrillError;

const PROMOTION_MAX: Duration = Duration::from_secs(30);
/// Until all answers have arrived that were in flight when the primary ended. There are no others before a promotion.
const IN_FLIGHT: Duration = Duration::from_millis(30);
/// The bound of a planned failover: the writes of this time.
const LEFT_WITHIN: Duration = Duration::from_millis(50);

/// How a primary ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Kill,
    Stop,
}

/// The primary behind sentinels ends, and they promote its replica.
pub(super) fn sentinel(scene: &mut Scene<'_>, end: End) -> Result<Happened, DrillError> {
    let set = scene.place.sentinel()?;
    let replica = set.replica_index()?;
    let old = match end {
        End::Kill => set.kill9_primary()?,
        End::Stop => set.stop_primary()?,
    };
    let gone = Instant::now();
    sleep(IN_FLIGHT);
    let (mut contents, at) = (Contents::default(), Instant::now());
    contents.read(&mut set.node(replica).admin()?)?;
    let promotion = set.wait_promoted(old, PROMOTION_MAX)?;
    scene.control.moved(set.node_port(promotion.node));
    scene.fleet.wait_for_store(1, PROMOTION_MAX)?;
    let set = scene.place.sentinel()?;
    match end {
        End::Kill => set.restart(old)?,
        End::Stop => set.resume(old)?,
    }
    set.wait_settled()?;
    let proof = format!("node {} promoted after {} ms", promotion.node, (promotion.at - gone).as_millis());
    let lost = Lost::Missing { contents, at };
    Ok(Happened { ended: promotion.at, ..Happened::now(proof).losing(lost) })
}

/// An operator orders a failover while the primary is healthy.
pub(super) fn planned_sentinel(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let lost_max = writes_of(LEFT_WITHIN, scene);
    let set = scene.place.sentinel()?;
    let promotion = set.failover()?;
    scene.control.moved(set.node_port(promotion.node));
    set.wait_announced(promotion.node, PROMOTION_MAX)?;
    set.wait_settled()?;
    let proof = format!("node {} promoted by order", promotion.node);
    Ok(Happened { ended: promotion.at, ..Happened::now(proof).losing(Lost::AtMost(lost_max)) })
}

/// A primary of a cluster is killed, and its replica takes its slots.
pub(super) fn cluster(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let cluster = scene.place.cluster()?;
    let victim = cluster.primaries().into_iter().next().ok_or("no primary")?;
    let replica = cluster.replica_of(victim)?;
    cluster.kill9(victim)?;
    let gone = Instant::now();
    sleep(IN_FLIGHT);
    let (mut contents, at) = (Contents::default(), Instant::now());
    let mut heard = cluster.admin(replica)?;
    // A replica of a cluster answers for its primary's slots only after READONLY.
    heard.command(&[b"READONLY"])?;
    contents.read(&mut heard)?;
    for other in cluster.primaries() {
        contents.read(&mut cluster.admin(other)?)?;
    }
    let promotion = cluster.wait_promoted(replica, PROMOTION_MAX)?;
    let (promoted_after, cluster) = (promotion.at - gone, scene.place.cluster()?);
    cluster.restart(victim)?;
    cluster.wait_settled()?;
    scene.control.moved(scene.place.naive_port()?);
    let proof = format!("node {replica} promoted after {} ms", promoted_after.as_millis());
    Ok(Happened { ended: promotion.at, ..Happened::now(proof).losing(Lost::Missing { contents, at }) })
}

/// `CLUSTER FAILOVER` to the replica of a healthy primary.
pub(super) fn planned_cluster(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let lost_max = writes_of(LEFT_WITHIN, scene);
    let cluster = scene.place.cluster()?;
    let primary = cluster.primaries().into_iter().next().ok_or("no primary")?;
    let replica = cluster.replica_of(primary)?;
    let promotion = cluster.failover(replica)?;
    cluster.wait_settled()?;
    scene.control.moved(scene.place.naive_port()?);
    let proof = format!("node {replica} promoted by order");
    Ok(Happened { ended: promotion.at, ..Happened::now(proof).losing(Lost::AtMost(lost_max)) })
}

/// Returns how many checks are asked in this time. The stall of the machine is added by the caller.
fn writes_of(time: Duration, scene: &Scene<'_>) -> u64 {
    scene.settings.per_second * time.as_millis() as u64 / 1_000
}
