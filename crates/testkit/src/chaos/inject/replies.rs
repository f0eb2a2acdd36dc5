//! Redis answers, but with an error.

use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use super::{Happened, Scene, really};
use crate::drill::DrillError;
use crate::redis::{Admin, Server};

/// Twenty times a second.
const FLUSH_PAUSE: Duration = Duration::from_millis(50);
/// Keys that are loaded, besides ours, and the pause per key in microseconds.
const FILLERS: usize = 2_000;
const FILLER_PAUSE_US: &str = "300";
const LONG: Duration = Duration::from_secs(60);

/// Flushes the script cache again and again.
pub(super) fn script_flush(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let mut admin = scene.place.one()?.0.admin()?;
    let until = Instant::now() + scene.settings.time;
    let mut flushes = 0;
    while Instant::now() < until {
        admin.script_flush()?;
        flushes += 1;
        sleep(FLUSH_PAUSE);
    }
    let unknown = scene.place.errors("NOSCRIPT")?;
    let proof = format!("SCRIPT FLUSH {flushes} times, NOSCRIPT {unknown} times");
    Ok(Happened::now(really(unknown > 0, proof)?))
}

/// Lets Redis refuse writes because it has no memory.
pub(super) fn out_of_memory(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    during(
        scene,
        "OOM",
        |admin| admin_config(admin, "maxmemory", "1mb"),
        |admin| admin_config(admin, "maxmemory", "0"),
    )
}

/// Makes the primary a replica of a server that does not exist. It keeps its data.
pub(super) fn read_only(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let replica_of = |admin: &mut Admin, host: &str, port: &str| {
        admin.command(&[b"REPLICAOF", host.as_bytes(), port.as_bytes()])?;
        Ok(())
    };
    during(
        scene,
        "READONLY",
        |admin| replica_of(admin, "127.0.0.1", "1"),
        |admin| replica_of(admin, "NO", "ONE"),
    )
}

/// A script that does not end keeps Redis busy.
pub(super) fn busy(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let (server, _) = scene.place.one()?;
    let (mut admin, mut endless) = (server.admin()?, server.admin_within(LONG)?);
    admin_config(&mut admin, "busy-reply-threshold", "5")?;
    let script = thread::spawn(move || endless.command(&[b"EVAL", b"while true do end", b"0"]));
    sleep(scene.settings.time);
    admin.command(&[b"SCRIPT", b"KILL"])?;
    let ended = Instant::now();
    if script.join().map_err(|_| "the script's caller panicked")?.is_ok() {
        return Err("the endless script ended".into());
    }
    error_replies(scene, "BUSY", ended)
}

/// Redis loads its data, as after a start, and refuses everything meanwhile.
pub(super) fn loading(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let (server, _) = scene.place.one()?;
    let (mut admin, mut reload) = (server.admin()?, server.admin_within(LONG)?);
    for number in 0..FILLERS {
        admin.command(&[b"SET", format!("filler:{number}").as_bytes(), b"x", b"EX", b"600"])?;
    }
    admin_config(&mut admin, "key-load-delay", FILLER_PAUSE_US)?;
    admin_config(&mut admin, "loading-process-events-interval-bytes", "1024")?;
    reload.command(&[b"DEBUG", b"RELOAD"])?;
    let ended = Instant::now();
    error_replies(scene, "LOADING", ended)
}

/// Redis wants a password that the servers do not have.
pub(super) fn no_auth(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    misconfigured(scene, "NOAUTH", |admin| set_password(admin, "secret"), |admin| set_password(admin, ""))
}

/// The password changes.
pub(super) fn wrong_password(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    misconfigured(
        scene,
        "WRONGPASS",
        |admin| set_password(admin, "changed"),
        |admin| set_password(admin, super::super::PASSWORD),
    )
}

/// The user may no longer run scripts.
pub(super) fn no_permission(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let rights = |admin: &mut Admin, right: &str| {
        admin.command(&[b"ACL", b"SETUSER", b"default", right.as_bytes()])?;
        Ok(())
    };
    misconfigured(scene, "NOPERM", |admin| rights(admin, "-@scripting"), |admin| rights(admin, "+@all"))
}

type Action<'a> = &'a dyn Fn(&mut Admin) -> Result<(), DrillError>;

/// Does something to Redis, undoes it after a while, and expects error replies meanwhile.
fn during(
    scene: &mut Scene<'_>,
    code: &str,
    begin: impl Fn(&mut Admin) -> Result<(), DrillError>,
    end: impl Fn(&mut Admin) -> Result<(), DrillError>,
) -> Result<Happened, DrillError> {
    let server: &Server = scene.place.one()?.0;
    let mut admin = server.admin()?;
    let (begin, end): (Action<'_>, Action<'_>) = (&begin, &end);
    begin(&mut admin)?;
    sleep(scene.settings.time);
    end(&mut admin)?;
    error_replies(scene, code, Instant::now())
}

/// Like [`during`]. In the second half no policy may admit anything: then every server has seen the error.
fn misconfigured(
    scene: &mut Scene<'_>,
    code: &str,
    begin: impl Fn(&mut Admin) -> Result<(), DrillError>,
    end: impl Fn(&mut Admin) -> Result<(), DrillError>,
) -> Result<Happened, DrillError> {
    let half = Instant::now() + scene.settings.time / 2;
    let happened = during(scene, code, begin, end)?;
    Ok(Happened { closed_between: Some((half, happened.ended)), ..happened })
}

fn error_replies(scene: &Scene<'_>, code: &str, ended: Instant) -> Result<Happened, DrillError> {
    let replies = scene.place.errors(code)?;
    let proof = really(replies > 0, format!("{code} {replies} times"))?;
    Ok(Happened { ended, ..Happened::now(proof) })
}

fn admin_config(admin: &mut Admin, name: &str, value: &str) -> Result<(), DrillError> {
    admin.command(&[b"CONFIG", b"SET", name.as_bytes(), value.as_bytes()])?;
    Ok(())
}

/// Sets the password, and closes the connections that have logged in before.
fn set_password(admin: &mut Admin, password: &str) -> Result<(), DrillError> {
    admin_config(admin, "requirepass", password)?;
    admin.command(&[b"CLIENT", b"KILL", b"TYPE", b"normal"])?;
    Ok(())
}
