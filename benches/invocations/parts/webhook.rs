//! The binary `idempotent-sqs`: ten messages, a webhook that takes 10 ms, and a round trip to Redis of 1 ms.

use std::time::{Duration, Instant};

use benches::Fallible;
use benches::figures::{median, ms, percentile, short};
use benches::server::Server;
use benches::table::Table;

use crate::function::Function;
use crate::interleave::measure_new;
use crate::options::Options;
use crate::process::Process;
use crate::proxy::Proxy;
use crate::report::Report;
use crate::webhook::Webhook;

const BATCH: usize = 10;

/// The time of the webhook.
const WORK: Duration = Duration::from_millis(10);

/// Typical within an availability zone, or a little more.
const ROUND_TRIP: Duration = Duration::from_millis(1);

/// The webhook, two round trips, and 1.5 ms for the rest.
const TARGET_MS: f64 = 10.0 + 2.0 + 1.5;

const PINGS: usize = 200;

pub(crate) fn run(options: &Options, _functions: &[Function], report: &mut Report) -> Fallible<()> {
    let server = Server::start(&[])?;
    let proxy = Proxy::start(server.port, ROUND_TRIP)?;
    let webhook = Webhook::start(WORK)?;
    let function = Function::webhook(&webhook)?;
    let mut times = Vec::new();
    for index in 0..options.rounds {
        eprintln!("webhook, round {} of {}", index + 1, options.rounds);
        server.flush()?;
        let settings = [("REDIS_URL", &*proxy.url()), ("BATCH_CONCURRENCY", "10")];
        let mut process = Process::start(&function, &settings)?;
        let before = webhook.calls();
        let (invocations, messages) = measure_new(&mut process, BATCH, options.body, options.seconds)?;
        let called = webhook.calls() - before;
        if called != messages {
            return Err(format!("{called} calls of the webhook for {messages} messages").into());
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
    row("round trip to Redis, alone", &pings(&proxy)?);
    report.table("The function, 10 messages, a webhook that answers after 10 ms, 1 ms to Redis", table);
    report.at_most("10 messages, a webhook of 10 ms, 1 ms to Redis: ms", measured, TARGET_MS);
    Ok(())
}

/// Milliseconds of round trips through the proxy.
fn pings(proxy: &Proxy) -> Fallible<Vec<f64>> {
    let mut connection = redis::Client::open(proxy.url())?.get_connection()?;
    let ping = |_| {
        let start = Instant::now();
        let () = redis::cmd("PING").query(&mut connection)?;
        Ok(ms(start.elapsed()))
    };
    (0..PINGS).map(ping).collect()
}
