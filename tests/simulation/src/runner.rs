//! Runs one seed in this process, or many, each in a process of its own.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{env, panic, thread};

use history::guards;

use crate::trace::event;
use crate::{deterministic, world};

/// Longest time of a seed, with its verdict, s. Usual ones take less than a second.
const LIMIT_S: u32 = 300;

/// Runs a seed and prints the verdict. Returns whether nothing is wrong.
pub fn one(seed: u64, prints: bool) -> bool {
    deterministic::end_after(LIMIT_S);
    // Works panic on purpose. A panic of the simulation ends the process with its message.
    panic::set_hook(Box::new(|panic| event(|| panic.to_string())));
    let run = world::run(seed, prints);
    let verdict = run.verdict();
    let report = &verdict.report;
    let (events, hash) = run.trace;
    println!(
        "seed {seed}: {events} events, hash {hash:016x}, {} messages, {} calls, {} without an answer, {} faults injected, \
         {} effects, {} repeated, {} writes lost, {} dead letters, {} HTTP requests",
        run.messages.len(),
        report.operations,
        report.unanswered,
        run.injected,
        report.effects,
        report.repeated,
        report.lost_writes.len(),
        run.letters.len(),
        run.after.http.as_ref().map_or(0, |http| http.seen.kinds().count()),
    );
    if prints {
        println!("{report}");
    }
    for fault in &verdict.faults {
        println!("WRONG {fault}");
    }
    verdict.faults.is_empty()
}

/// Runs these seeds, and prints those that fail. Returns whether none does.
pub fn many(first: u64, count: u64) -> bool {
    let began = Instant::now();
    let failed = failures(first, count, None, usize::MAX);
    for (seed, output) in &failed {
        println!("{output}SEED={seed} make simulate repeats it\n");
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{count} seeds from {first} in {seconds:.0} s, {} failed {:?}", failed.len(), failed.keys());
    failed.is_empty()
}

/// Runs these seeds without each guard of the scripts whose name begins so, until a few fail. Returns whether each is
/// found.
pub fn guards(name: &str, first: u64, count: u64) -> bool {
    let mut all_found = true;
    for (what, ..) in guards::all().filter(|(what, ..)| what.starts_with(name)) {
        let failed = failures(first, count, Some(what), 1);
        let found = failed.first_key_value().map_or("not found".to_owned(), |(seed, output)| {
            let why = output.lines().find_map(|line| line.strip_prefix("WRONG ")).unwrap_or("no verdict");
            format!("seed {seed}: {}", why.chars().take(100).collect::<String>())
        });
        println!("{what:<70} {found}");
        all_found &= !failed.is_empty();
    }
    all_found
}

/// The first seeds that fail, and what they print. Each runs in a process of its own.
fn failures(first: u64, count: u64, without: Option<&str>, enough: usize) -> BTreeMap<u64, String> {
    let (next, failed) = (AtomicU64::new(first), Mutex::new(BTreeMap::new()));
    let binary = env::current_exe().expect("this process has a binary");
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || failed.lock().unwrap_or_else(PoisonError::into_inner).len() >= enough {
                return;
            }
            let mut command = Command::new(&binary);
            command.arg(seed.to_string()).args(without.map(|guard| ["--without", guard]).iter().flatten());
            let output = command.output().expect("the binary can be started");
            if !output.status.success() {
                let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
                let text = format!("{}seed {seed}: {}\n", texts.concat(), output.status);
                failed.lock().unwrap_or_else(PoisonError::into_inner).insert(seed, text);
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}
