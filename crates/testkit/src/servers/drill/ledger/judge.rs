//! Compares the answers that clients received with the entries of the ledger.

use std::collections::BTreeMap;

use serde_json::Value;

use super::LedgerFigures;
use super::caller::{Answers, CALLERS, LIMIT, LIMITED};
use super::scene::Scene;
use crate::drill::DrillError;

/// The number of the client whose charges are folded into totals.
const TOTALS: usize = 4;

#[derive(Clone, Copy, Default)]
struct Account {
    used: u64,
    /// Entries that posted units, less those that took them back.
    entries: i64,
}

/// Fills in the figures, and lists what is wrong.
pub(super) fn judge(
    scene: &Scene,
    answers: &[Answers],
    figures: &mut LedgerFigures,
) -> Result<(), DrillError> {
    let verified = scene.json(&["ledger", "verify"])?;
    if verified["intact"] != true {
        figures.problems.push(format!("the ledger does not verify: {verified}"));
    }
    let writers = verified["writers"].as_array().map_or(&[][..], Vec::as_slice);
    figures.blocks = writers.iter().filter_map(|writer| writer["blocks"].as_u64()).sum();
    let accounts = accounts(scene, figures)?;
    for (number, told) in answers.iter().enumerate() {
        figures.acknowledged += told.acknowledged;
        figures.units += told.units;
        figures.repeated += told.repeated;
        figures.by_policy += told.by_policy;
        let account = accounts.get(&format!("c{number}")).copied().unwrap_or_default();
        if account.used != told.units {
            let Account { used, .. } = account;
            figures
                .problems
                .push(format!("c{number}: {} units acknowledged, {used} in the ledger", told.units));
        }
        if number != TOTALS && account.entries != told.acknowledged as i64 {
            let (told, entries) = (told.acknowledged, account.entries);
            figures.problems.push(format!("c{number}: {told} checks acknowledged, {entries} entries"));
        }
    }
    if answers.len() != CALLERS + 1 || figures.repeated == 0 {
        figures.problems.push("no fault hit a check in flight: the drill proves nothing".to_owned());
    }
    figures.excess = answers.get(LIMITED).map_or(0, |told| told.units.saturating_sub(LIMIT));
    Ok(())
}

/// Returns the accounts by rule: balances by `usage`, entries by `export`.
fn accounts(scene: &Scene, figures: &mut LedgerFigures) -> Result<BTreeMap<String, Account>, DrillError> {
    let mut accounts: BTreeMap<String, Account> = BTreeMap::new();
    let usage = scene.json(&["ledger", "usage"])?;
    for found in usage["accounts"].as_array().map_or(&[][..], Vec::as_slice) {
        let rule = found["rule"].as_str().unwrap_or_default().to_owned();
        accounts.entry(rule).or_default().used += found["used"].as_u64().unwrap_or(0);
    }
    for line in scene.command(&["ledger", "export"])?.lines() {
        let entry: Value = serde_json::from_str(line)?;
        figures.entries += 1;
        let rule = entry["rule"].as_str().unwrap_or_default().to_owned();
        accounts.entry(rule).or_default().entries += entry["posted"].as_i64().unwrap_or(0).signum();
    }
    Ok(accounts)
}
