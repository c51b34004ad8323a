//! `check-history DIRECTORY` checks the history files in a directory. Prints the verdict, and ends with an error if
//! anything is wrong.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use history::{Allowances, History, Report};

/// What the torture saw from outside of the functions, as JSON.
const OUTSIDE: &str = "outside.json";

fn main() -> io::Result<ExitCode> {
    let Some(directory) = env::args().nth(1) else {
        eprintln!("usage: check-history DIRECTORY");
        return Ok(ExitCode::FAILURE);
    };
    let directory = Path::new(&directory);
    let history = History::read(directory)?;
    let report = match fs::read(directory.join(OUTSIDE)) {
        Ok(outside) => Report::of_functions(&history, &serde_json::from_slice(&outside)?, Allowances::REAL),
        Err(_) => Report::of_calls(&history, Allowances::REAL),
    };
    println!("{report}");
    report.faults().for_each(|fault| println!("{fault}"));
    Ok(if report.faults().next().is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
