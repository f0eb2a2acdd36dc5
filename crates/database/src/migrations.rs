//! Numbered migrations, one list for both databases.

/// The migrations in order. Version N is the schema after the first N. A released migration is never changed.
///
/// `{bytes}` and `{int}` stand for the type names of the database.
pub(crate) const MIGRATIONS: &[&str] =
    &[include_str!("migrations/0001-ledger.sql"), include_str!("migrations/0002-changes.sql")];

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

/// Returns the text of the migrations after `applied` with the given type names.
pub(crate) fn pending(applied: u32, bytes: &str, int: &str) -> Vec<String> {
    let after = MIGRATIONS.iter().skip(applied as usize);
    after.map(|text| text.replace("{bytes}", bytes).replace("{int}", int)).collect()
}
