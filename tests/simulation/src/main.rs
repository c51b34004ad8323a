//! `simulate SEED [--trace]` runs a seed, `simulate --seeds FIRST COUNT` runs many, on all processors.

use std::env;
use std::process::ExitCode;

use simulation::runner;

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().ok();
    let is_right = match arguments[..] {
        ["--seeds", first, count] => number(first).zip(number(count)).map(|(first, count)| runner::many(first, count)),
        [seed] => number(seed).map(|seed| runner::one(seed, false)),
        [seed, "--trace"] => number(seed).map(|seed| runner::one(seed, true)),
        _ => None,
    };
    match is_right {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            eprintln!("usage: simulate SEED [--trace] | simulate --seeds FIRST COUNT");
            ExitCode::FAILURE
        }
    }
}
