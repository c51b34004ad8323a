//! Which kinds of evidence find which removals.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

use crate::copy::Copy;
use crate::measure::{KINDS, kinds_that_find, verdicts};

/// Prints the removals that fewer than two kinds find, and how many of each module are found by what was measured, of
/// one of so many conditions.
pub(crate) fn print(copy: &Copy, every: u32) -> Result<(), Box<dyn Error>> {
    let found = kinds_that_find(copy)?;
    let mut modules: BTreeMap<&str, [usize; 2 + KINDS.len()]> = BTreeMap::new();
    for condition in copy.conditions.iter().filter(|condition| condition.number.is_multiple_of(every)) {
        let kinds = found.get(&condition.number).map_or(&[][..], Vec::as_slice);
        if kinds.len() < 2 {
            println!("{condition} → {kinds:?}");
        }
        let [all, by_two, by_each @ ..] = modules.entry(module(&condition.file)).or_default();
        *all += 1;
        *by_two += usize::from(kinds.len() > 1);
        for (kind, count) in KINDS.iter().zip(by_each) {
            *count += usize::from(kinds.contains(kind));
        }
    }
    println!("| module | removals | by two kinds | {} |", KINDS.join(" | "));
    println!("|{}", "---|".repeat(3 + KINDS.len()));
    for (module, counts) in modules {
        println!("| `{module}` | {} |", counts.map(|count| count.to_string()).join(" | "));
    }
    Ok(())
}

/// Prints the mutants that no test finds. Fails if there is one.
pub(crate) fn survivors(copy: &Copy) -> Result<ExitCode, Box<dyn Error>> {
    let verdicts: BTreeMap<_, _> =
        verdicts(copy, "tests")?.into_iter().map(|verdict| (verdict.number, verdict.found_by.is_some())).collect();
    let survivors = || copy.conditions.iter().filter(|mutant| verdicts.get(&mutant.number) == Some(&false));
    for mutant in survivors() {
        println!("{mutant} survives");
    }
    println!("{} of {} mutants were run, {} survive", verdicts.len(), copy.conditions.len(), survivors().count());
    println!("those without a switch, most of which do not compile: {}", copy.directory.join("left-out").display());
    Ok(if survivors().next().is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The folder below `src` that the file is in.
fn module(file: &str) -> &str {
    let depth = if file.starts_with("src/stores/redis") { 2 } else { 1 };
    let end = file.match_indices('/').nth(depth).map_or(file.len(), |(at, _)| at);
    file[..end].trim_end_matches(".rs")
}
