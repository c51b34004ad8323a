//! Bodies of several sizes in batches of ten.

use benches::Fallible;
use benches::figures::{median, short};
use benches::table::Table;

use crate::function::Function;
use crate::interleave::{Round, rounds};
use crate::options::Options;
use crate::report::Report;
use crate::sample::{Sample, ratio};
use crate::stack::Stack;

/// Bytes. Ten of the largest take a sixth of the 6 MB that an event may have.
const BODIES: [usize; 3] = [200, 10 * 1024, 100 * 1024];

const BATCH: usize = 10;

pub(crate) fn run(options: &Options, functions: &[Function], report: &mut Report) -> Fallible<()> {
    let hashing_floor = Function::hashing_floor()?;
    let functions = functions.iter().filter(|function| !function.is_peer()).chain([&hashing_floor]);
    let functions: Vec<_> = functions.collect();
    let server = [Stack::single()?];
    let mut table = Table::new(&[
        "body, bytes",
        "function",
        "p50 ms",
        "time, floor = 1",
        "floor-hash = 1",
        "CPU µs/record",
        "duplicates, p50 ms",
    ]);
    for body in BODIES {
        let what = format!("bodies of {body} bytes");
        let rounds = rounds(&what, &functions, &server, BATCH, body, options)?;
        for (function, of_function) in functions.iter().zip(&rounds) {
            let to = |floor: &str| {
                let floor = functions.iter().position(|function| function.name == floor);
                floor.map_or(f64::NAN, |floor| ratio(new(of_function), new(&rounds[floor]), Sample::p50))
            };
            if function.name == "noop" {
                let what =
                    format!("`noop` against the floor that hashes, time per batch of {BATCH}, bodies of {body} bytes");
                report.at_most(&what, to(&hashing_floor.name), 1.5);
            }
            let figure = |figure: fn(&Round) -> f64| short(median(of_function.iter().map(figure)));
            table.row([
                body.to_string(),
                function.name.clone(),
                figure(|round| Sample::sum(&round.new).p50()),
                short(to("floor")),
                short(to(&hashing_floor.name)),
                figure(|round| Sample::sum(&round.new).cpu()),
                figure(|round| Sample::sum(&round.duplicates).p50()),
            ]);
        }
    }
    report.table("Bodies, new messages, batch of 10", table);
    Ok(())
}

fn new(rounds: &[Round]) -> impl Iterator<Item = &Sample> {
    rounds.iter().flat_map(|round| &round.new)
}
