//! The simulation is repeatable, it finds removed guards, its Redis passes the suite of stores, and some seeds pass.

#![cfg(target_os = "linux")]

mod conformance;
mod postgres;
mod seeds;

use std::process::Command;

/// What a run in a process of its own prints, and whether nothing is wrong.
fn simulate(arguments: &[&str]) -> (String, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_simulate")).args(arguments).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}
