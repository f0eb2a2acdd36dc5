//! Parses the URL of a Redis store: `redis://user:password@host:port/database?prefix=…`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use super::address::Address;

/// A parsed URL: the servers, how to connect to them, and the prefix of all keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisUrl {
    pub(crate) topology: Topology,
    /// For the servers that hold state.
    pub(crate) options: ConnectionOptions,
    pub(crate) prefix: String,
}

/// Which servers hold state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Topology {
    /// One server.
    Server(Address),
    /// The primary that these sentinels know by this name. The options are for the sentinels.
    Sentinels { addresses: Vec<Address>, name: Arc<str>, options: ConnectionOptions },
    /// The cluster that these servers belong to.
    Cluster(Vec<Address>),
}

/// Credentials, database and TLS of a connection.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct ConnectionOptions {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
    pub(crate) tls: Option<TlsOptions>,
}

/// How TLS verifies the server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TlsOptions {
    /// A PEM file of CA certificates. If None, those of the system.
    pub(crate) ca_file: Option<PathBuf>,
}

/// Why a Redis URL is invalid. The messages never repeat the URL, which may contain a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RedisUrlError {
    /// The text is not a URL.
    #[error("invalid URL: {0}; write redis://host:port/database, or rediss:// for TLS")]
    Form(#[from] url::ParseError),
    /// The scheme is unknown.
    #[error(
        "unknown scheme {0:?} in the Redis URL; write redis://, redis+sentinel:// or redis+cluster://, or the same with \
         rediss for TLS"
    )]
    Scheme(String),
    /// The host is missing.
    #[error("no host in the Redis URL; write redis://host:port/database")]
    Host,
    /// A URL of one server has several hosts.
    #[error(
        "several hosts in a redis:// URL; write redis+sentinel:// or redis+cluster:// for several servers"
    )]
    Hosts,
    /// The path is not a database.
    #[error(
        "invalid path in the Redis URL; it is the number of a database, such as /0; a slash in a password is written %2F"
    )]
    Database,
    /// The path of a sentinel URL is not a name and a database.
    #[error(
        "invalid path in the Redis URL; it is the name that the sentinels know the primary by, and optionally a \
         database: redis+sentinel://host:port,host:port/name/0"
    )]
    Name,
    /// A cluster URL names a database.
    #[error("a cluster has only database 0; leave out the path, and use prefix= to keep data apart")]
    ClusterDatabase,
    /// The user or the password has invalid percent-encoding.
    #[error("invalid {0} in the Redis URL; percent-encode special characters: ? is %3F")]
    Credentials(&'static str),
    /// The parameter is unknown.
    #[error("unknown parameter {0:?} in the Redis URL; known parameters are {1}")]
    Parameter(String, &'static str),
    /// The value is neither yes nor no.
    #[error("invalid value of {0}= in the Redis URL; write yes or no")]
    YesNo(&'static str),
    /// The prefix is too long, or could move keys to other hash slots.
    #[error("invalid prefix {0:?} in the Redis URL; use at most 64 letters, digits, `-`, `_`, `.` or `:`")]
    Prefix(String),
    /// CA certificates are given for a connection without TLS.
    #[error("{0}= without TLS in the Redis URL; write rediss instead of redis")]
    CaWithoutTls(&'static str),
}

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;
const PARAMETERS: &str = "prefix and ca";
const SENTINEL_PARAMETERS: &str =
    "prefix, ca, sentinel_user, sentinel_password, sentinel_tls and sentinel_ca";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Server,
    Sentinel,
    Cluster,
}

/// The parameters after the question mark.
#[derive(Default)]
struct Parameters {
    prefix: String,
    ca_file: Option<PathBuf>,
    sentinel: ConnectionOptions,
    sentinel_tls: Option<bool>,
    sentinel_ca_file: Option<PathBuf>,
}

impl RedisUrl {
    /// Parses a URL. [`RedisSettings::url`](crate::store::redis::RedisSettings::url) describes its form.
    pub fn parse(text: &str) -> Result<RedisUrl, RedisUrlError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(Url::parse(text)
                .map_or_else(RedisUrlError::Form, |url| RedisUrlError::Scheme(url.scheme().to_owned())));
        };
        let (scheme, secure) = parse_scheme(scheme)?;
        // The `url` crate accepts one host, so the others are parsed separately.
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let mut hosts = hosts.split(',');
        let first = hosts.next().unwrap_or_default();
        let at = if credentials.is_empty() { "" } else { "@" };
        let url = Url::parse(&format!("redis://{credentials}{at}{first}{path}"))?;
        let port = if scheme == Scheme::Sentinel { SENTINEL_PORT } else { PORT };
        let mut addresses = vec![parse_address(&url, port)?];
        for host in hosts {
            addresses.push(parse_address(&Url::parse(&format!("redis://{host}"))?, port)?);
        }
        let Parameters { prefix, ca_file, mut sentinel, sentinel_tls, sentinel_ca_file } =
            Parameters::parse(&url, scheme)?;
        let options = ConnectionOptions {
            user: Some(url.username())
                .filter(|user| !user.is_empty())
                .map(|user| percent_decode("user", user))
                .transpose()?,
            password: url.password().map(|password| percent_decode("password", password)).transpose()?,
            database: 0,
            tls: tls_options(secure, ca_file, "ca")?,
        };
        let (topology, database) = match scheme {
            Scheme::Server => {
                let [address] = <[Address; 1]>::try_from(addresses).map_err(|_| RedisUrlError::Hosts)?;
                (
                    Topology::Server(address),
                    parse_database(url.path().trim_start_matches('/'), RedisUrlError::Database)?,
                )
            }
            Scheme::Sentinel => {
                // By default the sentinels use TLS and the CA certificates of their servers.
                let ca_file = sentinel_ca_file.or_else(|| {
                    options.tls.as_ref().filter(|_| sentinel_tls != Some(false))?.ca_file.clone()
                });
                sentinel.tls = tls_options(sentinel_tls.unwrap_or(secure), ca_file, "sentinel_ca")?;
                let (name, database) = parse_name_and_database(url.path())?;
                (Topology::Sentinels { addresses, name, options: sentinel }, database)
            }
            Scheme::Cluster => match url.path() {
                "" | "/" | "/0" => (Topology::Cluster(addresses), 0),
                _ => return Err(RedisUrlError::ClusterDatabase),
            },
        };
        Ok(RedisUrl { topology, options: ConnectionOptions { database, ..options }, prefix })
    }
}

impl Parameters {
    fn parse(url: &Url, scheme: Scheme) -> Result<Parameters, RedisUrlError> {
        let mut parameters = Parameters::default();
        // After a `?` or `#` in a password that is not encoded, its rest is parsed as parameters or fragment.
        if url.query().is_some_and(|query| query.contains('@')) || url.fragment().is_some() {
            return Err(RedisUrlError::Credentials("user or password"));
        }
        for (name, value) in url.query_pairs() {
            let value = value.into_owned();
            match (&*name, scheme) {
                ("prefix", _) => parameters.prefix = check_prefix(value)?,
                ("ca", _) => parameters.ca_file = Some(value.into()),
                ("sentinel_user", Scheme::Sentinel) => parameters.sentinel.user = Some(value),
                ("sentinel_password", Scheme::Sentinel) => parameters.sentinel.password = Some(value),
                ("sentinel_ca", Scheme::Sentinel) => parameters.sentinel_ca_file = Some(value.into()),
                ("sentinel_tls", Scheme::Sentinel) => {
                    parameters.sentinel_tls = Some(match value.as_str() {
                        "yes" => true,
                        "no" => false,
                        _ => return Err(RedisUrlError::YesNo("sentinel_tls")),
                    });
                }
                (name, scheme) => {
                    let known = if scheme == Scheme::Sentinel { SENTINEL_PARAMETERS } else { PARAMETERS };
                    return Err(RedisUrlError::Parameter(name.to_owned(), known));
                }
            }
        }
        Ok(parameters)
    }
}

/// Returns the scheme, and whether it uses TLS.
fn parse_scheme(scheme: &str) -> Result<(Scheme, bool), RedisUrlError> {
    Ok(match scheme {
        "redis" => (Scheme::Server, false),
        "rediss" => (Scheme::Server, true),
        "redis+sentinel" => (Scheme::Sentinel, false),
        "rediss+sentinel" => (Scheme::Sentinel, true),
        "redis+cluster" => (Scheme::Cluster, false),
        "rediss+cluster" => (Scheme::Cluster, true),
        other => return Err(RedisUrlError::Scheme(other.chars().take(40).collect())),
    })
}

fn parse_address(url: &Url, port: u16) -> Result<Address, RedisUrlError> {
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or(RedisUrlError::Host)?;
    Ok(Address::new(host, url.port().unwrap_or(port)))
}

fn tls_options(
    secure: bool,
    ca_file: Option<PathBuf>,
    parameter: &'static str,
) -> Result<Option<TlsOptions>, RedisUrlError> {
    match (secure, ca_file) {
        (true, ca_file) => Ok(Some(TlsOptions { ca_file })),
        (false, None) => Ok(None),
        (false, Some(_)) => Err(RedisUrlError::CaWithoutTls(parameter)),
    }
}

/// Refuses braces, among others: in front of the hash tag they would change the hash slot.
fn check_prefix(prefix: String) -> Result<String, RedisUrlError> {
    let is_valid = prefix.len() <= 64
        && prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
    if is_valid { Ok(prefix) } else { Err(RedisUrlError::Prefix(prefix.chars().take(80).collect())) }
}

/// Parses `/name` or `/name/database`.
fn parse_name_and_database(path: &str) -> Result<(Arc<str>, u32), RedisUrlError> {
    let path = path.trim_start_matches('/');
    let (name, database) = path.split_once('/').unwrap_or((path, ""));
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || !name.chars().all(is_valid) {
        return Err(RedisUrlError::Name);
    }
    Ok((name.into(), parse_database(database, RedisUrlError::Name)?))
}

fn parse_database(number: &str, error: RedisUrlError) -> Result<u32, RedisUrlError> {
    if number.is_empty() { Ok(0) } else { number.parse().map_err(|_| error) }
}

fn percent_decode(what: &'static str, text: &str) -> Result<String, RedisUrlError> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| RedisUrlError::Credentials(what))
}

impl fmt::Debug for ConnectionOptions {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionOptions")
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("database", &self.database)
            .field("tls", &self.tls)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> RedisUrl {
        RedisUrl::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn all_parts_of_a_url_are_parsed() {
        let url = parse("rediss://app:p%40ss@[::1]:7000/3?prefix=shop:&ca=/etc/ca.pem");
        assert_eq!(url.topology, Topology::Server(Address::new("::1", 7000)));
        assert_eq!(url.options.database, 3);
        assert_eq!(url.options.user.as_deref(), Some("app"));
        assert_eq!(url.options.password.as_deref(), Some("p@ss"));
        assert_eq!(url.prefix, "shop:");
        assert_eq!(url.options.tls, Some(TlsOptions { ca_file: Some("/etc/ca.pem".into()) }));
        assert!(!format!("{url:?}").contains("p@ss"));
    }

    #[test]
    fn omitted_parts_have_defaults() {
        let url = parse("redis://localhost");
        assert_eq!(url.topology, Topology::Server(Address::new("localhost", 6379)));
        assert_eq!(url.options, ConnectionOptions::default());
    }

    #[test]
    fn a_sentinel_url_has_a_name_and_separate_credentials() {
        let url = parse("redis+sentinel://app:s3@a:1,[::1]:2,c/gate/4?sentinel_password=t0p&prefix=x:");
        let Topology::Sentinels { addresses, name, options } = &url.topology else { panic!("{url:?}") };
        let expected = [Address::new("a", 1), Address::new("::1", 2), Address::new("c", 26_379)];
        assert_eq!((addresses.as_slice(), &**name), (&expected[..], "gate"));
        assert_eq!((options.password.as_deref(), options.user.as_deref()), (Some("t0p"), None));
        assert_eq!((url.options.database, url.prefix.as_str()), (4, "x:"));
        assert_eq!(url.options.password.as_deref(), Some("s3"));
        assert!(!format!("{url:?}").contains("t0p"));
    }

    #[test]
    fn sentinels_use_the_tls_options_of_their_servers_by_default() {
        let ca_files = |text: &str| {
            let url = parse(text);
            let Topology::Sentinels { options, .. } = url.topology else { panic!("{text}") };
            let ca_file =
                |tls: Option<TlsOptions>| tls.map(|tls| tls.ca_file.map(|path| path.display().to_string()));
            (ca_file(url.options.tls), ca_file(options.tls))
        };
        let ca = |path: &str| Some(Some(path.to_owned()));
        assert_eq!(ca_files("rediss+sentinel://a/m?ca=x"), (ca("x"), ca("x")));
        assert_eq!(ca_files("rediss+sentinel://a/m?ca=x&sentinel_ca=y"), (ca("x"), ca("y")));
        assert_eq!(ca_files("rediss+sentinel://a/m?ca=x&sentinel_tls=no"), (ca("x"), None));
        assert_eq!(ca_files("redis+sentinel://a/m?sentinel_tls=yes&sentinel_ca=y"), (None, ca("y")));
    }

    #[test]
    fn a_cluster_url_lists_servers() {
        let url = parse("rediss+cluster://:pw@a:7001,b:7002?ca=x");
        assert_eq!(url.topology, Topology::Cluster(vec![Address::new("a", 7001), Address::new("b", 7002)]));
        assert!(url.options.tls.is_some());
    }

    #[test]
    fn errors_name_the_fault_and_never_repeat_a_password() {
        for (url, wanted) in [
            ("localhost", "redis://host:port/database"),
            ("http://x", "unknown scheme \"http\""),
            ("redis:///1", "no host"),
            ("redis://a:1,b:2", "redis+cluster://"),
            ("redis://h/one", "number of a database"),
            ("redis://s3/cr3t@host", "number of a database"),
            ("redis://u:12?cr3t@host", "percent-encode"),
            ("redis://u:12?cr3t&x@host", "percent-encode"),
            ("redis://u:12#cr3t@host", "percent-encode"),
            ("redis://h/1?timeout=3", "unknown parameter \"timeout\""),
            ("redis://h/1?sentinel_user=x", "known parameters are prefix and ca"),
            ("redis://h/?prefix={a}", "letters, digits"),
            ("redis://h/?ca=x", "rediss"),
            ("redis+sentinel://h:1", "name that the sentinels know"),
            ("redis+sentinel://h:1/m/x", "name that the sentinels know"),
            ("redis+sentinel://h:1/m?sentinel_tls=1", "yes or no"),
            ("redis+sentinel://h:1/m?sentinel_ca=1", "rediss"),
            ("redis+sentinel://h:1,/m", "host"),
            ("redis+cluster://h:1/1", "only database 0"),
        ] {
            let error = RedisUrl::parse(url).expect_err(url).to_string();
            assert!(error.contains(wanted), "{url}: {error}");
            assert!(!error.contains("cr3t"), "part of a password: {error}");
        }
    }
}
