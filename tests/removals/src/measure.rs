//! Runs the checks of one kind of evidence without each condition.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::checks::{Check, Kind, for_each_item};
use crate::condition::Condition;
use crate::copy::Copy;

/// What one kind of evidence says of a removed condition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub number: u32,
    /// Number of checks that reach it.
    pub reached: usize,
    /// The check that fails without it.
    pub found_by: Option<String>,
}

/// The kinds of evidence.
pub(crate) const KINDS: [&str; 5] = ["tests", "simulation", "torture", "http", "inbox"];

/// Measures one of so many conditions in these files, or in all, that were not measured yet and that fewer than two
/// other kinds find.
pub(crate) fn measure(copy: &Copy, name: &str, every: u32, files: &[&str]) -> Result<(), Box<dyn Error>> {
    let is_in_files =
        |condition: &Condition| files.is_empty() || files.iter().any(|file| condition.file.starts_with(file));
    if !copy.conditions.iter().any(is_in_files) {
        return Err(format!("nothing is measured in {files:?}: name files or folders of the library").into());
    }
    let kind = Kind::named(copy, name)?;
    let file = copy.directory.join(format!("{name}.jsonl"));
    let known: BTreeSet<_> = verdicts(copy, name)?.iter().map(|verdict| verdict.number).collect();
    let found = kinds_that_find(copy)?;
    let is_due = |condition: &&Condition| {
        condition.number.is_multiple_of(every)
            && !known.contains(&condition.number)
            && found.get(&condition.number).is_none_or(|kinds| kinds.len() < 2)
            && is_in_files(condition)
    };
    let due: Vec<_> = copy.conditions.iter().filter(is_due).collect();
    let log = Mutex::new(OpenOptions::new().append(true).create(true).open(&file)?);
    for_each_item(&due, kind.workers, |_, condition| {
        let verdict = kind.judge(condition.number);
        println!("{condition} → {}", verdict.found_by.as_deref().unwrap_or("not found"));
        let line = serde_json::to_string(&verdict).expect("it has no keys that are no text") + "\n";
        let mut log = log.lock().expect("no worker panics");
        log.write_all(line.as_bytes()).expect("the file can be written");
    });
    Ok(())
}

/// The verdicts of the kind with this name.
pub(crate) fn verdicts(copy: &Copy, name: &str) -> Result<Vec<Verdict>, Box<dyn Error>> {
    let lines = fs::read_to_string(copy.directory.join(format!("{name}.jsonl"))).unwrap_or_default();
    Ok(lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// The kinds that find each condition.
pub(crate) fn kinds_that_find(copy: &Copy) -> Result<BTreeMap<u32, Vec<&'static str>>, Box<dyn Error>> {
    let mut found: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for kind in KINDS {
        for verdict in verdicts(copy, kind)?.iter().filter(|verdict| verdict.found_by.is_some()) {
            found.entry(verdict.number).or_default().push(kind);
        }
    }
    Ok(found)
}

impl Kind {
    /// Runs the checks that reach it, the quickest first, until one fails.
    fn judge(&self, number: u32) -> Verdict {
        let mut checks: Vec<&Check> = self.checks.iter().filter(|check| check.reached.contains(&number)).collect();
        checks.sort_by_key(|check| check.lasts);
        let removed = number.to_string();
        let finds = |check: &&&Check| (0..self.failures).all(|_| check.finds(&removed));
        let found_by = checks.iter().find(finds).map(|check| check.name.clone());
        Verdict { number, reached: checks.len(), found_by }
    }
}
