-- Times are microseconds since 1970 of the clock of the server that wrote the row.

-- One row. Every change locks it, so that changes and audit rows have one order.
CREATE TABLE control (
    id {int} PRIMARY KEY CHECK (id = 1),
    version {int} NOT NULL,        -- number of live changes that were ever committed
    version_head {bytes} NOT NULL, -- hash of the audit row of the last one
    seq {int} NOT NULL,            -- number of the last audit row
    head {bytes} NOT NULL          -- its hash
);

CREATE TABLE live_change (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    version {int} NOT NULL,
    spec TEXT NOT NULL,            -- JSON; secrets are keyed hashes
    until_at {int},
    reason TEXT NOT NULL,
    author TEXT NOT NULL,
    created_at {int} NOT NULL,
    changed_at {int} NOT NULL
);

CREATE TABLE audit (
    seq {int} PRIMARY KEY,
    at {int} NOT NULL,
    times {int} NOT NULL,
    server TEXT NOT NULL,
    actor TEXT NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    state_before TEXT NOT NULL,
    state_after TEXT NOT NULL,
    prev {bytes} NOT NULL,
    hash {bytes} NOT NULL
);
