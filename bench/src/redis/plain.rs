//! Hand-written scripts as they are common: one limit, one key, one check per call.

use anyhow::{Result, bail};
use tollgate_testkit::redis::Value;

use super::connection::Connection;
use super::contender::{Contender, Entrant, INTERVAL_US, PER_HOUR};
use super::script::Check;
use crate::resp::command;

pub(super) const GCRA: Entrant = Entrant::new(
    "plain GCRA",
    "`EVALSHA` of bench/src/redis/plain/gcra.lua: one string; `TIME`, `GET`, `SET` with `PX`",
    |connection, keys| load(connection, keys, include_str!("plain/gcra.lua"), INTERVAL_US, PER_HOUR),
);

pub(super) const TOKEN_BUCKET: Entrant = Entrant::new(
    "plain token bucket",
    "`EVALSHA` of bench/src/redis/plain/token_bucket.lua: a hash; `TIME`, `HMGET`, `HSET`, `PEXPIRE`",
    |connection, keys| load(connection, keys, include_str!("plain/token_bucket.lua"), INTERVAL_US, PER_HOUR),
);

pub(super) const FIXED_WINDOW: Entrant = Entrant::new(
    "plain fixed window",
    "`EVALSHA` of bench/src/redis/plain/fixed_window.lua: one counter; `INCR`, and `PEXPIRE` the first time; reads no \
     clock, because the window is the lifetime of the key",
    |connection, keys| load(connection, keys, include_str!("plain/fixed_window.lua"), HOUR_MS, PER_HOUR),
);

const HOUR_MS: u64 = 3_600_000;

/// A loaded script and its two numbers.
struct Plain {
    digest: Vec<u8>,
    keys: Vec<String>,
    numbers: [String; 2],
}

fn load(
    connection: &mut Connection,
    keys: &[String],
    source: &str,
    time: u64,
    most: u64,
) -> Result<Box<dyn Contender>> {
    let reply = connection.ask(command(&[b"SCRIPT", b"LOAD", source.as_bytes()]))?;
    let digest = match Value::parse(&reply)? {
        Some((Value::Bulk(digest), _)) => digest,
        reply => bail!("the script was not loaded: {reply:?}"),
    };
    let keys = keys.iter().map(|key| format!("limit:{key}")).collect();
    Ok(Box::new(Plain { digest, keys, numbers: [time.to_string(), most.to_string()] }))
}

impl Contender for Plain {
    fn call(&self, checks: &[Check]) -> Result<Vec<u8>> {
        let [check] = checks else { bail!("a plain script makes one check per call") };
        let [time, most] = &self.numbers;
        let key = self.keys[check.key].as_bytes();
        Ok(command(&[b"EVALSHA", &self.digest, b"1", key, time.as_bytes(), most.as_bytes()]))
    }

    fn admitted(&self, _: &[Check], reply: &[u8]) -> Result<usize> {
        match Value::parse(reply)? {
            Some((Value::Array(parts), _)) => match parts[..] {
                [Value::Integer(1), Value::Integer(_), Value::Integer(0)] => Ok(1),
                [Value::Integer(0), Value::Integer(0), Value::Integer(1..)] => Ok(0),
                _ => bail!("not an answer: {parts:?}"),
            },
            reply => bail!("not an answer: {reply:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_testkit::redis::{Flavour, Server};

    /// Slow enough that nothing is refilled during the test.
    const SLOW: u64 = 60_000_000;

    #[test]
    fn every_plain_script_admits_its_limit_and_reports_the_rest() -> Result<()> {
        let server = Server::start(Flavour::Redis70)?;
        let mut connection = Connection::open(server.port())?;
        let sources = [
            ("gcra", include_str!("plain/gcra.lua"), 60_000),
            ("token bucket", include_str!("plain/token_bucket.lua"), 60_000),
            ("fixed window", include_str!("plain/fixed_window.lua"), SLOW as i64),
        ];
        for (name, source, wait_ms) in sources {
            let twin = load(&mut connection, &[name.to_owned()], source, SLOW, 3)?;
            let call = twin.call(&[Check { key: 0, ticket: 1, gives_back: false }])?;
            for left in [2, 1, 0] {
                let reply = connection.ask(call.clone())?;
                let expected = [1, left, 0].map(Value::Integer).to_vec();
                assert_eq!(Value::parse(&reply)?, Some((Value::Array(expected), reply.len())), "{name}");
            }
            let reply = connection.ask(call)?;
            assert_eq!(twin.admitted(&[], &reply)?, 0, "{name}");
            let retry_ms = match Value::parse(&reply)? {
                Some((Value::Array(parts), _)) => match parts[..] {
                    [_, _, Value::Integer(retry_ms)] => retry_ms,
                    _ => bail!("{name}: {parts:?}"),
                },
                reply => bail!("{name}: {reply:?}"),
            };
            assert!((wait_ms - 5_000..=wait_ms).contains(&retry_ms), "{name}: {retry_ms} ms");
        }
        Ok(())
    }
}
