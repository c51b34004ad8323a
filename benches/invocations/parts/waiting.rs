//! 1,000 messages of 1 ms work, 100 at once: beside the ideal, and beside the floor with the same
//! work.

use crate::Fallible;
use crate::figures::{median, ms, short};
use crate::function::Function;
use crate::measure::new_messages;
use crate::options::Options;
use crate::process::Process;
use crate::report::Report;
use crate::server::Server;
use crate::table::Table;

const BATCH: usize = 1_000;

const AT_ONCE: &str = "100";

/// Ten times a hundred messages of one millisecond.
const IDEAL_MS: f64 = 10.0;

pub(crate) fn run(options: &Options, _functions: &[Function], report: &mut Report) -> Fallible<()> {
    let mut server = Server::start(&[])?;
    let functions = [
        Function::example("waiting")?.with("WORK_MS", "1"),
        Function::example("floor")?.with("WORK_MS", "1"),
        Function::example("floor")?,
    ];
    let mut times: [Vec<f64>; 3] = Default::default();
    for at in 0..options.rounds {
        eprintln!("waiting, round {} of {}", at + 1, options.rounds);
        for (function, times) in functions.iter().zip(&mut times) {
            server.flush()?;
            let settings = [("REDIS_URL", &*server.url()), ("BATCH_CONCURRENCY", AT_ONCE)];
            let mut process = Process::start(function, &settings)?;
            let (invocations, _) = new_messages(&mut process, BATCH, options.body, options.seconds)?;
            times.push(median(invocations.times.iter().copied().map(ms)));
        }
    }
    let [ours, control, floor] = times;
    let ratio = |ideal: &dyn Fn(usize) -> f64| median(ours.iter().enumerate().map(|(at, ours)| ours / ideal(at)));
    let to_ideal = ratio(&|at| IDEAL_MS + floor[at]);
    let to_control = ratio(&|at| control[at]);
    let all = |times: &[f64]| median(times.iter().copied());
    let mut table = Table::new(&["function", "p50 ms"]);
    table.row(["ours, with the work".to_owned(), short(all(&ours))]);
    table.row(["the floor, with the work".to_owned(), short(all(&control))]);
    table.row(["10 ms, and the floor without work".to_owned(), short(IDEAL_MS + all(&floor))]);
    report.table("1,000 messages of 1 ms work, 100 at once", table);
    report.at_most("1,000 messages of 1 ms work, 100 at once, against 10 ms and the floor", to_ideal, 1.15);
    report.at_most("the same, against the floor with the same work", to_control, 1.15);
    Ok(())
}
