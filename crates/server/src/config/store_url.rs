//! URLs of a shared store, and the passwords that are kept out of them.

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tollgate::store::redis::{RedisSettings, RedisUrlError};

/// The settings of the store at a URL without passwords, with these passwords.
pub(crate) fn settings_of(
    url: &str,
    password: Option<&str>,
    sentinel_password: Option<&str>,
) -> Result<RedisSettings, RedisUrlError> {
    let mut url = password.map_or_else(|| url.to_owned(), |password| with_password(url, password));
    if let Some(password) = sentinel_password {
        url = with_sentinel_password(&url, password);
    }
    RedisSettings::url(&url)
}

/// Whether a URL contains a password: more than a user before the hosts, or a parameter with a password after them. No part
/// of such a URL is ever printed.
pub(crate) fn holds_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let before = rest.rsplit_once('@').is_some_and(|(user, _)| user.contains([':', '/', '?', '#']));
    // Parameter names can be percent-encoded.
    let plain = percent_decode_str(rest).decode_utf8_lossy().to_ascii_lowercase();
    before || plain.contains("password=")
}

/// Whether the URL names Sentinels.
pub(crate) fn has_sentinels(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.ends_with("+sentinel"))
}

fn with_password(url: &str, password: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (user, host) = rest.split_once('@').unwrap_or(("", rest));
    format!("{scheme}://{user}:{}@{host}", utf8_percent_encode(password, NON_ALPHANUMERIC))
}

fn with_sentinel_password(url: &str, password: &str) -> String {
    let password = utf8_percent_encode(password, NON_ALPHANUMERIC);
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}sentinel_password={password}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_found_in_every_notation() {
        for (url, holds) in [
            ("redis://host:6379/0", false),
            ("redis://user@host:6379/0?prefix=a:", false),
            ("rediss://host?ca=/etc/ca.pem", false),
            ("redis://:secret@host", true),
            ("redis://user:secret@host", true),
            ("redis://user:sec/ret@host", true),
            ("redis://sec/ret@host", true),
            ("redis://sec?ret@host", true),
            ("redis://sec#ret@host", true),
            ("redis:user:secret@host", true),
            ("redis+sentinel://user@a:1,b:2,[::1]:3/gate/1?sentinel_user=s&sentinel_tls=no", false),
            ("rediss+cluster://user@a:1,b:2?ca=/etc/ca.pem&prefix=a:", false),
            ("redis+cluster://a:1,b:2", false),
            ("redis+cluster://:secret@a:1,b:2", true),
            ("redis+cluster://a:1,user:secret@b:2", true),
            ("redis+cluster://a,sec/ret@b", true),
            ("redis+sentinel://a:1,b:2/gate?sentinel_password=secret", true),
            ("redis+sentinel://a:1/gate?prefix=a:&sentinel_password=secret", true),
            ("redis+sentinel://a:1/gate?sentinel%5Fpassword=secret", true),
            ("redis+sentinel://a:1/gate?Sentinel_Pass%77ord=secret", true),
            ("redis://a:1?password=secret", true),
        ] {
            assert_eq!(holds_password(url), holds, "{url}");
        }
    }

    #[test]
    fn any_password_survives_its_encoding_in_a_url() {
        for (url, expected) in [
            ("redis://host/1", "redis://:a%25%40%3A%2F%20b@host/1"),
            ("rediss://tollgate@host", "rediss://tollgate:a%25%40%3A%2F%20b@host"),
            ("redis+cluster://a:1,b:2", "redis+cluster://:a%25%40%3A%2F%20b@a:1,b:2"),
            (
                "redis+sentinel://u@a,[::1]:2/m/1?prefix=a:",
                "redis+sentinel://u:a%25%40%3A%2F%20b@a,[::1]:2/m/1?prefix=a:",
            ),
        ] {
            assert_eq!(with_password(url, "a%@:/ b"), expected);
            assert!(RedisSettings::url(expected).is_ok(), "{expected}");
        }
        for (url, expected) in [
            ("redis+sentinel://a,b/m", "redis+sentinel://a,b/m?sentinel_password=a%26%2B%23%20b"),
            (
                "redis+sentinel://a/m?prefix=a:",
                "redis+sentinel://a/m?prefix=a:&sentinel_password=a%26%2B%23%20b",
            ),
        ] {
            assert_eq!(with_sentinel_password(url, "a&+# b"), expected);
            assert!(RedisSettings::url(expected).is_ok(), "{expected}");
        }
    }

    #[test]
    fn only_sentinel_urls_have_sentinels() {
        for (url, has) in [
            ("redis+sentinel://a/m", true),
            ("rediss+sentinel://a/m", true),
            ("redis://sentinel/1", false),
            ("redis+cluster://a", false),
            ("sentinel", false),
        ] {
            assert_eq!(has_sentinels(url), has, "{url}");
        }
    }
}
