//! Which kinds of evidence find which removals.

use std::collections::BTreeMap;
use std::error::Error;

use crate::copy::Copy;
use crate::measure::{KINDS, kinds_that_find};

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

/// The folder below `src` that the file is in.
fn module(file: &str) -> &str {
    let depth = if file.starts_with("src/stores/redis") { 2 } else { 1 };
    let end = file.match_indices('/').nth(depth).map_or(file.len(), |(at, _)| at);
    file[..end].trim_end_matches(".rs")
}
