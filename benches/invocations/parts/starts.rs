//! The time from the start of a process to its first request for an event, and peak memory at batches of ten.

use benches::Fallible;
use benches::figures::{median, ms, percentile, short};
use benches::server::Server;
use benches::table::Table;

use crate::events::Events;
use crate::function::Function;
use crate::options::Options;
use crate::process::Process;
use crate::report::Report;

/// Starts per round.
const STARTS: usize = 6;

/// Invocations before peak memory is read, so that it includes garbage before its collection.
const INVOCATIONS: usize = 500;

struct Starts {
    function: Function,
    /// Milliseconds.
    times: Vec<f64>,
    /// MiB.
    peaks: Vec<f64>,
}

pub(crate) fn run(options: &Options, functions: &[Function], report: &mut Report) -> Fallible<()> {
    let server = Server::start(&[])?;
    let functions = std::iter::once(Function::bare()?).chain(functions.iter().cloned());
    let mut all: Vec<_> = functions.map(|function| Starts { function, times: Vec::new(), peaks: Vec::new() }).collect();
    for index in 0..options.rounds {
        eprintln!("starts, round {} of {}", index + 1, options.rounds);
        for _ in 0..STARTS {
            for starts in &mut all {
                starts.times.push(ms(start(&starts.function, &server)?.started_in));
            }
        }
        for starts in &mut all {
            server.flush()?;
            let mut process = start(&starts.function, &server)?;
            process.invoke(&Events::new(10, options.body).take(INVOCATIONS))?;
            starts.peaks.push(process.peak_memory().map_or(f64::NAN, |kib| kib / 1024.0));
        }
    }
    let bare = (all[0].time(), all[0].peak());
    let mut table =
        Table::new(&["function", "start p50 ms", "start p99 ms", "bare = 1", "peak MiB, batch of 10", "bare = 1"]);
    for starts in &all {
        table.row([
            starts.function.name.clone(),
            short(starts.time()),
            short(percentile(99, starts.times.iter().copied())),
            short(starts.time() / bare.0),
            short(starts.peak()),
            short(starts.peak() / bare.1),
        ]);
    }
    report.table("Process start to the first `/next`, and peak memory", table);
    if let Some(noop) = all.iter().find(|starts| starts.function.name == "noop") {
        let measured = format!("{} times, {} ms more", short(noop.time() / bare.0), short(noop.time() - bare.0));
        let met = noop.time() <= 2.0 * bare.0 || noop.time() <= bare.0 + 5.0;
        report.target("`noop` against bare, start to the first `/next`", measured, "≤ 2 times, or ≤ 5 ms more", met);
        report.at_most("`noop` against bare, peak memory at a batch of 10", noop.peak() / bare.1, 4.0);
    }
    Ok(())
}

fn start(function: &Function, server: &Server) -> Fallible<Process> {
    Process::start(function, &[("REDIS_URL", &server.url()), ("BATCH_CONCURRENCY", "10")])
}

impl Starts {
    fn time(&self) -> f64 {
        median(self.times.iter().copied())
    }

    fn peak(&self) -> f64 {
        median(self.peaks.iter().copied())
    }
}
