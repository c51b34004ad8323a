//! Commands and round trips to Redis for a batch, counted by a relay in between.

use std::time::Duration;

use crate::Fallible;
use crate::events::Events;
use crate::figures::{number, short};
use crate::function::Function;
use crate::options::Options;
use crate::process::Process;
use crate::relay::Backfill;
use crate::report::Report;
use crate::server::Server;
use crate::table::Table;

const INVOCATIONS: usize = 20;

/// As many records as one run of a script takes.
const RECORDS_A_RUN: usize = 64;

pub(crate) fn run(options: &Options, functions: &[Function], report: &mut Report) -> Fallible<()> {
    let mut server = Server::start(&[])?;
    let relay = Backfill::start(server.port, Duration::ZERO)?;
    let mut table = Table::new(&[
        "batch",
        "function",
        "round trips",
        "commands",
        "duplicates, round trips",
        "duplicates, commands",
    ]);
    for &batch in &options.sizes {
        for function in functions.iter().filter(|function| function.largest_batch >= batch) {
            eprintln!("round trips, batches of {batch}: {}", function.name);
            server.flush()?;
            let settings = [("REDIS_URL", &*relay.url()), ("BATCH_CONCURRENCY", &*batch.to_string())];
            let mut process = Process::start(function, &settings)?;
            let mut events = Events::new(batch, options.body);
            process.invoke(&events.take(2))?;
            let events = events.take(INVOCATIONS);
            let mut count = || -> Fallible<(f64, f64)> {
                let before = relay.counts();
                process.invoke(&events)?;
                let after = relay.counts();
                let each = |after, before| number(after - before) / number(INVOCATIONS);
                Ok((each(after.round_trips, before.round_trips), each(after.commands, before.commands)))
            };
            let (new, duplicates) = (count()?, count()?);
            let figures = [new.0, new.1, duplicates.0, duplicates.1].map(short);
            let [trips, commands, duplicate_trips, duplicate_commands] = figures;
            let size = batch.to_string();
            table.row([size, function.name.clone(), trips, commands, duplicate_trips, duplicate_commands]);
            // A larger batch takes several runs of a script, which are pipelined.
            if function.name == "noop" && batch <= RECORDS_A_RUN {
                report.at_most(&format!("`noop`, round trips to Redis for a batch of {batch}"), new.0, 2.0);
            }
        }
    }
    report.table("Round trips and commands to Redis for a batch; a pipeline is one round trip", table);
    Ok(())
}
