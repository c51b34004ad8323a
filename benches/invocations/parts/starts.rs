//! From the start of a process to its first request for an event, and the memory of ten messages.

use crate::Fallible;
use crate::events::Events;
use crate::figures::{median, ms, percentile, short};
use crate::function::Function;
use crate::options::Options;
use crate::process::Process;
use crate::report::Report;
use crate::server::Server;
use crate::table::Table;

/// Starts in a round: one takes milliseconds, and depends on what else the machine does.
const STARTS: usize = 6;

/// Invocations before the peak of the memory is taken: a collector of garbage has shown its habits.
const INVOCATIONS: usize = 500;

struct Starts {
    function: Function,
    /// Milliseconds.
    times: Vec<f64>,
    /// MiB.
    peaks: Vec<f64>,
}

pub(crate) fn run(options: &Options, functions: &[Function], report: &mut Report) -> Fallible<()> {
    let mut server = Server::start(&[])?;
    let functions = std::iter::once(Function::example("bare")?).chain(functions.iter().cloned());
    let mut starts: Vec<_> =
        functions.map(|function| Starts { function, times: Vec::new(), peaks: Vec::new() }).collect();
    for at in 0..options.rounds {
        eprintln!("starts, round {} of {}", at + 1, options.rounds);
        for _ in 0..STARTS {
            for one in &mut starts {
                one.times.push(ms(start(&one.function, &server)?.started_in));
            }
        }
        for one in &mut starts {
            server.flush()?;
            let mut process = start(&one.function, &server)?;
            process.invoke(&Events::new(10, options.body).take(INVOCATIONS))?;
            one.peaks.push(process.peak_memory().map_or(f64::NAN, |kib| kib / 1024.0));
        }
    }
    let bare = (starts[0].time(), starts[0].peak());
    let mut table =
        Table::new(&["function", "start p50 ms", "start p99 ms", "bare = 1", "peak MiB, batch of 10", "bare = 1"]);
    for one in &starts {
        table.row([
            one.function.name.clone(),
            short(one.time()),
            short(percentile(99, one.times.iter().copied())),
            short(one.time() / bare.0),
            short(one.peak()),
            short(one.peak() / bare.1),
        ]);
    }
    report.table("Process start to the first `/next`, and peak memory", table);
    if let Some(noop) = starts.iter().find(|one| one.function.name == "noop") {
        let measured = format!("{} times, {} ms more", short(noop.time() / bare.0), short(noop.time() - bare.0));
        let holds = noop.time() <= 2.0 * bare.0 || noop.time() <= bare.0 + 5.0;
        report.claim("`noop` against bare, start to the first `/next`", measured, "≤ 2 times, or ≤ 5 ms more", holds);
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
