//! `check-history DIRECTORY` checks the history files in a directory. Prints the verdict, and ends with an error if
//! anything is wrong.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use history::{Allowances, History, Received, Report};

/// What was seen from outside of the processes, as JSON.
const OUTSIDE: &str = "outside.json";

/// What the webhook and the queue of the torture have seen, as JSON.
const RECEIVED: &str = "received.json";

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
    let mut faults: Vec<_> = report.faults().collect();
    if let Ok(received) = fs::read(directory.join(RECEIVED)) {
        let received: Received = serde_json::from_slice(&received)?;
        faults.extend(received.faults(&history));
    }
    println!("{report}");
    for fault in &faults {
        println!("{fault}");
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
