//! Batches of every size, new and as duplicates, functions in turn.

use std::collections::BTreeMap;

use crate::Fallible;
use crate::figures::{median, percentile, short};
use crate::function::Function;
use crate::measure::{Pass, Round, round};
use crate::options::Options;
use crate::plot::{self, Line};
use crate::report::Report;
use crate::server::Server;
use crate::table::Table;

/// Rounds by function and size of the batch.
struct Rounds {
    functions: Vec<String>,
    by_function: BTreeMap<(String, usize), Vec<Round>>,
}

type Kind = fn(&Round) -> &Pass;

const KINDS: [(&str, Kind); 2] = [("new messages", |round| &round.new), ("all duplicates", |round| &round.duplicates)];

pub(crate) fn run(options: &Options, functions: &[Function], report: &mut Report) -> Fallible<()> {
    let mut server = Server::start(&[])?;
    let rounds = measure(options, functions, &mut server)?;
    for (kind, pass) in KINDS {
        let title = format!("Batches, {kind}, bodies of {} bytes", options.body);
        report.table(&title, rounds.table(&options.sizes, pass));
    }
    rounds.bars(&options.sizes, report);
    report.plot = Some(rounds.plot(options));
    Ok(())
}

fn measure(options: &Options, functions: &[Function], server: &mut Server) -> Fallible<Rounds> {
    let names = functions.iter().map(|function| function.name.clone()).collect();
    let mut rounds = Rounds { functions: names, by_function: BTreeMap::new() };
    for &batch in &options.sizes {
        for at in 0..options.rounds {
            for function in functions.iter().filter(|function| function.largest_batch >= batch) {
                eprintln!("batches of {batch}, round {} of {}: {}", at + 1, options.rounds, function.name);
                let done = round(function, server, batch, options.body, options)?;
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

    /// How one function compares to another: the median of each round's own ratio.
    fn ratio(&self, function: &str, other: &str, batch: usize, figure: impl Fn(&Round) -> f64) -> f64 {
        let pairs = self.of(function, batch).iter().zip(self.of(other, batch));
        median(pairs.map(|(round, other)| figure(round) / figure(other)))
    }

    fn table(&self, sizes: &[usize], pass: Kind) -> Table {
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
                let figure =
                    |figure: fn(&Pass) -> f64| short(self.median(function, batch, |round| figure(pass(round))));
                let times = self.of(function, batch).iter().flat_map(|round| pass(round).times.iter().copied());
                table.row([
                    batch.to_string(),
                    function.clone(),
                    figure(Pass::p50),
                    short(percentile(99, times)),
                    short(self.ratio(function, "floor", batch, |round| pass(round).p50())),
                    figure(|pass| pass.records_per_s),
                    figure(|pass| pass.cpu.unwrap_or(f64::NAN)),
                    figure(|pass| pass.redis),
                    figure(|pass| pass.redis_cpu),
                    figure(|pass| pass.commands),
                    short(self.median(function, batch, |round| round.peak_memory.map_or(f64::NAN, |kib| kib / 1024.0))),
                ]);
            }
        }
        table
    }

    fn bars(&self, sizes: &[usize], report: &mut Report) {
        for (kind, pass) in KINDS {
            for &batch in sizes {
                let measured = self.ratio("noop", "floor", batch, |round| pass(round).p50());
                report.at_most(&format!("`noop` against the floor, time per batch of {batch}, {kind}"), measured, 1.5);
            }
        }
        for (peer, batch, bar) in [
            ("powertools-python", 10, 12.0),
            ("powertools-python", 1_000, 35.0),
            ("powertools-typescript", 10, 6.0),
            ("powertools-typescript", 1_000, 6.0),
        ] {
            let measured = self.ratio("noop", peer, batch, |round| round.new.records_per_s);
            report.at_least(&format!("`noop` against {peer}, records per second, batch of {batch}"), measured, bar);
        }
        for &batch in sizes {
            let measured = self.ratio("noop", "floor", batch, |round| round.new.redis);
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
            let point = |size: &usize| (*size, self.median(function, *size, |round| round.new.records_per_s));
            Line { name: function.clone(), points: measured.map(point).collect() }
        });
        plot::draw(lines.collect(), options.body)
    }
}
