//! Hash slots of a cluster move, or have no owner.

use std::process::Command;
use std::thread::sleep;
use std::time::Instant;

use super::{Happened, Scene, really};
use crate::chaos::traffic::Class;
use crate::drill::DrillError;
use crate::redis::{Cluster, SLOTS, Value, slot_of};
use crate::servers::random::Random;

/// Slots that redis-cli moves.
const RESHARDED: &str = "400";
/// Subjects whose slots move.
const USERS: usize = 200;

/// Moves random slots that have keys, one after another.
pub(super) fn moves(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let mut random = Random::new(scene.settings.seed);
    let until = Instant::now() + scene.settings.time;
    let mut moves = 0;
    while Instant::now() < until {
        let key = scene.names.key(Class::Closed.name(), random.below(USERS) as u32)?;
        let slot = slot_of(key.as_bytes());
        let cluster = scene.place.cluster()?;
        let owner = cluster.owner(slot)?;
        let others: Vec<usize> = cluster.primaries().into_iter().filter(|&node| node != owner).collect();
        cluster.move_slot(slot, others[random.below(others.len())])?;
        moves += 1;
    }
    redirected(scene, format!("{moves} slots moved"))
}

/// Moves slots with `redis-cli --cluster reshard`.
pub(super) fn reshard(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let cluster = scene.place.cluster()?;
    let [from, to, ..] = cluster.primaries()[..] else { return Err("too few primaries".into()) };
    let address = format!("127.0.0.1:{}", cluster.node_port(from));
    let mut command = Command::new("redis-cli");
    command.args(["--cluster", "reshard", &address]);
    command.args(["--cluster-from", cluster.node_id(from), "--cluster-to", cluster.node_id(to)]);
    command.args(["--cluster-slots", RESHARDED, "--cluster-yes"]);
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("redis-cli: {}", String::from_utf8_lossy(&output.stdout)).into());
    }
    redirected(scene, format!("redis-cli moved {RESHARDED} slots"))
}

/// Takes the owner of a slot without keys away. A cluster that requires full coverage then refuses everything.
pub(super) fn cluster_down(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let cluster = scene.place.cluster()?;
    let (slot, owner) = empty_slot(cluster)?;
    let slot = slot.to_string();
    for node in 0..cluster.count() {
        cluster.admin(node)?.command(&[b"CLUSTER", b"DELSLOTS", slot.as_bytes()])?;
    }
    sleep(scene.settings.time);
    cluster.admin(owner)?.command(&[b"CLUSTER", b"ADDSLOTS", slot.as_bytes()])?;
    cluster.wait_settled()?;
    let ended = Instant::now();
    let replies = scene.place.errors("CLUSTERDOWN")?;
    let proof = format!("slot {slot} without owner, CLUSTERDOWN {replies} times");
    Ok(Happened { ended, ..Happened::now(really(replies > 0, proof)?) })
}

fn empty_slot(cluster: &Cluster) -> Result<(u16, usize), DrillError> {
    for slot in 0..SLOTS {
        let owner = cluster.owner(slot)?;
        let count =
            cluster.admin(owner)?.command(&[b"CLUSTER", b"COUNTKEYSINSLOT", slot.to_string().as_bytes()])?;
        if count == Value::Integer(0) {
            return Ok((slot, owner));
        }
    }
    Err("every slot has keys".into())
}

fn redirected(scene: &mut Scene<'_>, what: String) -> Result<Happened, DrillError> {
    let ended = Instant::now();
    scene.place.cluster()?.wait_settled()?;
    scene.control.moved(scene.place.naive_port()?);
    let (moved, asked) = (scene.place.errors("MOVED")?, scene.place.errors("ASK")?);
    let proof = format!("{what}, MOVED {moved} and ASK {asked} times");
    Ok(Happened { ended, ..Happened::now(really(moved + asked > 0, proof)?) })
}
