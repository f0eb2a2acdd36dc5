//! Numbered migrations, one list for both databases.

/// One step of the schema. Most steps have one text for both databases.
pub(crate) struct Migration {
    sqlite: &'static str,
    postgres: &'static str,
}

impl Migration {
    /// A text in which `{bytes}` and `{int}` stand for the type names of the database.
    const fn both(text: &'static str) -> Migration {
        Migration { sqlite: text, postgres: text }
    }
}

/// The migrations in order. Version N is the schema after the first N. A released migration is never changed.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration::both(include_str!("migrations/0001-ledger.sql")),
    Migration::both(include_str!("migrations/0002-changes.sql")),
    Migration {
        sqlite: include_str!("migrations/0003-retention.sqlite.sql"),
        postgres: include_str!("migrations/0003-retention.postgres.sql"),
    },
    Migration::both(include_str!("migrations/0004-names-and-seals.sql")),
];

/// Version of the schema that this program needs.
pub(crate) const KNOWN: u32 = MIGRATIONS.len() as u32;

/// Creates the table that holds the version.
pub(crate) const CREATE_VERSION: &str = "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)";

/// Which migrations the database has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Version of the schema in the database; 0 for an empty one.
    pub applied: u32,
    /// Version that this program needs.
    pub known: u32,
}

impl Status {
    /// Whether servers can start.
    pub fn is_current(self) -> bool {
        self.applied == self.known
    }
}

/// Returns the texts for SQLite of the migrations after `applied`.
pub(crate) fn pending_sqlite(applied: u32) -> Vec<String> {
    let after = MIGRATIONS.iter().skip(applied as usize);
    after.map(|step| step.sqlite.replace("{bytes}", "BLOB").replace("{int}", "INTEGER")).collect()
}

/// Returns the texts for PostgreSQL of the migrations after `applied`.
pub(crate) fn pending_postgres(applied: u32) -> Vec<String> {
    let after = MIGRATIONS.iter().skip(applied as usize);
    after.map(|step| step.postgres.replace("{bytes}", "BYTEA").replace("{int}", "BIGINT")).collect()
}
