//! Batches of every size, new and as duplicates, functions in turn.

use std::collections::BTreeMap;

use crate::Fallible;
use crate::figures::{median, percentile, short};
use crate::function::Function;
use crate::measure::{Round, round};
use crate::options::Options;
use crate::plot::{self, Line};
use crate::report::Report;
use crate::server::Server;
use crate::table::Table;
use crate::turn::{Turn, ratio};

/// Rounds by function and size of the batch.
struct Rounds {
    functions: Vec<String>,
    by_function: BTreeMap<(String, usize), Vec<Round>>,
}

type Kind = fn(&Round) -> &[Turn];

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
        let functions: Vec<_> = functions.iter().filter(|function| function.largest_batch >= batch).collect();
        for at in 0..options.rounds {
            eprintln!("batches of {batch}, round {} of {}", at + 1, options.rounds);
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

    /// How one function compares to another.
    fn ratio(&self, function: &str, other: &str, batch: usize, pass: Kind, figure: impl Fn(&Turn) -> f64) -> f64 {
        let turns = |function| self.of(function, batch).iter().flat_map(pass);
        ratio(turns(function), turns(other), figure)
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
                let figure = |figure: fn(&Turn) -> f64| {
                    short(self.median(function, batch, |round| figure(&Turn::all(pass(round)))))
                };
                let times = self.of(function, batch).iter().flat_map(pass).flat_map(|turn| turn.times.iter().copied());
                table.row([
                    batch.to_string(),
                    function.clone(),
                    figure(Turn::p50),
                    short(percentile(99, times)),
                    short(self.ratio(function, "floor", batch, pass, Turn::p50)),
                    figure(Turn::records_per_s),
                    figure(Turn::cpu),
                    figure(Turn::redis),
                    figure(Turn::redis_cpu),
                    figure(Turn::commands),
                    short(self.median(function, batch, |round| round.peak_memory.map_or(f64::NAN, |kib| kib / 1024.0))),
                ]);
            }
        }
        table
    }

    fn bars(&self, sizes: &[usize], report: &mut Report) {
        for (kind, pass) in KINDS {
            for &batch in sizes {
                let measured = self.ratio("noop", "floor", batch, pass, Turn::p50);
                report.at_most(&format!("`noop` against the floor, time per batch of {batch}, {kind}"), measured, 1.5);
            }
        }
        for (peer, batch, bar) in [
            ("powertools-python", 10, 12.0),
            ("powertools-python", 1_000, 35.0),
            ("powertools-typescript", 10, 6.0),
            ("powertools-typescript", 1_000, 6.0),
        ] {
            let measured = self.ratio("noop", peer, batch, |round| &round.new, Turn::records_per_s);
            report.at_least(&format!("`noop` against {peer}, records per second, batch of {batch}"), measured, bar);
        }
        for &batch in sizes {
            let measured = self.ratio("noop", "floor", batch, |round| &round.new, Turn::redis);
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
                |size: &usize| (*size, self.median(function, *size, |round| Turn::all(&round.new).records_per_s()));
            Line { name: function.clone(), points: measured.map(point).collect() }
        });
        plot::draw(lines.collect(), options.body)
    }
}
