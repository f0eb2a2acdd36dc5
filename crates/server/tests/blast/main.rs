//! One client floods a server, and others are not affected: their rules stay on a slow store, and their connections get
//! their turn.

mod faults;

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use tollgate_testkit::drill::{
    Answers, PipelineTransport, SlowStore, Transport, blast, pipeline_beside, runtime,
};

const TIME: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_millis(500);
/// Lines to Redis on which 2,048 checks in flight need 3 and 16 seconds.
const BYTES_PER_SEC: [u32; 2] = [100_000, 20_000];

/// Tests that load the machine share it; one that compares latencies has it alone.
static MACHINE: RwLock<()> = RwLock::new(());

fn blast_leaves_others_on_the_store(transport: Transport) {
    let _shared = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let runtime = runtime().expect("a runtime");
    for bytes_per_sec in BYTES_PER_SEC {
        let store = SlowStore { bytes_per_sec, deadline: DEADLINE };
        let found = blast(&runtime, env!("CARGO_BIN_EXE_tollgate"), transport, store, TIME).expect("a blast");
        println!("blast over {transport:?}, {} KB/s: {found}", bytes_per_sec / 1_000);
        assert!(found.left_bystanders_alone(), "{found}");
        let Answers { admitted, by_policy, overloaded, .. } = found.blaster;
        assert!(admitted > 0 && overloaded > 0, "the blaster is slowed down, not stopped: {found}");
        assert_eq!(by_policy, 0, "saturation is no admission for the blaster either: {found}");
    }
}

#[test]
fn a_blast_over_http_leaves_the_rules_of_others_on_the_store() {
    blast_leaves_others_on_the_store(Transport::Http);
}

#[test]
fn a_blast_over_resp_leaves_the_rules_of_others_on_the_store() {
    blast_leaves_others_on_the_store(Transport::Resp);
}

#[test]
fn a_blast_over_grpc_leaves_the_rules_of_others_on_the_store() {
    blast_leaves_others_on_the_store(Transport::Grpc);
}

/// Prints how much a pipeline slows down other connections of the same worker thread.
#[test]
fn a_pipeline_does_not_starve_other_connections_of_its_thread() {
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    for transport in PipelineTransport::ALL {
        let found = pipeline_beside(env!("CARGO_BIN_EXE_tollgate"), transport, 5).expect("a pipeline");
        println!("bystander of a pipeline over {transport:?}: {found}");
        // A debug build on a machine that is busy with other tests. Without turns, the median was 40 times as long.
        assert!(found.beside.p50 <= 3 * found.elsewhere.p50, "{transport:?}: {found}");
    }
}
