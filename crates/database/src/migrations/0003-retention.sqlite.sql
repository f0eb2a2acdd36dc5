-- Entries have the time of their block, so that whole months of them can be dropped.
ALTER TABLE entry ADD COLUMN posted_at INTEGER NOT NULL DEFAULT 0;
UPDATE entry SET posted_at = (
    SELECT at FROM block WHERE block.writer = entry.writer AND entry.seq BETWEEN first_seq AND last_seq
);
CREATE INDEX entry_by_time ON entry (posted_at);
