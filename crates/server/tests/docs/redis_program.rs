//! The program of docs/guides/redis.md. A test runs it and checks that the page shows exactly this.

use std::error::Error;
use std::time::Duration;

use tollgate::Limiter;
use tollgate::core::SubjectHasher;
use tollgate::store::redis::{RedisSettings, RedisStore};

/// One limiter for the whole service: clone it wherever it is needed.
pub(crate) async fn limiter(url: &str, hash_key: &str) -> Result<Limiter<RedisStore>, Box<dyn Error>> {
    let store = RedisSettings::url(url)?.deadline(Duration::from_millis(25)).connect().await?;
    let limiter = Limiter::builder()
        .rules_file("examples/rules/shop.yaml")
        .store(store)
        .hash_key(SubjectHasher::from_hex(0, hash_key)?)
        .build()?;
    Ok(limiter)
}
