//! What a server of the store says about itself.

use std::collections::HashMap;

use tollgate::store::redis::{InspectedServer, RedisError};

use super::Finding;

/// The fields of the reply to `INFO`.
pub(super) struct Info(HashMap<String, String>);

impl Info {
    pub(super) async fn of(server: &mut InspectedServer) -> Result<Info, RedisError> {
        let text = server.command(&[b"INFO"]).await?.text().unwrap_or_default();
        let fields = text.lines().filter_map(|line| line.trim().split_once(':'));
        Ok(Info(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The number of keys in all databases.
    pub(super) fn keys(&self) -> u64 {
        let databases = self.0.iter().filter(|(name, _)| {
            name.strip_prefix("db").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        });
        let keys = databases
            .filter_map(|(_, value)| value.split(',').next()?.strip_prefix("keys=")?.parse::<u64>().ok());
        keys.sum::<u64>()
    }
}

/// A check that could not look: it names the missing permission, or the error.
pub(super) fn could_not_look(check: &'static str, error: &RedisError, permission: &str) -> Finding {
    match error {
        RedisError::ErrorReply(reply) if is_denied(reply) => Finding::skip(
            check,
            format!(
                "the user lacks the permission {permission}; use --store-user, or add {permission} to its ACL line"
            ),
        ),
        error => {
            Finding::skip(check, format!("the server did not say: {}", crate::failure::error_chain(error)))
        }
    }
}

/// Whether an error reply means that a permission is missing.
pub(super) fn is_denied(reply: &str) -> bool {
    reply.starts_with("NOPERM")
}
