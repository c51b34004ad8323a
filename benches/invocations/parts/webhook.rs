//! The function itself: ten messages, a webhook that takes its time, and a Redis that is not near.

use std::time::{Duration, Instant};

use crate::Fallible;
use crate::figures::{median, ms, percentile, short};
use crate::function::Function;
use crate::measure::new_messages;
use crate::options::Options;
use crate::process::Process;
use crate::relay::Backfill;
use crate::report::Report;
use crate::server::Server;
use crate::table::Table;
use crate::webhook::Webhook;

const BATCH: usize = 10;

/// The webhook's time.
const WORK: Duration = Duration::from_millis(10);

/// As within an availability zone, or a little more.
const ROUND_TRIP: Duration = Duration::from_millis(1);

/// The webhook, two round trips, and 1.5 ms for all else.
const BAR_MS: f64 = 10.0 + 2.0 + 1.5;

const PINGS: usize = 200;

pub(crate) fn run(options: &Options, _functions: &[Function], report: &mut Report) -> Fallible<()> {
    let mut server = Server::start(&[])?;
    let relay = Backfill::start(server.port, ROUND_TRIP)?;
    let webhook = Webhook::start(WORK)?;
    let function = Function::webhook(&webhook)?;
    let mut times = Vec::new();
    for at in 0..options.rounds {
        eprintln!("webhook, round {} of {}", at + 1, options.rounds);
        server.flush()?;
        let settings = [("REDIS_URL", &*relay.url()), ("BATCH_CONCURRENCY", "10")];
        let mut process = Process::start(&function, &settings)?;
        let before = webhook.calls();
        let (invocations, messages) = new_messages(&mut process, BATCH, options.body, options.seconds)?;
        let called = webhook.calls() - before;
        if called != messages {
            return Err(format!("{messages} messages, and the webhook was called {called} times").into());
        }
        times.extend(invocations.times.into_iter().map(ms));
    }
    let mut table = Table::new(&["what", "p50 ms", "p99 ms"]);
    let mut row = |what: &str, times: &[f64]| {
        let (p50, p99) = (median(times.iter().copied()), percentile(99, times.iter().copied()));
        table.row([what.to_owned(), short(p50), short(p99)]);
        p50
    };
    let measured = row("invocation", &times);
    row("round trip to Redis, alone", &pings(&relay)?);
    report.table("The function, 10 messages, a webhook that answers after 10 ms, 1 ms to Redis", table);
    report.at_most("10 messages, a webhook of 10 ms, 1 ms to Redis: ms", measured, BAR_MS);
    Ok(())
}

/// Milliseconds of a round trip through the relay: what it really takes.
fn pings(relay: &Backfill) -> Fallible<Vec<f64>> {
    let mut connection = redis::Client::open(relay.url())?.get_connection()?;
    let ping = |_| {
        let start = Instant::now();
        let () = redis::cmd("PING").query(&mut connection)?;
        Ok(ms(start.elapsed()))
    };
    (0..PINGS).map(ping).collect()
}
