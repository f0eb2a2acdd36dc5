-- Names of accounts, for rules that ask for them. They are no part of the chain, so that a name can be deleted.
CREATE TABLE account (
    rule TEXT NOT NULL,
    subject {bytes} NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (rule, subject)
);

-- The last block whose entries were dropped; 0 if none were.
ALTER TABLE writer ADD COLUMN sealed_block {int} NOT NULL DEFAULT 0;

-- Sums of the entries that were dropped.
ALTER TABLE balance ADD COLUMN sealed_posted {int} NOT NULL DEFAULT 0;
ALTER TABLE balance ADD COLUMN sealed_pending {int} NOT NULL DEFAULT 0;
ALTER TABLE balance ADD COLUMN sealed_granted {int} NOT NULL DEFAULT 0;
