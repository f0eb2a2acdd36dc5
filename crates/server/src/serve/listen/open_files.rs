//! The limit on open files. Every connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files besides client connections: listening sockets, rules, certificates, connections to the store.
const OTHERS: u64 = 256;

/// Raises the limit to what the connections need, and logs a warning if the system allows less.
pub(crate) fn raise_limit(connections: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = connections as u64 + OTHERS;
    // `None` is unlimited.
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    let possible = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum });
    if raised.is_err() || possible < wanted {
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        tracing::warn!(
            event = "few_files",
            allowed,
            wanted,
            "{connections} connections may be open and the system allows {allowed} files; raise the limit (ulimit -n, \
             LimitNOFILE) or lower --connections-max"
        );
    }
}
