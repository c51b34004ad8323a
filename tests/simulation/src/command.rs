//! The command line of `simulate`.

use std::env;
use std::process::ExitCode;

use history::guards;

use crate::{redis, runner};

/// Runs the command that the arguments of this process name.
pub fn run() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().ok();
    let is_right = match arguments[..] {
        ["--seeds", first, count] => number(first).zip(number(count)).map(|(first, count)| runner::many(first, count)),
        ["--guards", name, first, count] => {
            number(first).zip(number(count)).map(|(first, count)| runner::guards(name, first, count))
        }
        [seed, "--without", guard] => number(seed).zip(guards::named(guard)).map(|(seed, guard)| {
            redis::remove(guard);
            runner::one(seed, false)
        }),
        [seed] => number(seed).map(|seed| runner::one(seed, false)),
        [seed, "--trace"] => number(seed).map(|seed| runner::one(seed, true)),
        _ => None,
    };
    match is_right {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            eprintln!("usage: simulate SEED [--trace | --without GUARD] | simulate --seeds FIRST COUNT");
            eprintln!("       simulate --guards NAME FIRST COUNT");
            ExitCode::FAILURE
        }
    }
}
