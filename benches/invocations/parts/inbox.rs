//! Ten payments through the inbox, beside the same ten transactions made by hand.

use crate::Fallible;
use crate::figures::{percentile, short};
use crate::function::Function;
use crate::measure::{Player, take_turns};
use crate::options::Options;
use crate::payments::Payments;
use crate::postgres::Postgres;
use crate::report::Report;
use crate::server::Server;
use crate::table::Table;
use crate::turn::{Turn, ratio};

const BATCH: usize = 10;

/// As many as there are messages in a batch.
const AT_ONCE: &str = "10";

pub(crate) fn run(options: &Options, _functions: &[Function], report: &mut Report) -> Fallible<()> {
    let (mut redis, postgres) = (Server::start(&[])?, Postgres::start()?);
    postgres.run("sql/inbox.sql")?;
    postgres.run("sql/ledger.sql")?;
    let database = postgres.url();
    let by_hand = Function::example("by_hand")?.with("DATABASE_URL", &database);
    let functions = [Function::ledger(&database)?, by_hand.clone(), by_hand.with("INBOX", "false")];
    let settings = [("REDIS_URL", &*redis.url()), ("BATCH_CONCURRENCY", AT_ONCE)];
    let mut turns: [Vec<Turn>; 3] = Default::default();
    let mut payments = [0, 1, 2].map(Payments::of);
    for payments in &payments {
        postgres.ask(&payments.accounts())?;
    }
    for at in 0..options.rounds {
        eprintln!("inbox, round {} of {}", at + 1, options.rounds);
        redis.flush()?;
        postgres.ask("TRUNCATE idempotency_inbox, ledger_audit; CHECKPOINT")?;
        let player = |(function, payments): (&Function, &mut Payments)| {
            Player::start(function, &settings, BATCH, options.seconds, |count| payments.take(count, BATCH))
        };
        let mut players = functions.iter().zip(&mut payments).map(player).collect::<Fallible<Vec<_>>>()?;
        for (turns, of_round) in turns.iter_mut().zip(take_turns(&mut players, &mut redis, options.seconds)?) {
            turns.extend(of_round);
        }
        booked(&postgres, players.iter().map(Player::messages_in_all).sum())?;
    }
    let to_hand = |at: usize| ratio(&turns[at], &turns[1], Turn::p50);
    let mut table = Table::new(&["function", "p50 ms", "p99 ms", "the same by hand = 1"]);
    for (at, what) in ["the ledger", "the same transactions by hand", "by hand, without an inbox"].iter().enumerate() {
        let all = Turn::all(&turns[at]);
        table.row([(*what).to_owned(), short(all.p50()), short(percentile(99, all.times)), short(to_hand(at))]);
    }
    report.table(&format!("10 payments, {}", Postgres::version()?), table);
    report.at_most("10 payments through the inbox, against the same transactions by hand", to_hand(0), 1.3);
    Ok(())
}

/// A function that books less must not look fast.
fn booked(postgres: &Postgres, messages: usize) -> Fallible<()> {
    let booked = postgres.ask("SELECT count(*) FROM ledger_audit WHERE outcome = 'APPLIED'")?;
    if booked.trim() == messages.to_string() {
        return Ok(());
    }
    Err(format!("{messages} payments left {} bookings", booked.trim()).into())
}
