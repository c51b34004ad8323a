//! Events in any order, repeated and concurrent, compared to a model of the accounts.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::join_all;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tokio::runtime::Runtime;

use super::*;

const ACCOUNTS: [&str; 3] = ["a", "b", "c"];

/// A payment. Events with the same id are the same payment.
#[derive(Clone, Debug)]
struct Payment {
    id: usize,
    account: &'static str,
    credit: bool,
    amount: i64,
    sequence: i64,
}

impl Payment {
    fn body(&self) -> String {
        let kind = if self.credit { "CREDIT" } else { "DEBIT" };
        payment(&format!("event-{}", self.id), self.account, kind, self.amount, self.sequence)
    }
}

/// Payments in the order of their arrival. Some arrive more than once.
fn arrivals() -> impl Strategy<Value = Vec<Payment>> {
    let accounts = select(vec!["a", "b", "c", "nobody"]);
    let made = vec((accounts, any::<bool>(), 1..200_i64, 1..12_i64), 1..20);
    (made, vec(any::<prop::sample::Index>(), 1..40)).prop_map(|(made, order)| {
        let made: Vec<_> = made
            .into_iter()
            .enumerate()
            .map(|(id, (account, credit, amount, sequence))| Payment { id, account, credit, amount, sequence })
            .collect();
        order.into_iter().map(|at| at.get(&made).clone()).collect()
    })
}

/// The expected accounts and counts.
#[derive(Default)]
struct Model {
    accounts: BTreeMap<&'static str, (i64, i64)>,
    done: HashMap<usize, &'static str>,
    applied: usize,
    ignored: usize,
    refused: usize,
}

impl Model {
    fn book(&mut self, payment: &Payment) {
        if self.done.contains_key(&payment.id) {
            return;
        }
        let change = if payment.credit { payment.amount } else { -payment.amount };
        match self.accounts.get_mut(payment.account) {
            None => self.refused += 1,
            Some((_, last)) if *last >= payment.sequence => {
                self.ignored += 1;
                self.done.insert(payment.id, "IGNORED");
            }
            Some((balance, _)) if *balance + change < 0 => self.refused += 1,
            Some((balance, last)) => {
                (*balance, *last) = (*balance + change, payment.sequence);
                self.applied += 1;
                self.done.insert(payment.id, "APPLIED");
            }
        }
    }
}

async fn audited(base: &Base, outcome: &str) -> usize {
    let count = base.count(&format!("SELECT count(*) FROM ledger_audit WHERE outcome = '{outcome}'")).await;
    usize::try_from(count).unwrap()
}

/// Each balance is the sum of the applied events, each account is at its last applied event, and no
/// event was applied twice.
async fn assert_books_balance(base: &Base) {
    let wrong = "SELECT count(*) FROM ledger_account account, LATERAL ( \
                   SELECT coalesce(sum(CASE type WHEN 'CREDIT' THEN amount ELSE -amount END), 0) AS balance, \
                          coalesce(max(sequence_id), 0) AS last_sequence_id \
                     FROM ledger_audit audit \
                    WHERE outcome = 'APPLIED' AND audit.account_id = account.account_id) booked \
                 WHERE account.balance <> booked.balance OR account.last_sequence_id <> booked.last_sequence_id";
    assert_eq!(base.count(wrong).await, 0);
    let twice = "SELECT count(*) FROM (SELECT FROM ledger_audit WHERE outcome <> 'REFUSED' GROUP BY event_id HAVING count(*) > 1) twice";
    assert_eq!(base.count(twice).await, 0);
    let back = "SELECT count(*) FROM (SELECT sequence_id - lag(sequence_id) OVER (PARTITION BY account_id ORDER BY id) \
                AS step FROM ledger_audit WHERE outcome = 'APPLIED') steps WHERE step <= 0";
    assert_eq!(base.count(back).await, 0, "sequence ids only increase");
}

#[test]
fn events_in_any_order_and_repeated_match_the_model() {
    let runtime = Runtime::new().unwrap();
    let base = runtime.block_on(books(&[]));
    proptest!(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() }, |(arrivals in arrivals())| {
        runtime.block_on(async {
            base.client.batch_execute("TRUNCATE ledger_account, ledger_audit, idempotency_inbox").await.unwrap();
            let mut model = Model::default();
            for account in ACCOUNTS {
                base.client.execute("INSERT INTO ledger_account VALUES ($1)", &[&account]).await.unwrap();
                model.accounts.insert(account, (0, 0));
            }
            // Each delivery has an empty store, so each repetition reaches the inbox.
            let inbox = inbox(&base);
            for (number, payment) in arrivals.iter().enumerate() {
                model.book(payment);
                deliver(&inbox, number, payment).await;
            }
            for account in ACCOUNTS {
                assert_eq!(balance(&base, account).await, model.accounts[account]);
            }
            let counts = [audited(&base, "APPLIED").await, audited(&base, "IGNORED").await, audited(&base, "REFUSED").await];
            assert_eq!(counts, [model.applied, model.ignored, model.refused]);
            assert_books_balance(&base).await;
        });
    });
}

/// One delivery on an empty store.
async fn deliver(inbox: &Inbox<Ledger>, number: usize, payment: &Payment) -> MessageReport {
    let settings = with!(BatchSettings::default(), keys = vec![KeySource::Body("/eventId".into())]);
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), inbox, settings);
    let message = with!(Message::default(), id = format!("m{number}"), body = Some(payment.body()));
    batch.run(&[message], Deadline::within(Duration::from_secs(60))).await.unwrap().remove(0)
}

#[tokio::test]
async fn concurrent_events_on_one_account_are_neither_lost_nor_repeated() {
    let base = books(&["a"]).await;
    let inbox = inbox(&base);
    let payments: Vec<_> = (0..40)
        .map(|id| Payment {
            id,
            account: "a",
            credit: id % 3 > 0,
            amount: 10,
            sequence: i64::try_from(id).unwrap() + 1,
        })
        .collect();
    // Each three times, in another order.
    let arrivals = (0..120).map(|number| (number, &payments[number * 7 % 40]));
    let reports = join_all(arrivals.map(|(number, payment)| deliver(&inbox, number, payment))).await;
    for report in reports {
        assert!(report.disposition == Disposition::Done || is_final_failure(&report), "{}", report.reason);
    }
    assert_books_balance(&base).await;
    assert!(audited(&base, "APPLIED").await >= 1);
}
