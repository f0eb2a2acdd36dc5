//! Clocks jump.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Happened, Scene, really, wait_for};
use crate::drill::DrillError;
use crate::redis::{Admin, Value};

/// The server renews the date of its responses once a second.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
/// Length of day and hour, as in `06 Nov 1994 08`.
const HOUR: usize = 14;

/// The clock of one server jumps an hour ahead, and two hours back.
pub(super) fn server(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let half = scene.settings.time / 2;
    let own = scene.fleet.server(1)?.http;
    let shifted = scene.fleet.server(0)?.http;
    scene.shifted.set(3_600)?;
    let hour_differs =
        || matches!((date(own), date(shifted)), (Ok(own), Ok(other)) if own[..HOUR] != other[..HOUR]);
    wait_for("an hour ahead", SEEN_WITHIN, hour_differs)?;
    let ahead = date(shifted)?;
    sleep(half);
    // The date of responses does not go back, so another process tells what the server reads.
    scene.shifted.set(-3_600)?;
    let mut clock = Command::new("date");
    let read = clock.arg("+%s").envs(scene.shifted.environment()).output()?;
    let behind = String::from_utf8(read.stdout)?.trim().parse::<f64>()? - now()?;
    sleep(half);
    scene.shifted.set(0)?;
    let proof = format!("one server says {ahead}, then its clock is {:.0} s behind", -behind);
    Ok(Happened::now(really(behind < -3_500.0, proof)?))
}

/// The clock of Redis jumps two seconds ahead, and back.
pub(super) fn redis(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let mut admin = scene.place.one()?.0.admin()?;
    scene.shifted.set(2)?;
    wait_for("ahead", SEEN_WITHIN, || ahead(&mut admin).is_ok_and(|ahead| ahead > 1.5))?;
    let most = ahead(&mut admin)?;
    sleep(scene.settings.time / 2);
    scene.shifted.set(0)?;
    wait_for("set back", SEEN_WITHIN, || ahead(&mut admin).is_ok_and(|ahead| ahead < 0.5))?;
    let least = ahead(&mut admin)?;
    let proof = format!("Redis {most:.1} s ahead, then {least:.1} s");
    Ok(Happened::now(really(most - least > 1.0, proof)?))
}

/// Returns how many seconds the clock of Redis is ahead.
fn ahead(admin: &mut Admin) -> Result<f64, DrillError> {
    let reply = admin.command(&[b"TIME"])?;
    let Value::Array(parts) = &reply else { return Err(format!("TIME is {reply:?}").into()) };
    let [Value::Bulk(seconds), Value::Bulk(micros)] = parts.as_slice() else {
        return Err(format!("TIME is {reply:?}").into());
    };
    let (seconds, micros) = (str::from_utf8(seconds)?, str::from_utf8(micros)?);
    let theirs = seconds.parse::<f64>()? + micros.parse::<f64>()? / 1e6;
    Ok(theirs - now()?)
}

fn now() -> Result<f64, DrillError> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// Returns what time it is for a server: day and time, to the minute, in its response.
fn date(address: SocketAddr) -> Result<String, DrillError> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SEEN_WITHIN))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let date =
        text.lines().find_map(|line| line.strip_prefix("date: ")).ok_or("a response without a date")?;
    // As in: Sun, 06 Nov 1994 08:49:37 GMT.
    Ok(date.get(5..22).ok_or("a date without a time")?.to_owned())
}
