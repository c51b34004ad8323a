//! One round of one function: new messages, then the same again as duplicates.

use std::sync::Arc;

use crate::Fallible;
use crate::events::Events;
use crate::figures::{median, ms, number};
use crate::function::Function;
use crate::options::Options;
use crate::process::{Invocations, Process};
use crate::server::Server;

/// A function runs for so many times the measured time before it is measured: its connection, its
/// scripts and, where there is one, its compiler are then warm.
const WARM_UP: f64 = 2.0;

/// Fewer invocations make no median.
const LEAST_INVOCATIONS: usize = 5;

/// Records in one measurement: with more the events themselves would fill the memory.
const MOST_RECORDS: usize = 200_000;

/// Bytes of all events in one measurement, for the same reason.
const MOST_BYTES: usize = 500_000_000;

pub(crate) struct Round {
    pub(crate) new: Pass,
    pub(crate) duplicates: Pass,
    /// KiB.
    pub(crate) peak_memory: Option<f64>,
}

/// Invocations of one kind.
pub(crate) struct Pass {
    /// Milliseconds of each invocation.
    pub(crate) times: Vec<f64>,
    pub(crate) records_per_s: f64,
    /// Microseconds of processor time for a record.
    pub(crate) cpu: Option<f64>,
    /// Microseconds of Redis in commands for a record.
    pub(crate) redis: f64,
    /// Microseconds of Redis on the processor for a record.
    pub(crate) redis_cpu: f64,
    /// Commands to Redis for a batch.
    pub(crate) commands: f64,
}

impl Pass {
    pub(crate) fn p50(&self) -> f64 {
        median(self.times.iter().copied())
    }
}

/// Start the function, warm it up, and measure it for about so long as the options say.
pub(crate) fn round(
    function: &Function,
    server: &mut Server,
    batch: usize,
    body: usize,
    options: &Options,
) -> Fallible<Round> {
    server.flush()?;
    let settings = [("REDIS_URL", &*server.url()), ("BATCH_CONCURRENCY", &*batch.to_string())];
    let mut process = Process::start(function, &settings)?;
    let mut source = Events::new(batch, body);
    let (events, _) = warm_up(&mut process, batch, options.seconds, |count| source.take(count))?;
    server.flush()?;
    let new = pass(&mut process, server, &events, batch)?;
    let duplicates = pass(&mut process, server, &events, batch)?;
    Ok(Round { new, duplicates, peak_memory: process.peak_memory() })
}

/// Warm a function up, and measure it for about so many seconds: the invocations, and how many
/// messages it was given in all.
pub(crate) fn new_messages(
    process: &mut Process,
    batch: usize,
    body: usize,
    seconds: f64,
) -> Fallible<(Invocations, usize)> {
    let mut events = Events::new(batch, body);
    new_events(process, batch, seconds, |count| events.take(count))
}

/// The same, with events of any kind.
pub(crate) fn new_events(
    process: &mut Process,
    batch: usize,
    seconds: f64,
    take: impl FnMut(usize) -> Vec<Arc<[u8]>>,
) -> Fallible<(Invocations, usize)> {
    let (events, before) = warm_up(process, batch, seconds, take)?;
    Ok((process.invoke(&events)?, (before + events.len()) * batch))
}

/// Warm a function up. Gives events for about so many seconds, and how many there were already.
fn warm_up(
    process: &mut Process,
    batch: usize,
    seconds: f64,
    mut take: impl FnMut(usize) -> Vec<Arc<[u8]>>,
) -> Fallible<(Vec<Arc<[u8]>>, usize)> {
    let (mut spent, mut count, mut before) = (0.0, 1, 0);
    let one = loop {
        let wall = process.invoke(&take(count))?.wall.as_secs_f64();
        before += count;
        spent += wall;
        if spent >= seconds * WARM_UP {
            break wall / number(count);
        }
        count *= 2;
    };
    let bytes = take(1)[0].len();
    let most = (MOST_RECORDS / batch).min(MOST_BYTES / bytes).max(LEAST_INVOCATIONS);
    let count = (LEAST_INVOCATIONS..most).find(|count| one * number(*count) > seconds).unwrap_or(most);
    Ok((take(count), before))
}

fn pass(process: &mut Process, server: &mut Server, events: &[Arc<[u8]>], batch: usize) -> Fallible<Pass> {
    let (done, load) = server.load_of(|| process.invoke(events))?;
    let (found, expected) = (server.records()?, events.len() * batch);
    if found < expected {
        return Err(format!("{expected} messages left {found} records in Redis").into());
    }
    let (invocations, records) = (number(events.len()), number(expected));
    Ok(Pass {
        times: done.times.iter().copied().map(ms).collect(),
        records_per_s: records / done.wall.as_secs_f64(),
        cpu: done.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / records),
        redis: load.command_us / records,
        redis_cpu: load.cpu_us / records,
        commands: load.commands / invocations,
    })
}
