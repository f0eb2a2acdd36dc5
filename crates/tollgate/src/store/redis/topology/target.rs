//! Which Redis, as a URL says it: `redis://user:password@host:port/database?prefix=…`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

/// Where Redis is and how to get in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub(crate) place: Place,
    /// How to get into the servers that hold the state.
    pub(crate) access: Access,
    /// In front of every key.
    pub(crate) prefix: String,
}

/// Where the state is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// On one server.
    Node(Address),
    /// On whichever server the sentinels call the primary of this name.
    Sentinel { addresses: Vec<Address>, name: Arc<str>, access: Access },
    /// Spread over the servers of a cluster, of which these are some.
    Cluster(Vec<Address>),
}

/// Host and port of a server.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Address {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

/// How to get into a server.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Access {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
    pub(crate) tls: Option<Tls>,
}

/// Whom to trust.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tls {
    /// Certificates that vouch for the server, in PEM; those of the system if there is no file.
    pub(crate) authority: Option<PathBuf>,
}

/// A URL that names no Redis. It is not repeated: it may hold a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetError {
    /// No URL at all.
    #[error("this is no URL: {0}; write redis://host:port/database, or rediss:// for TLS")]
    Form(#[from] url::ParseError),
    /// Another scheme.
    #[error(
        "a Redis URL begins with redis://, redis+sentinel:// or redis+cluster://, or the same with rediss for TLS, not with {0}://"
    )]
    Scheme(String),
    /// No host.
    #[error("the Redis URL names no host; write redis://host:port/database")]
    Host,
    /// Several hosts for one server.
    #[error("redis:// is one server; for several write redis+sentinel:// or redis+cluster://")]
    Hosts,
    /// The path is no database.
    #[error(
        "the path of the Redis URL is the number of a database, such as /0; a slash in a password is written %2F"
    )]
    Database,
    /// Sentinels watch over primaries by name.
    #[error(
        "the path of the Redis URL is the name that the sentinels know the primary by, and perhaps a database: \
         redis+sentinel://host:port,host:port/name/0"
    )]
    Name,
    /// A cluster has one database.
    #[error("a cluster has no database but 0; leave the path out, and use prefix= to keep things apart")]
    ClusterDatabase,
    /// User or password with broken percent signs.
    #[error(
        "the {0} in the Redis URL is not written as it must be; write special characters with percent signs: ? is %3F"
    )]
    Credentials(&'static str),
    /// A parameter nobody knows.
    #[error("the Redis URL has an unknown parameter {0:?}; known are {1}")]
    Parameter(String, &'static str),
    /// Neither yes nor no.
    #[error("{0}= in the Redis URL is yes or no")]
    Choice(&'static str),
    /// A prefix that would move keys to other slots.
    #[error("the prefix {0:?} must have at most 64 letters, digits, `-`, `_`, `.` or `:`")]
    Prefix(String),
    /// An authority without TLS.
    #[error("{0}= is for TLS; write rediss instead of redis in front of the URL")]
    AuthorityWithoutTls(&'static str),
}

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;
const PARAMETERS: &str = "prefix and ca";
const SENTINEL_PARAMETERS: &str =
    "prefix, ca, sentinel_user, sentinel_password, sentinel_tls and sentinel_ca";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Node,
    Sentinel,
    Cluster,
}

/// What may stand behind the question mark.
#[derive(Default)]
struct Parameters {
    prefix: String,
    authority: Option<PathBuf>,
    sentinel: Access,
    sentinel_tls: Option<bool>,
    sentinel_authority: Option<PathBuf>,
}

impl Target {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Target, TargetError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(Url::parse(text)
                .map_or_else(TargetError::Form, |url| TargetError::Scheme(url.scheme().to_owned())));
        };
        let (kind, secure) = kind_of(scheme)?;
        // A URL has one host: with the first it is one, the others are read apart.
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (before, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let mut hosts = hosts.split(',');
        let first = hosts.next().unwrap_or_default();
        let at = if before.is_empty() { "" } else { "@" };
        let url = Url::parse(&format!("redis://{before}{at}{first}{path}"))?;
        let port = if kind == Kind::Sentinel { SENTINEL_PORT } else { PORT };
        let mut addresses = vec![address(&url, port)?];
        for host in hosts {
            addresses.push(address(&Url::parse(&format!("redis://{host}"))?, port)?);
        }
        let Parameters { prefix, authority, mut sentinel, sentinel_tls, sentinel_authority } =
            Parameters::read(&url, kind)?;
        let access = Access {
            user: Some(url.username())
                .filter(|user| !user.is_empty())
                .map(|user| plain("user", user))
                .transpose()?,
            password: url.password().map(|password| plain("password", password)).transpose()?,
            database: 0,
            tls: tls(secure, authority, "ca")?,
        };
        let (place, database) = match kind {
            Kind::Node => {
                let [address] = <[Address; 1]>::try_from(addresses).map_err(|_| TargetError::Hosts)?;
                (Place::Node(address), database(url.path().trim_start_matches('/'), TargetError::Database)?)
            }
            Kind::Sentinel => {
                // Sentinels are as safe as what they watch over, and vouched for by the same, unless told otherwise.
                let authority = sentinel_authority.or_else(|| {
                    access.tls.as_ref().filter(|_| sentinel_tls != Some(false))?.authority.clone()
                });
                sentinel.tls = tls(sentinel_tls.unwrap_or(secure), authority, "sentinel_ca")?;
                let (name, number) = named(url.path())?;
                (Place::Sentinel { addresses, name, access: sentinel }, number)
            }
            Kind::Cluster => match url.path() {
                "" | "/" | "/0" => (Place::Cluster(addresses), 0),
                _ => return Err(TargetError::ClusterDatabase),
            },
        };
        Ok(Target { place, access: Access { database, ..access }, prefix })
    }
}

impl Parameters {
    fn read(url: &Url, kind: Kind) -> Result<Parameters, TargetError> {
        let mut read = Parameters::default();
        // An unescaped question mark or hash in a password makes parameters or less of its rest.
        if url.query().is_some_and(|query| query.contains('@')) || url.fragment().is_some() {
            return Err(TargetError::Credentials("user or password"));
        }
        for (name, value) in url.query_pairs() {
            let value = value.into_owned();
            match (&*name, kind) {
                ("prefix", _) => read.prefix = fitting(value)?,
                ("ca", _) => read.authority = Some(value.into()),
                ("sentinel_user", Kind::Sentinel) => read.sentinel.user = Some(value),
                ("sentinel_password", Kind::Sentinel) => read.sentinel.password = Some(value),
                ("sentinel_ca", Kind::Sentinel) => read.sentinel_authority = Some(value.into()),
                ("sentinel_tls", Kind::Sentinel) => {
                    read.sentinel_tls = Some(match value.as_str() {
                        "yes" => true,
                        "no" => false,
                        _ => return Err(TargetError::Choice("sentinel_tls")),
                    });
                }
                (name, kind) => {
                    let known = if kind == Kind::Sentinel { SENTINEL_PARAMETERS } else { PARAMETERS };
                    return Err(TargetError::Parameter(name.to_owned(), known));
                }
            }
        }
        Ok(read)
    }
}

fn kind_of(scheme: &str) -> Result<(Kind, bool), TargetError> {
    Ok(match scheme {
        "redis" => (Kind::Node, false),
        "rediss" => (Kind::Node, true),
        "redis+sentinel" => (Kind::Sentinel, false),
        "rediss+sentinel" => (Kind::Sentinel, true),
        "redis+cluster" => (Kind::Cluster, false),
        "rediss+cluster" => (Kind::Cluster, true),
        other => return Err(TargetError::Scheme(other.chars().take(40).collect())),
    })
}

fn address(url: &Url, port: u16) -> Result<Address, TargetError> {
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or(TargetError::Host)?;
    Ok(Address::new(host, url.port().unwrap_or(port)))
}

fn tls(
    secure: bool,
    authority: Option<PathBuf>,
    parameter: &'static str,
) -> Result<Option<Tls>, TargetError> {
    match (secure, authority) {
        (true, authority) => Ok(Some(Tls { authority })),
        (false, None) => Ok(None),
        (false, Some(_)) => Err(TargetError::AuthorityWithoutTls(parameter)),
    }
}

/// Braces in front of the tag would decide the slot.
fn fitting(prefix: String) -> Result<String, TargetError> {
    let fits = prefix.len() <= 64
        && prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
    if fits { Ok(prefix) } else { Err(TargetError::Prefix(prefix.chars().take(80).collect())) }
}

/// The primary's name and the number of the database.
fn named(path: &str) -> Result<(Arc<str>, u32), TargetError> {
    let path = path.trim_start_matches('/');
    let (name, number) = path.split_once('/').unwrap_or((path, ""));
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || !name.chars().all(fits) {
        return Err(TargetError::Name);
    }
    Ok((name.into(), database(number, TargetError::Name)?))
}

fn database(number: &str, error: TargetError) -> Result<u32, TargetError> {
    if number.is_empty() { Ok(0) } else { number.parse().map_err(|_| error) }
}

fn plain(what: &'static str, text: &str) -> Result<String, TargetError> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| TargetError::Credentials(what))
}

impl Address {
    /// An IPv6 address may stand in brackets, as it does in a URL.
    pub(crate) fn new(host: &str, port: u16) -> Address {
        Address { host: host.trim_start_matches('[').trim_end_matches(']').into(), port }
    }

    /// Reads `host:port` as servers write it, without brackets. An empty host is that of whoever says it.
    pub(crate) fn read(text: &str, said_by: &Address) -> Option<Address> {
        let (host, port) = text.rsplit_once(':').filter(|(host, _)| *host != "?")?;
        let host = if host.is_empty() { &said_by.host } else { host };
        Some(Address::new(host, port.parse().ok()?))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Debug for Access {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
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

    fn read(url: &str) -> Target {
        Target::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn a_url_says_everything() {
        let target = read("rediss://app:p%40ss@[::1]:7000/3?prefix=shop:&ca=/etc/ca.pem");
        assert_eq!(target.place, Place::Node(Address::new("::1", 7000)));
        assert_eq!(target.access.database, 3);
        assert_eq!(target.access.user.as_deref(), Some("app"));
        assert_eq!(target.access.password.as_deref(), Some("p@ss"));
        assert_eq!(target.prefix, "shop:");
        assert_eq!(target.access.tls, Some(Tls { authority: Some("/etc/ca.pem".into()) }));
        assert!(!format!("{target:?}").contains("p@ss"));
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let target = read("redis://localhost");
        assert_eq!(target.place, Place::Node(Address::new("localhost", 6379)));
        assert_eq!(target.access, Access::default());
    }

    #[test]
    fn sentinels_have_a_name_to_watch_and_a_door_of_their_own() {
        let target = read("redis+sentinel://app:s3@a:1,[::1]:2,c/gate/4?sentinel_password=t0p&prefix=x:");
        let Place::Sentinel { addresses, name, access } = &target.place else { panic!("{target:?}") };
        let expected = [Address::new("a", 1), Address::new("::1", 2), Address::new("c", 26_379)];
        assert_eq!((addresses.as_slice(), &**name), (&expected[..], "gate"));
        assert_eq!((access.password.as_deref(), access.user.as_deref()), (Some("t0p"), None));
        assert_eq!((target.access.database, target.prefix.as_str()), (4, "x:"));
        assert_eq!(target.access.password.as_deref(), Some("s3"));
        assert!(!format!("{target:?}").contains("t0p"));
    }

    #[test]
    fn sentinels_speak_tls_as_their_servers_do_unless_told_otherwise() {
        let seen = |url: &str| {
            let target = read(url);
            let Place::Sentinel { access, .. } = target.place else { panic!("{url}") };
            let of = |tls: Option<Tls>| tls.map(|tls| tls.authority.map(|path| path.display().to_string()));
            (of(target.access.tls), of(access.tls))
        };
        let ca = |path: &str| Some(Some(path.to_owned()));
        assert_eq!(seen("rediss+sentinel://a/m?ca=x"), (ca("x"), ca("x")));
        assert_eq!(seen("rediss+sentinel://a/m?ca=x&sentinel_ca=y"), (ca("x"), ca("y")));
        assert_eq!(seen("rediss+sentinel://a/m?ca=x&sentinel_tls=no"), (ca("x"), None));
        assert_eq!(seen("redis+sentinel://a/m?sentinel_tls=yes&sentinel_ca=y"), (None, ca("y")));
    }

    #[test]
    fn a_cluster_is_found_by_some_of_its_servers() {
        let target = read("rediss+cluster://:pw@a:7001,b:7002?ca=x");
        assert_eq!(target.place, Place::Cluster(vec![Address::new("a", 7001), Address::new("b", 7002)]));
        assert!(target.access.tls.is_some());
    }

    #[test]
    fn a_wrong_url_says_what_would_be_right() {
        for (url, wanted) in [
            ("localhost", "redis://host:port/database"),
            ("http://x", "begins with redis://"),
            ("redis:///1", "names no host"),
            ("redis://a:1,b:2", "redis+cluster://"),
            ("redis://h/one", "number of a database"),
            ("redis://s3/cr3t@host", "number of a database"),
            ("redis://u:12?cr3t@host", "percent signs"),
            ("redis://u:12?cr3t&x@host", "percent signs"),
            ("redis://u:12#cr3t@host", "percent signs"),
            ("redis://h/1?timeout=3", "unknown parameter \"timeout\""),
            ("redis://h/1?sentinel_user=x", "known are prefix and ca"),
            ("redis://h/?prefix={a}", "letters, digits"),
            ("redis://h/?ca=x", "rediss"),
            ("redis+sentinel://h:1", "name that the sentinels know"),
            ("redis+sentinel://h:1/m/x", "name that the sentinels know"),
            ("redis+sentinel://h:1/m?sentinel_tls=1", "yes or no"),
            ("redis+sentinel://h:1/m?sentinel_ca=1", "rediss"),
            ("redis+sentinel://h:1,/m", "host"),
            ("redis+cluster://h:1/1", "no database but 0"),
        ] {
            let error = Target::parse(url).expect_err(url).to_string();
            assert!(error.contains(wanted), "{url}: {error}");
            assert!(!error.contains("cr3t"), "part of a password: {error}");
        }
    }

    #[test]
    fn servers_write_addresses_in_their_own_way() {
        let by = Address::new("10.0.0.9", 1);
        let read = |text| Address::read(text, &by).map(|address| address.to_string());
        assert_eq!(read("127.0.0.1:7000").as_deref(), Some("127.0.0.1:7000"));
        assert_eq!(read("2001:db8::1:7000").as_deref(), Some("[2001:db8::1]:7000"));
        assert_eq!(read(":7000").as_deref(), Some("10.0.0.9:7000"));
        assert_eq!((read("nonsense"), read("?:7000")), (None, None));
    }
}
