//! The program of docs/guides/redis.md. A test runs it and checks that the page shows exactly this.

use std::error::Error;
use std::time::Duration;

use tollgate::store::redis::RedisSettings;
use tollgate::{HashKey, Limiter};

/// One limiter for the whole service: clone it wherever it is needed.
pub(crate) async fn limiter(url: &str, hash_key: &str) -> Result<Limiter, Box<dyn Error>> {
    let limiter = Limiter::builder()
        .rules_file("examples/rules/shop.yaml")
        .redis(RedisSettings::url(url)?.deadline(Duration::from_millis(25)))
        .hash_key(HashKey::from_hex(0, hash_key)?)
        .build()
        .await?;
    Ok(limiter)
}
