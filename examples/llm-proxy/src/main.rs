//! Serves the proxy with a rules file: `llm-proxy rules.yaml`. The README lists the environment variables.

use std::env;
use std::error::Error;
use std::time::Duration;

use llm_proxy::{Model, Proxy, router};
use tokio::net::TcpListener;
use tollgate::{HashKey, Limiter};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let rules = env::args().nth(1).ok_or("usage: llm-proxy RULES")?;
    let setting = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let mut builder = Limiter::builder().rules_file(rules).store(setting("LLM_PROXY_STORE", "memory://"));
    if let Ok(key) = env::var("TOLLGATE_HASH_KEY") {
        builder = builder.hash_key(HashKey::from_hex(0, &key)?);
    }
    let proxy = Proxy {
        limiter: builder.build().await?,
        model: Model { pace: Duration::from_millis(setting("LLM_PROXY_PACE_MS", "20").parse()?) },
        hold: Duration::from_secs(setting("LLM_PROXY_HOLD_S", "60").parse()?),
    };
    let listener = TcpListener::bind(setting("LLM_PROXY_LISTEN", "127.0.0.1:8787")).await?;
    println!("serving on http://{}", listener.local_addr()?);
    axum::serve(listener, router(proxy)).await?;
    Ok(())
}
