//! Ten payments through the inbox compared with the same transactions written by hand.

use benches::Fallible;
use benches::figures::{percentile, short};
use benches::table::Table;

use crate::function::Function;
use crate::interleave::{WarmFunction, interleave};
use crate::options::Options;
use crate::payments::Payments;
use crate::postgres::Postgres;
use crate::report::Report;
use crate::sample::{Sample, ratio};
use crate::stack::Stack;

const BATCH: usize = 10;

pub(crate) fn run(options: &Options, _functions: &[Function], report: &mut Report) -> Fallible<()> {
    let (redis, postgres) = (Stack::single()?, Postgres::start()?);
    postgres.run_file("crates/postgres/sql/inbox.sql")?;
    postgres.run_file("examples/ledger/sql/ledger.sql")?;
    let database = postgres.url();
    let by_hand = Function::by_hand(&database)?;
    let functions = [Function::ledger(&database)?, by_hand.clone(), by_hand.with("INBOX", "false")];
    let mut samples: [Vec<Sample>; 3] = Default::default();
    let mut payments = [0, 1, 2].map(Payments::of);
    for payments in &payments {
        postgres.query(&payments.accounts())?;
    }
    for index in 0..options.rounds {
        eprintln!("inbox, round {} of {}", index + 1, options.rounds);
        redis.flush()?;
        postgres.query("TRUNCATE idempotency_inbox, ledger_audit; CHECKPOINT")?;
        let start = |(function, payments): (&Function, &mut Payments)| {
            WarmFunction::start(function, &redis, BATCH, BATCH, options.seconds, |count| payments.take(count, BATCH))
        };
        let mut warm = functions.iter().zip(&mut payments).map(start).collect::<Fallible<Vec<_>>>()?;
        for (samples, of_round) in samples.iter_mut().zip(interleave(&mut warm, options.seconds)?) {
            samples.extend(of_round);
        }
        check_bookings(&postgres, warm.iter().map(WarmFunction::all_messages).sum())?;
    }
    let to_by_hand = |index: usize| ratio(&samples[index], &samples[1], Sample::p50);
    let mut table = Table::new(&["function", "p50 ms", "p99 ms", "the same by hand = 1"]);
    for (index, what) in ["the ledger", "the same transactions by hand", "by hand, without an inbox"].iter().enumerate()
    {
        let all = Sample::sum(&samples[index]);
        table.row([(*what).to_owned(), short(all.p50()), short(percentile(99, all.times)), short(to_by_hand(index))]);
    }
    report.table(&format!("10 payments, {}", Postgres::version()?), table);
    report.at_most("10 payments through the inbox, against the same transactions by hand", to_by_hand(0), 1.3);
    Ok(())
}

/// Checks that every message was booked.
fn check_bookings(postgres: &Postgres, messages: usize) -> Fallible<()> {
    let booked = postgres.query("SELECT count(*) FROM ledger_audit WHERE outcome = 'APPLIED'")?;
    if booked.trim() == messages.to_string() {
        return Ok(());
    }
    Err(format!("{} bookings for {messages} payments", booked.trim()).into())
}
