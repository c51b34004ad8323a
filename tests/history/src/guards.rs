//! The guards of the scripts, each of which can be removed from its script to see what finds it.

#![allow(missing_docs, reason = "each name says it")]

mod acquire;
mod complete;
mod fail;
mod release;

pub const ACQUIRE: &str = include_str!("../../../lua/acquire.lua");
pub const COMPLETE: &str = include_str!("../../../lua/complete.lua");
pub const FAIL: &str = include_str!("../../../lua/fail.lua");
pub const RELEASE: &str = include_str!("../../../lua/release.lua");

/// A guard: what it ensures, its script, its code, and the code without it.
pub type Guard = (&'static str, &'static str, &'static str, &'static str);

/// All guards, by script.
pub fn all() -> impl Iterator<Item = &'static Guard> {
    [acquire::GUARDS, complete::GUARDS, fail::GUARDS, release::GUARDS].into_iter().flatten()
}

/// Matters only while Redis's clock goes back, as it does in the simulation.
pub const NEEDS_CLOCK: &str = "acquire: a fence is greater than the one before";

/// The guard whose name begins with this.
#[must_use]
pub fn named(name: &str) -> Option<&'static Guard> {
    all().find(|(what, ..)| what.starts_with(name))
}

/// The text of a script without the guard, if it is a form of the guard's script.
#[must_use]
pub fn without((_, script, code, without): &Guard, text: &str) -> String {
    // The forms differ in the first line.
    let rest = script.split_once('\n').map_or(*script, |(_, rest)| rest);
    if text.contains(rest) { text.replace(code, without) } else { text.to_owned() }
}
