//! Which Redis, as a URL says it: `redis://user:password@host:port/database?prefix=…`.

use std::fmt;
use std::path::PathBuf;

use url::Url;

/// Where Redis is and how to get in.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
    /// In front of every key.
    pub(super) prefix: String,
    pub(super) tls: Option<Tls>,
}

/// Whom to trust.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tls {
    /// Certificates that vouch for the server, in PEM; those of the system if there is no file.
    pub(super) authority: Option<PathBuf>,
}

/// A URL that names no Redis. It is not repeated: it may hold a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetError {
    /// No URL at all.
    #[error("this is no URL: {0}; write redis://host:port/database, or rediss:// for TLS")]
    Form(#[from] url::ParseError),
    /// Another scheme.
    #[error("a Redis URL begins with redis:// or rediss://, not with {0}://")]
    Scheme(String),
    /// No host.
    #[error("the Redis URL names no host; write redis://host:port/database")]
    Host,
    /// The path is no database.
    #[error(
        "the path of the Redis URL is the number of a database, such as /0; a slash in a password is written %2F"
    )]
    Database,
    /// User or password with broken percent signs.
    #[error(
        "the {0} in the Redis URL is not written as it must be; write special characters with percent signs: ? is %3F"
    )]
    Credentials(&'static str),
    /// A parameter nobody knows.
    #[error("the Redis URL has an unknown parameter {0:?}; known are prefix and ca")]
    Parameter(String),
    /// A prefix that would move keys to other slots.
    #[error("the prefix {0:?} must have at most 64 letters, digits, `-`, `_`, `.` or `:`")]
    Prefix(String),
    /// An authority without TLS.
    #[error("ca= is for TLS; write rediss:// instead of redis://")]
    AuthorityWithoutTls,
}

const PORT: u16 = 6379;

impl Target {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Target, TargetError> {
        let url = Url::parse(text)?;
        let mut tls = match url.scheme() {
            "redis" => None,
            "rediss" => Some(Tls::default()),
            other => return Err(TargetError::Scheme(other.to_owned())),
        };
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(TargetError::Host)?;
        let (mut prefix, mut authority) = (String::new(), None);
        for (name, value) in url.query_pairs() {
            match &*name {
                "prefix" => prefix = fitting(value.into_owned())?,
                "ca" => authority = Some(PathBuf::from(value.into_owned())),
                // An unescaped question mark in a password makes a parameter of its rest.
                _ if name.contains('@') => return Err(TargetError::Credentials("user or password")),
                _ => return Err(TargetError::Parameter(name.into_owned())),
            }
        }
        match &mut tls {
            Some(tls) => tls.authority = authority,
            None if authority.is_some() => return Err(TargetError::AuthorityWithoutTls),
            None => (),
        }
        Ok(Target {
            // An IPv6 address stands in brackets in a URL only.
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port().unwrap_or(PORT),
            user: Some(url.username())
                .filter(|user| !user.is_empty())
                .map(|user| plain("user", user))
                .transpose()?,
            password: url.password().map(|password| plain("password", password)).transpose()?,
            database: database(url.path())?,
            prefix,
            tls,
        })
    }

    /// Host and port, for people.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Braces in front of the tag would decide the slot.
fn fitting(prefix: String) -> Result<String, TargetError> {
    let fits = prefix.len() <= 64
        && prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
    if fits { Ok(prefix) } else { Err(TargetError::Prefix(prefix.chars().take(80).collect())) }
}

fn database(path: &str) -> Result<u32, TargetError> {
    match path.trim_start_matches('/') {
        "" => Ok(0),
        number => number.parse().map_err(|_| TargetError::Database),
    }
}

fn plain(what: &'static str, text: &str) -> Result<String, TargetError> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| TargetError::Credentials(what))
}

impl fmt::Debug for Target {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("address", &self.address())
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("database", &self.database)
            .field("prefix", &self.prefix)
            .field("tls", &self.tls)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_everything() {
        let target =
            Target::parse("rediss://app:p%40ss@[::1]:7000/3?prefix=shop:&ca=/etc/ca.pem").expect("a URL");
        assert_eq!((target.host.as_str(), target.port, target.database), ("::1", 7000, 3));
        assert_eq!((target.user.as_deref(), target.password.as_deref()), (Some("app"), Some("p@ss")));
        assert_eq!(target.prefix, "shop:");
        assert_eq!(target.tls, Some(Tls { authority: Some("/etc/ca.pem".into()) }));
        assert!(!format!("{target:?}").contains("p@ss"));
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let target = Target::parse("redis://localhost").expect("a URL");
        assert_eq!((target.port, target.database, target.user, target.tls), (6379, 0, None, None));
    }

    #[test]
    fn a_wrong_url_says_what_would_be_right() {
        for (url, wanted) in [
            ("localhost", "redis://host:port/database"),
            ("http://x", "begins with redis://"),
            ("redis:///1", "names no host"),
            ("redis://h/one", "number of a database"),
            ("redis://s3/cr3t@host", "number of a database"),
            ("redis://u:12?cr3t@host", "percent signs"),
            ("redis://h/1?timeout=3", "unknown parameter \"timeout\""),
            ("redis://h/?prefix={a}", "letters, digits"),
            ("redis://h/?ca=x", "rediss://"),
        ] {
            let error = Target::parse(url).expect_err(url).to_string();
            assert!(error.contains(wanted), "{url}: {error}");
            assert!(!error.contains("cr3t"), "part of a password: {error}");
        }
    }
}
