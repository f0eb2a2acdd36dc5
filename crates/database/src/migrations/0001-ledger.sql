-- Times are microseconds since 1970 of the store's clock, unless the column says otherwise. Ids have 16 bytes.

CREATE TABLE writer (
    id {bytes} PRIMARY KEY,
    name TEXT NOT NULL,
    started {int} NOT NULL,      -- clock of the writer
    last_seen {int} NOT NULL,    -- clock of the writer
    shipped_seq {int} NOT NULL,  -- the cursor: the last posted sequence number
    clean_at {int} NOT NULL,
    blocks {int} NOT NULL,
    chain_head {bytes} NOT NULL,
    state TEXT NOT NULL
);

CREATE TABLE block (
    writer {bytes} NOT NULL REFERENCES writer (id),
    block {int} NOT NULL,
    first_seq {int} NOT NULL,
    last_seq {int} NOT NULL,
    rows {int} NOT NULL,
    at {int} NOT NULL,           -- clock of the writer
    prev {bytes} NOT NULL,
    hash {bytes} NOT NULL,
    PRIMARY KEY (writer, block)
);

CREATE TABLE entry (
    writer {bytes} NOT NULL REFERENCES writer (id),
    seq {int} NOT NULL,
    n {int} NOT NULL,
    kind TEXT NOT NULL,
    rule TEXT NOT NULL,
    subject {bytes} NOT NULL,
    period {int} NOT NULL,
    at {int} NOT NULL,
    rev {int} NOT NULL,
    d_posted {int} NOT NULL,
    d_pending {int} NOT NULL,
    d_granted {int} NOT NULL,
    token {bytes},
    request {bytes},
    nonce {bytes},
    cause TEXT NOT NULL,
    actor TEXT NOT NULL,
    PRIMARY KEY (writer, seq, n)
);

CREATE INDEX entry_by_account ON entry (rule, subject, period);

CREATE TABLE balance (
    rule TEXT NOT NULL,
    subject {bytes} NOT NULL,
    period {int} NOT NULL,
    ends {int} NOT NULL,
    allowance {int} NOT NULL,
    allowance_at {int} NOT NULL,
    extra {int} NOT NULL,
    extra_no {int} NOT NULL,
    granted {int} NOT NULL,
    available {int} NOT NULL,
    pending {int} NOT NULL,
    posted {int} NOT NULL,
    PRIMARY KEY (rule, subject, period),
    CHECK (granted = available + pending + posted),
    CHECK (granted = allowance + extra)
);

CREATE TABLE reservation (
    rule TEXT NOT NULL,
    subject {bytes} NOT NULL,
    period {int} NOT NULL,
    token {bytes} NOT NULL,
    cost {int} NOT NULL,
    until_at {int} NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (rule, subject, period, token)
);

CREATE TABLE receipt (
    rule TEXT NOT NULL,
    subject {bytes} NOT NULL,
    nonce {bytes} NOT NULL,
    refunded {int} NOT NULL,
    PRIMARY KEY (rule, subject, nonce)
);

CREATE TABLE request (
    rule TEXT NOT NULL,
    subject {bytes} NOT NULL,
    id {bytes} NOT NULL,
    nonce {bytes} NOT NULL,
    content {int} NOT NULL,
    at {int} NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (rule, subject, id)
);
