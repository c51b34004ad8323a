//! Runs one seed in this process, or many, each in a process of its own.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{env, panic, thread};

use crate::world;

/// Runs a seed and prints the verdict. Returns whether nothing is wrong.
pub fn one(seed: u64, prints: bool) -> bool {
    if !prints {
        panic::set_hook(Box::new(|_| ()));
    }
    let run = world::run(seed, prints);
    let verdict = run.verdict();
    let report = &verdict.report;
    let (events, hash) = run.trace;
    println!(
        "seed {seed}: {events} events, hash {hash:016x}, {} messages, {} calls, {} without an answer, {} faults injected, \
         {} effects, {} repeated, {} writes lost, {} dead letters",
        run.messages.len(),
        report.operations,
        report.unanswered,
        run.injected,
        report.effects,
        report.repeated,
        report.lost_writes.len(),
        run.letters.len(),
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
    let (next, failed) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let binary = env::current_exe().expect("this process has a binary");
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return;
            }
            let output = Command::new(&binary).arg(seed.to_string()).output().expect("the binary can be started");
            if !output.status.success() {
                println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                println!("SEED={seed} make simulate repeats it\n");
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(seed);
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = began.elapsed().as_secs_f64();
    println!("{count} seeds from {first} in {seconds:.0} s, {} failed {failed:?}", failed.len());
    failed.is_empty()
}
