//! What a completed record occupies in Redis.

use std::thread::sleep;
use std::time::Duration;

use crate::Fallible;
use crate::events::Events;
use crate::figures::{number, short};
use crate::function::Function;
use crate::options::Options;
use crate::process::Process;
use crate::report::Report;
use crate::server::Server;
use crate::table::Table;

/// Redis's two tables of keys are then three quarters full, as they are on average: 65,536 slots of
/// 8 bytes each, 21 bytes a record.
const RECORDS: usize = 50_000;

const BATCH: usize = 1_000;

pub(crate) fn run(_options: &Options, functions: &[Function], report: &mut Report) -> Fallible<()> {
    let mut server = Server::start(&[])?;
    let mut table = Table::new(&["function", "bytes a record"]);
    for function in functions {
        eprintln!("memory: {}", function.name);
        let bytes = bytes_a_record(function, &mut server)?;
        table.row([function.name.clone(), short(bytes)]);
        if function.name == "noop" {
            report.at_most("`noop`, Redis memory per completed record, bytes", bytes, 220.0);
        }
    }
    report.table("Redis memory per completed record: an id of 36 characters as key, a result of 24 bytes", table);
    Ok(())
}

fn bytes_a_record(function: &Function, server: &mut Server) -> Fallible<f64> {
    server.flush()?;
    let settings = [("REDIS_URL", &*server.url()), ("BATCH_CONCURRENCY", &*BATCH.to_string())];
    let mut process = Process::start(function, &settings)?;
    // The small body is nothing to Redis. The first event brings the connection and the scripts.
    let mut events = Events::new(BATCH, 100);
    process.invoke(&events.take(1))?;
    server.flush()?;
    let before = settled(server)?;
    process.invoke(&events.take(RECORDS / BATCH))?;
    let after = settled(server)?;
    Ok((after - before) / number(server.records()?))
}

/// The memory in use, once buffers have shrunk and the tables of keys are no longer moved.
fn settled(server: &mut Server) -> Fallible<f64> {
    let mut last = server.memory()?;
    loop {
        // Longer than the two seconds after which Redis gives back the buffers of an idle client.
        sleep(Duration::from_millis(2_500));
        let now = server.memory()?;
        // A page of the server's own bookkeeping may come and go.
        if (now - last).abs() < 4096.0 {
            return Ok(now);
        }
        last = now;
    }
}
