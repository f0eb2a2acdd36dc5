//! Our own servers end, or get other rules.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Happened, Scene, really, replace};
use crate::chaos::fleet::ADDRESSES_MAX;
use crate::chaos::traffic::{self, LIMIT, LIMIT_OTHER};
use crate::drill::DrillError;

/// A file that changes faster is read once.
const FLAP: Duration = Duration::from_millis(250);
const HUGE: usize = 32 << 20;

/// Ends a server in order, and starts another.
pub(super) fn terminate(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let code = scene.fleet.terminate(0)?;
    sleep(scene.settings.time / 2);
    scene.fleet.launch(0);
    Ok(Happened::now(really(code == Some(0), format!("SIGTERM, exit code {code:?}"))?))
}

/// Kills a server, and starts another.
pub(super) fn kill(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    scene.fleet.kill9(0)?;
    sleep(scene.settings.time / 2);
    scene.fleet.launch(0);
    Ok(Happened::now("SIGKILL to one of three servers".to_owned()))
}

/// Changes the rules file between two valid texts and invalid ones.
pub(super) fn rules(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let file = scene.fleet.rules_file();
    let (one, other) = (rules_text(LIMIT), rules_text(LIMIT_OTHER));
    let huge = format!("{one}# {}\n", "x".repeat(HUGE));
    let (truncated, _) = one.split_at(one.len() / 2);
    let until = Instant::now() + scene.settings.time;
    let mut rounds = 0;
    loop {
        for text in [&other, "version: 1\nrules: [", &one, &huge, &other, truncated] {
            replace(&file, text)?;
            sleep(FLAP);
        }
        fs::remove_file(&file)?;
        sleep(FLAP);
        replace(&file, &one)?;
        sleep(FLAP);
        rounds += 1;
        if Instant::now() > until {
            break;
        }
    }
    let (replaced, refused) = (scene.fleet.events("rules_replaced"), scene.fleet.events("rules_refused"));
    let proof = format!("{rounds} rounds, rules replaced {replaced} and refused {refused} times");
    Ok(Happened::now(really(replaced > 0 && refused > 0, proof)?))
}

fn rules_text(closed: u64) -> String {
    traffic::rules(closed, ADDRESSES_MAX)
}
