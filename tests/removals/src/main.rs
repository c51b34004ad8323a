//! Removes each condition of the library, one at a time, and says which kinds of evidence find it. The mutants of
//! cargo-mutants are measured with the tests in the same way.
//!
//! A copy of the project is built once, with each removal behind a switch that an environment variable turns on. Then
//! the checks of a kind of evidence run without each condition that they reach, until one fails.
//!
//! - `condition`: what is removed
//! - `conditions`: finds the conditions of a file
//! - `mutants`: lists the mutants, and finds their code
//! - `source`: the text of a file by its lines
//! - `syntax`: what the finder asks of the code
//! - `switches`: writes the switches into the text of a file
//! - `copy`: the copy of the project, without the removals that do not compile
//! - `checks`: the checks of each kind of evidence
//! - `measure`: runs them without each condition
//! - `report`: which kinds find which removals

#![allow(clippy::wildcard_enum_match_arm, reason = "the enums of syn have a variant for each syntax of Rust")]

mod checks;
mod condition;
mod conditions;
mod copy;
mod measure;
mod mutants;
mod report;
mod source;
mod switches;
mod syntax;

use std::env;
use std::error::Error;
use std::process::ExitCode;

use copy::Copy;

/// Where the copy with the removed conditions is.
const REMOVALS: &str = "target/removals";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["measure", kind, every, files @ ..] => {
            measure::measure(&Copy::make(REMOVALS, None)?, kind, every.parse()?, files)?;
        }
        ["report", every] => report::print(&Copy::made(REMOVALS)?, every.parse()?)?,
        ["mutants", every, files @ ..] => {
            let copy = Copy::make("target/mutants", Some(mutants::list()?))?;
            measure::measure(&copy, "tests", every.parse()?, files)?;
            return report::survivors(&copy);
        }
        _ => {
            eprintln!("usage: removals measure tests|simulation|torture|http|inbox EVERY [FILE...]");
            eprintln!("       removals report EVERY");
            eprintln!("       removals mutants EVERY [FILE...]");
            eprintln!("EVERY is 1 for all of them, or 20 for a sample of each twentieth");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
