//! 1,000 messages of 1 ms work, 100 at a time, compared with the ideal time and with the floor and the same work.

use benches::Fallible;
use benches::figures::{median, short};
use benches::table::Table;

use crate::events::Events;
use crate::function::Function;
use crate::interleave::{WarmFunction, interleave};
use crate::options::Options;
use crate::report::Report;
use crate::sample::{Sample, ratio};
use crate::stack::Stack;

const BATCH: usize = 1_000;

const CONCURRENCY: usize = 100;

/// 1,000 messages of 1 ms, 100 at a time.
const IDEAL_MS: f64 = 10.0;

pub(crate) fn run(options: &Options, _functions: &[Function], report: &mut Report) -> Fallible<()> {
    let redis = Stack::single()?;
    let functions =
        [Function::noop()?.with("WORK_MS", "1"), Function::floor()?.with("WORK_MS", "1"), Function::floor()?];
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for index in 0..options.rounds {
        eprintln!("slow work, round {} of {}", index + 1, options.rounds);
        redis.flush()?;
        let mut events = Events::new(BATCH, options.body);
        let start = |function| {
            WarmFunction::start(function, &redis, CONCURRENCY, BATCH, options.seconds, |count| events.take(count))
        };
        let mut warm = functions.iter().map(start).collect::<Fallible<Vec<_>>>()?;
        for (samples, of_round) in samples.iter_mut().zip(interleave(&mut warm, options.seconds)?) {
            samples.extend(of_round);
        }
    }
    let [noop, floor_with_work, floor] = samples;
    let pairs = noop.iter().zip(&floor);
    let to_ideal = median(pairs.map(|(noop, floor)| noop.p50() / (IDEAL_MS + floor.p50())));
    let to_floor = ratio(&noop, &floor_with_work, Sample::p50);
    let p50 = |samples: &[Sample]| Sample::sum(samples).p50();
    let mut table = Table::new(&["function", "p50 ms"]);
    table.row(["`noop`, with the work".to_owned(), short(p50(&noop))]);
    table.row(["the floor, with the work".to_owned(), short(p50(&floor_with_work))]);
    table.row(["10 ms, and the floor without work".to_owned(), short(IDEAL_MS + p50(&floor))]);
    report.table("1,000 messages of 1 ms work, 100 at once", table);
    report.at_most("1,000 messages of 1 ms work, 100 at once, against 10 ms and the floor", to_ideal, 1.15);
    report.at_most("the same, against the floor with the same work", to_floor, 1.15);
    Ok(())
}
