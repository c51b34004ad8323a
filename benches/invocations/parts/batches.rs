//! Time, throughput and load of batches of every size, with new messages and with duplicates.

use std::collections::BTreeMap;

use benches::Fallible;
use benches::figures::{median, percentile, short};
use benches::table::Table;

use crate::function::Function;
use crate::interleave::{self, Round};
use crate::options::Options;
use crate::plot::{self, Line};
use crate::report::Report;
use crate::sample::{Sample, ratio};
use crate::stack::Stack;

/// Rounds by function and batch size.
struct Rounds {
    functions: Vec<String>,
    by_function: BTreeMap<(String, usize), Vec<Round>>,
}

/// Selects the samples with new messages or those with duplicates.
pub(super) type Kind = fn(&Round) -> &[Sample];

pub(super) const KINDS: [(&str, Kind); 2] =
    [("new messages", |round| &round.new), ("all duplicates", |round| &round.duplicates)];

pub(crate) fn run(options: &Options, functions: &[Function], report: &mut Report) -> Fallible<()> {
    let functions = [functions, &[Function::lean_floor()?, Function::scripted_floor()?]].concat();
    let rounds = measure(options, &functions)?;
    for (name, kind) in KINDS {
        let title = format!("Batches, {name}, bodies of {} bytes", options.body);
        report.table(&title, rounds.table(&options.sizes, kind));
    }
    rounds.targets(&options.sizes, report);
    report.plot = Some(rounds.plot(options));
    Ok(())
}

fn measure(options: &Options, functions: &[Function]) -> Fallible<Rounds> {
    let server = [Stack::single()?];
    let names = functions.iter().map(|function| function.name.clone()).collect();
    let mut rounds = Rounds { functions: names, by_function: BTreeMap::new() };
    for &batch in &options.sizes {
        let functions: Vec<_> = functions.iter().filter(|function| function.max_batch >= batch).collect();
        let what = format!("batches of {batch}");
        for (function, done) in
            functions.iter().zip(interleave::rounds(&what, &functions, &server, batch, options.body, options)?)
        {
            rounds.by_function.insert((function.name.clone(), batch), done);
        }
    }
    Ok(rounds)
}

impl Rounds {
    fn of(&self, function: &str, batch: usize) -> &[Round] {
        self.by_function.get(&(function.to_owned(), batch)).map_or(&[], Vec::as_slice)
    }

    fn median(&self, function: &str, batch: usize, figure: impl Fn(&Round) -> f64) -> f64 {
        median(self.of(function, batch).iter().map(figure))
    }

    /// The ratio of a figure of one function to that of another.
    fn ratio(&self, function: &str, other: &str, batch: usize, kind: Kind, figure: impl Fn(&Sample) -> f64) -> f64 {
        let samples = |function| self.of(function, batch).iter().flat_map(kind);
        ratio(samples(function), samples(other), figure)
    }

    fn table(&self, sizes: &[usize], kind: Kind) -> Table {
        let mut table = Table::new(&[
            "batch",
            "function",
            "p50 ms",
            "p99 ms",
            "time, floor = 1",
            "floor-script = 1",
            "records/s",
            "CPU µs/record",
            "Redis µs/record",
            "Redis CPU µs/record",
            "floor = 1",
            "Redis commands/batch",
            "peak MiB",
        ]);
        for &batch in sizes {
            for function in self.functions.iter().filter(|function| !self.of(function, batch).is_empty()) {
                let figure = |figure: fn(&Sample) -> f64| {
                    short(self.median(function, batch, |round| figure(&Sample::sum(kind(round)))))
                };
                let times =
                    self.of(function, batch).iter().flat_map(kind).flat_map(|sample| sample.times.iter().copied());
                table.row([
                    batch.to_string(),
                    function.clone(),
                    figure(Sample::p50),
                    short(percentile(99, times)),
                    short(self.ratio(function, "floor", batch, kind, Sample::p50)),
                    short(self.ratio(function, "floor-script", batch, kind, Sample::p50)),
                    figure(Sample::records_per_s),
                    figure(Sample::cpu),
                    figure(Sample::redis),
                    figure(Sample::redis_cpu),
                    short(self.ratio(function, "floor", batch, kind, Sample::redis_cpu)),
                    figure(Sample::commands),
                    short(self.median(function, batch, |round| round.peak_memory.map_or(f64::NAN, |kib| kib / 1024.0))),
                ]);
            }
        }
        table
    }

    fn targets(&self, sizes: &[usize], report: &mut Report) {
        let noop = |other, batch, kind, figure: fn(&Sample) -> f64| self.ratio("noop", other, batch, kind, figure);
        for (name, kind) in KINDS {
            for &batch in sizes {
                let what = format!("`noop` against the floor, time per batch of {batch}, {name}");
                report.at_most(&what, noop("floor", batch, kind, Sample::p50), if batch < 1_000 { 1.35 } else { 1.1 });
            }
        }
        let (_, new) = KINDS[0];
        for &batch in sizes {
            let what = format!("`noop` against the floor that reads only messageIds, time per batch of {batch}");
            report.at_most(&what, noop("floor-ids", batch, new, Sample::p50), 1.6);
        }
        for &batch in sizes {
            let what = format!("`noop` against the floor, Redis CPU per record, batch of {batch}");
            report.at_most(&what, noop("floor", batch, new, Sample::redis_cpu), 1.5);
        }
        for (peer, batch, least) in [
            ("powertools-python", 10, 10.0),
            ("powertools-python", 1_000, 35.0),
            ("powertools-typescript", 10, 4.0),
            ("powertools-typescript", 1_000, 7.0),
        ] {
            let what = format!("`noop` against {peer}, records per second, batch of {batch}");
            report.at_least(&what, noop(peer, batch, new, Sample::records_per_s), least);
        }
    }

    fn plot(&self, options: &Options) -> String {
        let lines = self.functions.iter().map(|function| {
            let measured = options.sizes.iter().filter(|size| !self.of(function, **size).is_empty());
            let point =
                |size: &usize| (*size, self.median(function, *size, |round| Sample::sum(&round.new).records_per_s()));
            Line { name: function.clone(), points: measured.map(point).collect() }
        });
        plot::draw(lines.collect(), options.body)
    }
}
