//! Batches on clusters of one and three shards, next to a single server.

use benches::Fallible;
use benches::figures::{median, short};
use benches::table::Table;

use super::batches::{KINDS, Kind};
use crate::function::Function;
use crate::interleave::{Round, rounds};
use crate::options::Options;
use crate::report::Report;
use crate::sample::{Sample, ratio};
use crate::stack::Stack;

/// The columns that are compared.
const TIME: fn(&Sample) -> f64 = Sample::p50;
const CPU: fn(&Sample) -> f64 = Sample::redis_cpu;

pub(crate) fn run(options: &Options, _functions: &[Function], report: &mut Report) -> Fallible<()> {
    let stacks = [Stack::single()?, Stack::cluster(1)?, Stack::cluster(3)?];
    let (noop, floor) = (Function::noop()?, Function::floor()?);
    let functions = [&noop, &floor];
    let mut measured = Vec::new();
    for &batch in &options.sizes {
        let what = format!("clusters, batches of {batch}");
        measured.push((batch, rounds(&what, &functions, &stacks, batch, options.body, options)?));
    }
    for (batch, rounds) in &measured {
        targets(*batch, rounds, report);
    }
    for (name, kind) in KINDS {
        let mut table = Table::new(&[
            "batch",
            "servers",
            "function",
            "p50 ms",
            "one server = 1",
            "floor = 1",
            "Redis CPU µs/record",
            "one server = 1",
            "floor = 1",
            "Redis commands/batch",
        ]);
        for (batch, rounds) in &measured {
            for (index, of_one) in rounds.iter().enumerate() {
                let (stack, function) = (index / functions.len(), index % functions.len());
                let figure = |figure: fn(&Sample) -> f64| {
                    short(median(of_one.iter().map(|round| figure(&Sample::sum(kind(round))))))
                };
                let to = |other: usize, figure| short(to(rounds, index, other, kind, figure));
                let floor = stack * functions.len() + 1;
                table.row([
                    batch.to_string(),
                    stacks[stack].name(),
                    functions[function].name.clone(),
                    figure(TIME),
                    to(function, TIME),
                    to(floor, TIME),
                    figure(CPU),
                    to(function, CPU),
                    to(floor, CPU),
                    figure(Sample::commands),
                ]);
            }
        }
        report.table(&format!("Clusters, {name}, bodies of {} bytes", options.body), table);
    }
    Ok(())
}

fn targets(batch: usize, rounds: &[Vec<Round>], report: &mut Report) {
    // `noop` on each stack: the floor is between.
    let [single, one_shard, three_shards] = [0, 2, 4];
    let (_, new) = KINDS[0];
    let mut at_most = |what: &str, shards, figure, most| {
        let what = format!("`noop` on a cluster against one server, {what}, batch of {batch}");
        report.at_most(&what, to(rounds, shards, single, new, figure), most);
    };
    at_most("1 shard, time", one_shard, TIME, 1.3);
    at_most("1 shard, Redis CPU per record", one_shard, CPU, 1.3);
    if batch >= 100 {
        at_most("3 shards, Redis CPU per record", three_shards, CPU, 1.5);
    }
}

/// The ratio of a figure of one function on one stack to that of another.
fn to(rounds: &[Vec<Round>], one: usize, other: usize, kind: Kind, figure: fn(&Sample) -> f64) -> f64 {
    let samples = |index: usize| rounds[index].iter().flat_map(kind);
    ratio(samples(one), samples(other), figure)
}
