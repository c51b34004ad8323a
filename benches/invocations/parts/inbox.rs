//! Ten payments through the inbox, beside the same ten transactions made by hand.

use crate::Fallible;
use crate::figures::{median, ms, percentile, short};
use crate::function::Function;
use crate::measure::new_events;
use crate::options::Options;
use crate::payments::{ACCOUNTS, Payments};
use crate::postgres::Postgres;
use crate::process::Process;
use crate::report::Report;
use crate::server::Server;
use crate::table::Table;

const BATCH: usize = 10;

/// As many as there are messages in a batch.
const AT_ONCE: &str = "10";

pub(crate) fn run(options: &Options, _functions: &[Function], report: &mut Report) -> Fallible<()> {
    let (mut redis, postgres) = (Server::start(&[])?, Postgres::start()?);
    postgres.run("sql/inbox.sql")?;
    postgres.run("sql/ledger.sql")?;
    postgres.ask(&format!(
        "INSERT INTO ledger_account (account_id) SELECT 'a-' || n FROM generate_series(0, {ACCOUNTS} - 1) n"
    ))?;
    let database = postgres.url();
    let by_hand = Function::example("by_hand")?.with("DATABASE_URL", &database);
    let functions = [Function::ledger(&database)?, by_hand.clone(), by_hand.with("INBOX", "false")];
    let (mut times, mut all) = (<[Vec<f64>; 3]>::default(), <[Vec<f64>; 3]>::default());
    let mut payments = Payments::default();
    for at in 0..options.rounds {
        eprintln!("inbox, round {} of {}", at + 1, options.rounds);
        for (which, function) in functions.iter().enumerate() {
            redis.flush()?;
            postgres.ask("TRUNCATE idempotency_inbox, ledger_audit; CHECKPOINT")?;
            let settings = [("REDIS_URL", &*redis.url()), ("BATCH_CONCURRENCY", AT_ONCE)];
            let mut process = Process::start(function, &settings)?;
            let (invocations, messages) =
                new_events(&mut process, BATCH, options.seconds, |count| payments.take(count, BATCH))?;
            booked(&postgres, messages)?;
            let took: Vec<f64> = invocations.times.into_iter().map(ms).collect();
            times[which].push(median(took.iter().copied()));
            all[which].extend(took);
        }
    }
    let ratio = |of: &[f64]| median(of.iter().zip(&times[1]).map(|(one, by_hand)| one / by_hand));
    let mut table = Table::new(&["function", "p50 ms", "p99 ms", "the same by hand = 1"]);
    for (at, what) in ["the ledger", "the same transactions by hand", "by hand, without an inbox"].iter().enumerate() {
        let p99 = percentile(99, all[at].iter().copied());
        table.row([(*what).to_owned(), short(median(times[at].iter().copied())), short(p99), short(ratio(&times[at]))]);
    }
    report.table(&format!("10 payments, {}", Postgres::version()?), table);
    report.at_most("10 payments through the inbox, against the same transactions by hand", ratio(&times[0]), 1.3);
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
