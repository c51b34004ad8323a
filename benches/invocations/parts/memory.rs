//! Redis memory per completed record.

use std::thread::sleep;
use std::time::Duration;

use benches::Fallible;
use benches::figures::{number, short};
use benches::server::Server;
use benches::table::Table;

use crate::events::Events;
use crate::function::Function;
use crate::options::Options;
use crate::process::Process;
use crate::report::Report;

/// The two hash tables of Redis, of keys and of expiry times, are then three quarters full, the average: 65,536 slots
/// of 8 bytes each, 21 bytes per record.
const RECORDS: usize = 50_000;

const BATCH: usize = 1_000;

pub(crate) fn run(_options: &Options, functions: &[Function], report: &mut Report) -> Fallible<()> {
    let server = Server::start(&[])?;
    let mut table = Table::new(&["function", "bytes a record"]);
    for function in functions {
        eprintln!("memory: {}", function.name);
        let bytes = bytes_per_record(function, &server)?;
        table.row([function.name.clone(), short(bytes)]);
        if function.name == "noop" {
            report.at_most("`noop`, Redis memory per completed record, bytes", bytes, 220.0);
        }
    }
    report.table("Redis memory per completed record: an id of 36 characters as key, a result of 24 bytes", table);
    Ok(())
}

fn bytes_per_record(function: &Function, server: &Server) -> Fallible<f64> {
    server.flush()?;
    let settings = [("REDIS_URL", &*server.url()), ("BATCH_CONCURRENCY", &*BATCH.to_string())];
    let mut process = Process::start(function, &settings)?;
    // Redis does not receive the body. The first event opens the connection and loads the scripts.
    let mut events = Events::new(BATCH, 100);
    process.invoke(&events.take(1))?;
    server.flush()?;
    let before = stable_memory(server)?;
    process.invoke(&events.take(RECORDS / BATCH))?;
    let after = stable_memory(server)?;
    Ok((after - before) / number(server.records()?))
}

/// The memory in use once it is stable: the buffers have shrunk and the hash tables are no longer resized.
fn stable_memory(server: &Server) -> Fallible<f64> {
    let mut last = server.memory()?;
    loop {
        // Redis shrinks the buffers of a client that is idle for two seconds.
        sleep(Duration::from_millis(2_500));
        let now = server.memory()?;
        // Internal data of the server may change by a page.
        if (now - last).abs() < 4096.0 {
            return Ok(now);
        }
        last = now;
    }
}
