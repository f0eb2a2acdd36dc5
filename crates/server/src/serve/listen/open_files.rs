//! How many files may be open: every connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are open beside connections: sockets that listen, rules, certificates, connections to the store.
const OTHERS: u64 = 256;

/// Allows as many as connections need, as far as the system lets us, and says so if that is too few.
pub(crate) fn allow(connections: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = connections as u64 + OTHERS;
    // No limit is more than any.
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
