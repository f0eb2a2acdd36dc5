//! The faults, as a table.

use std::fmt;

use super::place::Topology;

macro_rules! faults {
    ($($(#[doc = $about:literal])+ $fault:ident, $name:literal, $topology:ident, $short:literal;)+) => {
        /// A fault of the table.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Fault {
            $($(#[doc = $about])+ $fault,)+
        }

        impl Fault {
            /// All faults, in the order of the table.
            pub const ALL: &[Fault] = &[$(Fault::$fault),+];

            /// Returns its name in tables and options.
            pub const fn name(self) -> &'static str {
                match self { $(Fault::$fault => $name),+ }
            }

            /// Returns what it does, in one sentence.
            pub const fn about(self) -> &'static str {
                match self { $(Fault::$fault => concat!($($about),+)),+ }
            }

            /// Returns the store that it needs.
            pub const fn topology(self) -> Topology {
                match self { $(Fault::$fault => Topology::$topology),+ }
            }

            /// Whether it is part of the short form.
            pub const fn is_in_short_form(self) -> bool {
                match self { $(Fault::$fault => $short),+ }
            }
        }
    };
}

faults! {
    /// Redis is killed with SIGKILL and starts again without data.
    Kill, "kill-9", One, true;
    /// Redis is frozen with SIGSTOP.
    Stop, "sigstop", One, true;
    /// Redis is dead for a minute.
    Dead, "dead-minute", One, false;
    /// FLUSHALL deletes all keys, several times.
    Flush, "flushall", One, false;
    /// Redis evicts keys at random, because it has no memory.
    Evict, "eviction", One, false;
    /// Redis has no memory and refuses writes.
    Oom, "oom", One, true;
    /// SCRIPT FLUSH, 20 times a second.
    ScriptFlush, "script-flush", One, true;
    /// Replies take 1 to 500 ms longer.
    Latency, "latency", One, false;
    /// One reply in ten is lost after Redis has executed the call.
    LostReplies, "lost-replies", One, true;
    /// One reply in fifty is cut by a connection reset.
    Reset, "reset", One, true;
    /// Redis is a replica and answers READONLY.
    ReadOnly, "readonly", One, true;
    /// A script that does not end: BUSY.
    Busy, "busy", One, false;
    /// Redis loads its data: LOADING.
    Loading, "loading", One, false;
    /// Redis wants a password: NOAUTH.
    NoAuth, "noauth", One, false;
    /// The password of Redis has changed: WRONGPASS.
    WrongPass, "wrongpass", One, false;
    /// The user of Redis may not run scripts: NOPERM.
    NoPerm, "noperm", One, false;
    /// The primary behind sentinels is killed.
    PrimaryKilled, "sentinel-kill", Sentinel, true;
    /// The primary behind sentinels is frozen.
    PrimaryStopped, "sentinel-stop", Sentinel, false;
    /// An operator orders a failover behind sentinels.
    Planned, "sentinel-planned", Sentinel, false;
    /// A primary of a cluster is killed.
    NodeKilled, "cluster-kill", Cluster, false;
    /// CLUSTER FAILOVER to a replica.
    ClusterFailover, "cluster-planned", Cluster, false;
    /// Hash slots with keys move one by one.
    SlotMoves, "slot-moves", Cluster, false;
    /// `redis-cli --cluster reshard` moves 400 slots.
    Reshard, "reshard", Cluster, false;
    /// A slot has no owner, and the cluster answers CLUSTERDOWN.
    ClusterDown, "clusterdown", Cluster, false;
    /// The clock of one server jumps an hour ahead and two back.
    ServerClock, "clock-server", One, false;
    /// The clock of Redis jumps two seconds ahead and back.
    RedisClock, "clock-redis", One, false;
    /// A server gets SIGTERM, and another starts.
    Terminate, "sigterm", One, true;
    /// A server is killed with SIGKILL, and another starts.
    KillServer, "kill-server", One, true;
    /// The rules file flaps between two valid texts and broken, huge, truncated and missing ones.
    Rules, "rules-flap", One, false;
    /// Ten million invented addresses.
    Hostile, "hostile", One, false;
    /// Sockets that send a header byte by byte.
    SlowHeaders, "slow-headers", One, false;
    /// HTTP/2 clients that cancel each request at once.
    RapidReset, "rapid-reset", One, false;
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
