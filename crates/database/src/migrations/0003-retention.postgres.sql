-- Entries have the time of their block, and are divided by its month, so that whole months of them can be dropped. A month
-- without a partition is in the default one.
ALTER TABLE entry RENAME TO entry_default;
ALTER INDEX entry_by_account RENAME TO entry_default_by_account;
ALTER TABLE entry_default DROP CONSTRAINT entry_pkey;
ALTER TABLE entry_default ADD COLUMN posted_at BIGINT NOT NULL DEFAULT 0;
UPDATE entry_default SET posted_at = (
    SELECT at FROM block
    WHERE block.writer = entry_default.writer AND entry_default.seq BETWEEN first_seq AND last_seq
);
ALTER TABLE entry_default ADD PRIMARY KEY (writer, seq, n, posted_at);
CREATE TABLE entry (LIKE entry_default INCLUDING DEFAULTS) PARTITION BY RANGE (posted_at);
ALTER TABLE entry ADD PRIMARY KEY (writer, seq, n, posted_at);
ALTER TABLE entry ADD FOREIGN KEY (writer) REFERENCES writer (id);
CREATE INDEX entry_by_account ON entry (rule, subject, period);
ALTER TABLE entry ATTACH PARTITION entry_default DEFAULT;
