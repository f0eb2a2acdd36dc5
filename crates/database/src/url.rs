//! Where the database is: `sqlite:PATH` or `postgres://...`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of a database. Printing it never shows a password.
#[derive(Clone)]
pub struct DatabaseUrl(pub(crate) Location);

#[derive(Clone)]
pub(crate) enum Location {
    Sqlite(PathBuf),
    Postgres(Box<tokio_postgres::Config>),
}

/// Why a database URL is invalid.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// The scheme is unknown.
    #[error("unknown database URL: it must start with `sqlite:` or `postgres://`")]
    Scheme,
    /// `sqlite:` without a path.
    #[error("`sqlite:` without a path")]
    NoPath,
    /// The PostgreSQL URL cannot be parsed.
    #[error("invalid PostgreSQL URL")]
    Postgres(#[source] tokio_postgres::Error),
    /// TLS is required, and this program has no TLS for PostgreSQL.
    #[error("`sslmode=require` is not supported yet")]
    Tls,
}

impl DatabaseUrl {
    /// Returns the path of a database file.
    pub fn path(&self) -> Option<&std::path::Path> {
        match &self.0 {
            Location::Sqlite(path) => Some(path),
            Location::Postgres(_) => None,
        }
    }

    /// Sets the password of a PostgreSQL user. A file has none.
    pub fn set_password(&mut self, password: &str) {
        if let Location::Postgres(config) = &mut self.0 {
            config.password(password);
        }
    }

    /// Returns the variables by which the programs of PostgreSQL find this database. A file has none.
    pub fn postgres_variables(&self) -> Vec<(&'static str, String)> {
        let Location::Postgres(config) = &self.0 else { return Vec::new() };
        let host = config.get_hosts().first().map(|host| match host {
            tokio_postgres::config::Host::Tcp(host) => host.clone(),
            #[cfg(unix)]
            tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let found = [
            ("PGHOST", host),
            ("PGPORT", config.get_ports().first().map(u16::to_string)),
            ("PGUSER", config.get_user().map(str::to_owned)),
            ("PGPASSWORD", config.get_password().map(text)),
            ("PGDATABASE", config.get_dbname().map(str::to_owned)),
        ];
        found.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Returns the folder of the journal that belongs to a database file; `None` for PostgreSQL.
    pub fn default_journal(&self) -> Option<PathBuf> {
        match &self.0 {
            Location::Sqlite(path) => {
                let mut folder = path.clone().into_os_string();
                folder.push(".journal");
                Some(folder.into())
            }
            Location::Postgres(_) => None,
        }
    }
}

impl FromStr for DatabaseUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<DatabaseUrl, UrlError> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            return match path {
                "" => Err(UrlError::NoPath),
                path => Ok(DatabaseUrl(Location::Sqlite(path.into()))),
            };
        }
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(UrlError::Scheme);
        }
        let config: tokio_postgres::Config = url.parse().map_err(UrlError::Postgres)?;
        if config.get_ssl_mode() == tokio_postgres::config::SslMode::Require {
            return Err(UrlError::Tls);
        }
        Ok(DatabaseUrl(Location::Postgres(Box::new(config))))
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Location::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Location::Postgres(config) => {
                write!(f, "postgres://")?;
                for (index, host) in config.get_hosts().iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    match host {
                        tokio_postgres::config::Host::Tcp(host) => write!(f, "{comma}{host}")?,
                        #[cfg(unix)]
                        tokio_postgres::config::Host::Unix(path) => write!(f, "{comma}{}", path.display())?,
                    }
                }
                write!(f, "/{}", config.get_dbname().unwrap_or_default())
            }
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_printed_without_the_password() {
        let cases = [
            ("sqlite:/var/lib/tollgate.db", Ok("sqlite:/var/lib/tollgate.db")),
            ("postgres://me:secret@db.example:5433/bills", Ok("postgres://db.example/bills")),
            ("sqlite:", Err("`sqlite:` without a path")),
            ("mysql://x", Err("unknown database URL: it must start with `sqlite:` or `postgres://`")),
            ("postgres://x?sslmode=require", Err("`sslmode=require` is not supported yet")),
            ("postgres://x?nonsense=1", Err("invalid PostgreSQL URL")),
        ];
        for (url, expected) in cases {
            let parsed = url.parse::<DatabaseUrl>();
            let printed = parsed.map(|url| url.to_string()).map_err(|error| error.to_string());
            assert_eq!(printed, expected.map(str::to_owned).map_err(str::to_owned), "{url}");
        }
    }
}
