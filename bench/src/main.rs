//! Measures Tollgate and its peers in one interleaved run and writes the result as JSON.
//!
//! Progress goes to standard error, the report to standard output. `cargo xtask bench` turns it into tables and pictures.

mod allocation;
mod contender;
mod instructions;
mod ledger;
mod library;
mod redis;
mod resp;
mod rounds;
mod script;
mod serve;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use instructions::Counted;

/// The suites.
#[derive(Clone, Copy, ValueEnum)]
enum Suite {
    /// Libraries that decide inside one process.
    Library,
    /// Scripts in Redis.
    Redis,
    /// Servers that decide over the network.
    Serve,
    /// The ledger in SQLite and PostgreSQL.
    Ledger,
}

#[derive(Parser)]
struct Arguments {
    #[arg(long)]
    suite: Suite,
    /// How often every contender runs every row. Bounded, because the limits admit only a certain number of decisions.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=15))]
    rounds: u32,
    /// Few keys and few decisions: shows that the bench works, and nothing else.
    #[arg(long)]
    quick: bool,
    /// Measures nothing and runs only this `row/contender`, for callgrind.
    #[arg(long, hide = true)]
    counted: Option<Counted>,
    #[command(flatten)]
    programs: serve::Programs,
}

fn main() -> Result<()> {
    let Arguments { suite, rounds, quick, counted, programs } = Arguments::parse();
    let report = match suite {
        Suite::Library => {
            let effort = if quick { rounds::Effort::quick(rounds) } else { rounds::Effort::full(rounds) };
            let stages = library::stages(&effort);
            if let Some(counted) = counted {
                return instructions::run_counted(&stages, &counted);
            }
            rounds::run("library", &stages, &effort)?
        }
        Suite::Redis => redis::run(rounds, quick)?,
        Suite::Serve => serve::run(&programs, rounds, quick)?,
        Suite::Ledger => ledger::run(rounds, quick)?,
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
