//! Time, throughput and load of batches of every size, with new messages and with duplicates.

use std::collections::BTreeMap;

use benches::Fallible;
use benches::figures::{median, percentile, short};
use benches::server::Server;
use benches::table::Table;

use crate::function::Function;
use crate::interleave::{Round, round};
use crate::options::Options;
use crate::plot::{self, Line};
use crate::report::Report;
use crate::sample::{Sample, ratio};

/// Rounds by function and batch size.
struct Rounds {
    functions: Vec<String>,
    by_function: BTreeMap<(String, usize), Vec<Round>>,
}

/// Selects the samples with new messages or those with duplicates.
type Kind = fn(&Round) -> &[Sample];

const KINDS: [(&str, Kind); 2] = [("new messages", |round| &round.new), ("all duplicates", |round| &round.duplicates)];

pub(crate) fn run(options: &Options, functions: &[Function], report: &mut Report) -> Fallible<()> {
    let mut server = Server::start(&[])?;
    let rounds = measure(options, functions, &mut server)?;
    for (name, kind) in KINDS {
        let title = format!("Batches, {name}, bodies of {} bytes", options.body);
        report.table(&title, rounds.table(&options.sizes, kind));
    }
    rounds.targets(&options.sizes, report);
    report.plot = Some(rounds.plot(options));
    Ok(())
}

fn measure(options: &Options, functions: &[Function], server: &mut Server) -> Fallible<Rounds> {
    let names = functions.iter().map(|function| function.name.clone()).collect();
    let mut rounds = Rounds { functions: names, by_function: BTreeMap::new() };
    for &batch in &options.sizes {
        let functions: Vec<_> = functions.iter().filter(|function| function.max_batch >= batch).collect();
        for index in 0..options.rounds {
            eprintln!("batches of {batch}, round {} of {}", index + 1, options.rounds);
            for (function, done) in functions.iter().zip(round(&functions, server, batch, options.body, options)?) {
                rounds.by_function.entry((function.name.clone(), batch)).or_default().push(done);
            }
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
            "records/s",
            "CPU µs/record",
            "Redis µs/record",
            "Redis CPU µs/record",
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
                    figure(Sample::records_per_s),
                    figure(Sample::cpu),
                    figure(Sample::redis),
                    figure(Sample::redis_cpu),
                    figure(Sample::commands),
                    short(self.median(function, batch, |round| round.peak_memory.map_or(f64::NAN, |kib| kib / 1024.0))),
                ]);
            }
        }
        table
    }

    fn targets(&self, sizes: &[usize], report: &mut Report) {
        for (name, kind) in KINDS {
            for &batch in sizes {
                let measured = self.ratio("noop", "floor", batch, kind, Sample::p50);
                report.at_most(&format!("`noop` against the floor, time per batch of {batch}, {name}"), measured, 1.5);
            }
        }
        for (peer, batch, least) in [
            ("powertools-python", 10, 12.0),
            ("powertools-python", 1_000, 35.0),
            ("powertools-typescript", 10, 6.0),
            ("powertools-typescript", 1_000, 6.0),
        ] {
            let measured = self.ratio("noop", peer, batch, |round| &round.new, Sample::records_per_s);
            report.at_least(&format!("`noop` against {peer}, records per second, batch of {batch}"), measured, least);
        }
        for &batch in sizes {
            let measured = self.ratio("noop", "floor", batch, |round| &round.new, Sample::redis);
            report.at_most(
                &format!("`noop` against the floor, Redis time per record, batch of {batch}"),
                measured,
                2.0,
            );
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
