//! An axum service behind Tollgate: a limit per API key, a limit on concurrent requests, header fields and refusals.
//!
//!     cargo run -p tollgate --features tower --example axum              # calls itself and prints what a client sees
//!     cargo run -p tollgate --features tower --example axum -- --serve   # serves until you stop it: try curl -i
//!
//! The layer is one line of the router. `describe` sets the attributes that rules count by. Handlers know nothing of
//! limits.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::LocalLimiter;
use tollgate::tower::TollgateLayer;

const RULES: &str = "
version: 1
rules:
  - id: search-per-key
    match: { path: /search }
    per: api_key | ip          # requests without a key count by address
    limit: { token-bucket: 1/min, burst: 3 }
  - id: concurrent
    per: all
    limit: { concurrency: 100, lease: 30s }
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let layer = TollgateLayer::new(LocalLimiter::from_yaml(RULES)?).describe(|request, about| {
        about.request(request);
        // A real service would verify the key first.
        if let Some(key) = request.headers.get("x-api-key").and_then(|key| key.to_str().ok()) {
            about.set("api_key", key);
        }
        if let Some(ConnectInfo(peer)) = request.extensions.get::<ConnectInfo<SocketAddr>>() {
            about.peer(peer.ip());
        }
    });
    let app = Router::new()
        .route("/search", get(async || "three results"))
        .route("/about", get(async || "an example"))
        .layer(layer);

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    println!("serving on http://{address}");
    let server = axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>());
    if std::env::args().any(|argument| argument == "--serve") {
        server.await?;
        return Ok(());
    }
    tokio::spawn(server.into_future());

    for left in ["2", "1", "0"] {
        let answer = call(address, "/search", Some("k-1")).await?;
        assert!(answer.starts_with("HTTP/1.1 200"));
        assert!(
            answer.contains(
                r#"ratelimit-policy: "search-per-key";q=3;w=180, "concurrent";q=100;qu="concurrent-"#
            )
        );
        assert!(answer.contains(&format!(r#"ratelimit: "search-per-key";r={left};t="#)));
    }
    let refused = call(address, "/search", Some("k-1")).await?;
    assert!(refused.starts_with("HTTP/1.1 429"));
    assert!(refused.contains("retry-after: "));
    assert!(refused.contains(r#""code":"quota-exceeded""#) && refused.contains(r#""rule":"search-per-key""#));

    // Another key, no key, another path: these have other limits.
    for (path, key) in [("/search", Some("k-2")), ("/search", None), ("/about", Some("k-1"))] {
        assert!(call(address, path, key).await?.starts_with("HTTP/1.1 200"));
    }
    println!("\nthree requests of key k-1 served, the fourth refused, others unaffected");
    Ok(())
}

/// One request over plain TCP, to show the whole response.
async fn call(address: SocketAddr, path: &str, key: Option<&str>) -> Result<String, Box<dyn Error>> {
    let key = key.map(|key| format!("x-api-key: {key}\r\n")).unwrap_or_default();
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{key}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    println!("\nGET {path} {}", key.trim_end());
    for line in answer.lines().filter(|line| !line.is_empty()) {
        println!("    {line}");
    }
    Ok(answer)
}
