//! Interleaved measurements: the functions are measured alternately, 50 ms each, so that other load on the machine
//! affects all of them.

use std::sync::Arc;
use std::time::Duration;

use benches::Fallible;
use benches::figures::{ms, number};

use crate::events::Events;
use crate::function::Function;
use crate::options::Options;
use crate::process::{Invocations, Process};
use crate::sample::Sample;
use crate::stack::Stack;

/// Length of the warm-up, in measured times. Connections, scripts and just-in-time compilers are then warm.
const WARM_UP: f64 = 2.0;

/// The fewest invocations that give a median.
const MIN_INVOCATIONS: usize = 5;

/// The length of a sample. Slow phases of a machine last longer; a hundred invocations of ten messages take less.
const SAMPLE: Duration = Duration::from_millis(50);

/// Records in one measurement. It limits the memory for the events.
const MAX_RECORDS: usize = 200_000;

/// Bytes of all events in one measurement. It limits the memory for the events.
const MAX_BYTES: usize = 500_000_000;

/// The figures of one function in a round.
pub(crate) struct Round {
    /// Samples with new messages.
    pub(crate) new: Vec<Sample>,
    /// Samples with the same messages again.
    pub(crate) duplicates: Vec<Sample>,
    /// KiB.
    pub(crate) peak_memory: Option<f64>,
}

/// The rounds of the options: of each function on each of the stacks, those of one stack together. `what` is what is
/// measured, for the progress.
pub(crate) fn rounds(
    what: &str,
    functions: &[&Function],
    stacks: &[Stack],
    batch: usize,
    body: usize,
    options: &Options,
) -> Fallible<Vec<Vec<Round>>> {
    let mut rounds: Vec<Vec<Round>> = Vec::new();
    rounds.resize_with(functions.len() * stacks.len(), Vec::new);
    for index in 0..options.rounds {
        eprintln!("{what}, round {} of {}", index + 1, options.rounds);
        for (rounds, done) in rounds.iter_mut().zip(round(functions, stacks, batch, body, options)?) {
            rounds.push(done);
        }
    }
    Ok(rounds)
}

/// Starts each of these functions on each of these stacks, warms them up, and measures each for about the time of the
/// options, with new messages and then with the same messages again. Returns the rounds, those of one stack together.
fn round(
    functions: &[&Function],
    stacks: &[Stack],
    batch: usize,
    body: usize,
    options: &Options,
) -> Fallible<Vec<Round>> {
    let flush = || stacks.iter().try_for_each(Stack::flush);
    flush()?;
    let mut events = Events::new(batch, body);
    let pairs = stacks.iter().flat_map(|stack| functions.iter().map(move |function| (stack, function)));
    let start = |(stack, function): (_, &&Function)| {
        WarmFunction::start(function, stack, batch, batch, options.seconds, |count| events.take(count))
    };
    let mut warm = pairs.map(start).collect::<Fallible<Vec<_>>>()?;
    flush()?;
    let new = interleave(&mut warm, options.seconds)?;
    for (warm, samples) in warm.iter().zip(&new) {
        let (added, expected) = (Sample::sum(samples).added, warm.messages());
        if added < expected {
            return Err(format!("{}: {added} records in Redis for {expected} messages", warm.process.name).into());
        }
    }
    let duplicates = interleave(&mut warm, options.seconds)?;
    let rounds = warm.iter().zip(new).zip(duplicates);
    let round = |((warm, new), duplicates): ((&WarmFunction<'_>, _), _)| Round {
        new,
        duplicates,
        peak_memory: warm.process.peak_memory(),
    };
    Ok(rounds.map(round).collect())
}

/// A warm process of a function, and the events for its samples.
pub(crate) struct WarmFunction<'a> {
    process: Process,
    stack: &'a Stack,
    batch: usize,
    events: Vec<Arc<[u8]>>,
    /// The number of events of the warm-up.
    warm_up_events: usize,
}

impl<'a> WarmFunction<'a> {
    /// Starts a function on these servers and warms it up. Its events last for about this many seconds.
    pub(crate) fn start(
        function: &Function,
        stack: &'a Stack,
        concurrency: usize,
        batch: usize,
        seconds: f64,
        take: impl FnMut(usize) -> Vec<Arc<[u8]>>,
    ) -> Fallible<Self> {
        let settings = [
            ("REDIS_URL", &*stack.url()),
            ("REDIS_CLUSTER", stack.cluster_mode()),
            ("BATCH_CONCURRENCY", &*concurrency.to_string()),
        ];
        let mut process = Process::start(function, &settings)?;
        let (events, warm_up_events) = warm_up(&mut process, batch, seconds, take)?;
        Ok(Self { process, stack, batch, events, warm_up_events })
    }

    /// The number of messages in its samples.
    fn messages(&self) -> usize {
        self.events.len() * self.batch
    }

    /// The number of messages in its samples and its warm-up.
    pub(crate) fn all_messages(&self) -> usize {
        self.messages() + self.warm_up_events * self.batch
    }

    /// Measures sample `index` of `samples`.
    fn sample(&mut self, index: usize, samples: usize) -> Fallible<Sample> {
        let Self { process, stack, events, .. } = self;
        let events = &events[events.len() * index / samples..events.len() * (index + 1) / samples];
        let before = stack.records()?;
        let (Invocations { times, wall, cpu }, load) = stack.load_of(|| process.invoke(events))?;
        let added = stack.records()?.saturating_sub(before);
        let records = number(events.len() * self.batch);
        Ok(Sample { times: times.into_iter().map(ms).collect(), wall, records, cpu, load, added })
    }
}

/// Measures these functions alternately. Returns the samples of each.
pub(crate) fn interleave(functions: &mut [WarmFunction<'_>], seconds: f64) -> Fallible<Vec<Vec<Sample>>> {
    // Each sample of each function has at least one event.
    let fewest = functions.iter().map(|function| function.events.len()).min().unwrap_or(0);
    let count = (1..fewest).find(|count| SAMPLE.as_secs_f64() * number(*count) >= seconds).unwrap_or(fewest);
    let mut samples: Vec<Vec<Sample>> = functions.iter().map(|_| Vec::new()).collect();
    for index in 0..count {
        for (function, samples) in functions.iter_mut().zip(&mut samples) {
            samples.push(function.sample(index, count)?);
        }
    }
    Ok(samples)
}

/// Warms a function up and measures it with new messages for about this many seconds. Returns its invocations and the
/// number of messages with those of the warm-up.
pub(crate) fn measure_new(
    process: &mut Process,
    batch: usize,
    body: usize,
    seconds: f64,
) -> Fallible<(Invocations, usize)> {
    let mut events = Events::new(batch, body);
    let (events, warm_up_events) = warm_up(process, batch, seconds, |count| events.take(count))?;
    Ok((process.invoke(&events)?, (warm_up_events + events.len()) * batch))
}

/// Warms a function up. Returns new events for about this many seconds and the number of events of the warm-up.
fn warm_up(
    process: &mut Process,
    batch: usize,
    seconds: f64,
    mut take: impl FnMut(usize) -> Vec<Arc<[u8]>>,
) -> Fallible<(Vec<Arc<[u8]>>, usize)> {
    let (mut spent, mut count, mut used) = (0.0, 1, 0);
    let one = loop {
        let wall = process.invoke(&take(count))?.wall.as_secs_f64();
        used += count;
        spent += wall;
        if spent >= seconds * WARM_UP {
            break wall / number(count);
        }
        count *= 2;
    };
    let bytes = take(1)[0].len();
    let max = (MAX_RECORDS / batch).min(MAX_BYTES / bytes).max(MIN_INVOCATIONS);
    let count = (MIN_INVOCATIONS..max).find(|count| one * number(*count) > seconds).unwrap_or(max);
    Ok((take(count), used))
}
