//! Commands and round trips to Redis per batch, counted by a proxy.

use std::time::Duration;

use benches::Fallible;
use benches::figures::{number, short};
use benches::server::Server;
use benches::table::Table;

use crate::events::Events;
use crate::function::Function;
use crate::options::Options;
use crate::process::Process;
use crate::proxy::Proxy;
use crate::report::Report;

const INVOCATIONS: usize = 20;

/// Records per script run.
const RECORDS_PER_RUN: usize = 64;

pub(crate) fn run(options: &Options, functions: &[Function], report: &mut Report) -> Fallible<()> {
    let server = Server::start(&[])?;
    let proxy = Proxy::start(server.port, Duration::ZERO)?;
    let mut table = Table::new(&[
        "batch",
        "function",
        "round trips",
        "commands",
        "duplicates, round trips",
        "duplicates, commands",
    ]);
    for &batch in &options.sizes {
        for function in functions.iter().filter(|function| function.max_batch >= batch) {
            eprintln!("round trips, batches of {batch}: {}", function.name);
            server.flush()?;
            let settings = [("REDIS_URL", &*proxy.url()), ("BATCH_CONCURRENCY", &*batch.to_string())];
            let mut process = Process::start(function, &settings)?;
            let mut events = Events::new(batch, options.body);
            process.invoke(&events.take(2))?;
            let events = events.take(INVOCATIONS);
            let mut count = || -> Fallible<(f64, f64)> {
                let before = proxy.counts();
                process.invoke(&events)?;
                let after = proxy.counts();
                let each = |after, before| number(after - before) / number(INVOCATIONS);
                Ok((each(after.round_trips, before.round_trips), each(after.commands, before.commands)))
            };
            let (new, duplicates) = (count()?, count()?);
            let figures = [new.0, new.1, duplicates.0, duplicates.1].map(short);
            let [trips, commands, duplicate_trips, duplicate_commands] = figures;
            let size = batch.to_string();
            table.row([size, function.name.clone(), trips, commands, duplicate_trips, duplicate_commands]);
            // A larger batch takes several pipelined script runs.
            if function.name == "noop" && batch <= RECORDS_PER_RUN {
                report.at_most(&format!("`noop`, round trips to Redis for a batch of {batch}"), new.0, 2.0);
            }
        }
    }
    report.table("Round trips and commands to Redis for a batch; a pipeline is one round trip", table);
    Ok(())
}
