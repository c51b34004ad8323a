//! 1,000 messages of 1 ms work, 100 at once: beside the ideal, and beside the floor with the same
//! work.

use crate::Fallible;
use crate::events::Events;
use crate::figures::{median, short};
use crate::function::Function;
use crate::measure::{Player, take_turns};
use crate::options::Options;
use crate::report::Report;
use crate::server::Server;
use crate::table::Table;
use crate::turn::{Turn, ratio};

const BATCH: usize = 1_000;

const AT_ONCE: &str = "100";

/// Ten times a hundred messages of one millisecond.
const IDEAL_MS: f64 = 10.0;

pub(crate) fn run(options: &Options, _functions: &[Function], report: &mut Report) -> Fallible<()> {
    let mut server = Server::start(&[])?;
    let functions = [
        Function::example("waiting")?.with("WORK_MS", "1"),
        Function::example("floor")?.with("WORK_MS", "1"),
        Function::example("floor")?,
    ];
    let mut turns: [Vec<Turn>; 3] = Default::default();
    for at in 0..options.rounds {
        eprintln!("waiting, round {} of {}", at + 1, options.rounds);
        server.flush()?;
        let settings = [("REDIS_URL", &*server.url()), ("BATCH_CONCURRENCY", AT_ONCE)];
        let mut events = Events::new(BATCH, options.body);
        let player = |function| Player::start(function, &settings, BATCH, options.seconds, |count| events.take(count));
        let mut players = functions.iter().map(player).collect::<Fallible<Vec<_>>>()?;
        for (turns, of_round) in turns.iter_mut().zip(take_turns(&mut players, &mut server, options.seconds)?) {
            turns.extend(of_round);
        }
    }
    let [ours, control, floor] = turns;
    let pairs = ours.iter().zip(&floor);
    let to_ideal = median(pairs.map(|(ours, floor)| ours.p50() / (IDEAL_MS + floor.p50())));
    let to_control = ratio(&ours, &control, Turn::p50);
    let p50 = |turns: &[Turn]| Turn::all(turns).p50();
    let mut table = Table::new(&["function", "p50 ms"]);
    table.row(["ours, with the work".to_owned(), short(p50(&ours))]);
    table.row(["the floor, with the work".to_owned(), short(p50(&control))]);
    table.row(["10 ms, and the floor without work".to_owned(), short(IDEAL_MS + p50(&floor))]);
    report.table("1,000 messages of 1 ms work, 100 at once", table);
    report.at_most("1,000 messages of 1 ms work, 100 at once, against 10 ms and the floor", to_ideal, 1.15);
    report.at_most("the same, against the floor with the same work", to_control, 1.15);
    Ok(())
}
