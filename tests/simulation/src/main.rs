//! `simulate SEED [--trace]` runs a seed, `simulate --seeds FIRST COUNT` runs many, on all processors.
//!
//! `simulate SEED --without GUARD` runs a seed without a guard of the scripts, and `simulate --guards NAME FIRST COUNT`
//! runs seeds without each guard whose name starts with `NAME`.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    simulation::command::run()
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("simulate replaces functions of libc, which works on Linux only");
    ExitCode::FAILURE
}
