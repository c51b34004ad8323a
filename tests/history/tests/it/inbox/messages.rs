//! The messages, and which of them are delivered when.

use std::collections::BTreeSet;
use std::time::Duration;

use harness::redis::Redis;
use harness::torture::tally::lock;
use history::{Answer, History, Rng};
use tokio::time::{Instant, sleep};

use super::LONGEST;
use super::kind::{INVOICES, PAYMENTS, UNREPRESENTABLE, Way};
use super::owner::Owner;
use super::plan::{Before, Case, Plan};
use super::servers::ODD;
use super::tally::{Message, Returned, Told};
use super::world::World;

/// For how many deliveries the same keys are used. Longer histories take longer to check.
const KEY_LASTS: usize = 100;

/// Number of keys at a time.
const KEYS: u64 = 6;

/// A key whose value is not a record.
pub(crate) const FOREIGN: &str = "foreign";

pub(crate) const FOREIGN_KEYS: [&str; 2] = ["payments:foreign", "invoices:foreign"];

pub(crate) const FOREIGN_VALUE: &str = "not a record";

/// A character for which the encoding LATIN1 has no form.
const JAPANESE: char = '日';

/// The reason of an attempt at work that has committed by itself.
pub(crate) const UNFINISHED: &str = "result IS NULL";

/// The reason of an attempt with a key that the database cannot represent.
pub(crate) const OF_THE_KEY: &str = "a character of the idempotency key";

/// How often each message is delivered at most until it is done.
const ROUNDS: usize = 200;

/// Delivers messages until there are so many deliveries.
pub(crate) async fn contend(world: &World, owner: &Owner, mut rng: Rng, deliveries: usize) {
    let begun = Instant::now();
    while world.deliveries() < deliveries && begun.elapsed() < LONGEST {
        let (namespace, mut plan) = (owner.kind.namespace, Plan::draw(&mut rng, owner.kind));
        // Without the store, this one does what others may not do any more, or another payload under the same key.
        let failed = if owner.kind.redis == Way::None { world.failed(namespace) } else { None };
        let failed = failed.map(|message| Message { payload: u8::from(rng.happens(300)), ..message });
        let hinted = failed.clone().or_else(|| world.hinted(namespace, &mut rng));
        // Then the message is of interest, not the way to the database.
        if hinted.is_some() {
            plan.before = Before::Nothing;
            if rng.happens(700) {
                plan = Plan { case: Case::Succeed(20), ..Plan::SUCCEED };
            }
        }
        let message = hinted.unwrap_or_else(|| pick(&mut rng, namespace, world.deliveries()));
        let returned = owner.deliver(&message, plan).await;
        if failed.is_some() {
            world.hint(&message);
        }
        if returned.is_some_and(|returned| matches!(returned.told, Told::FailedPermanently { .. })) {
            world.has_failed(&message);
        }
        // A consumer that cannot work at all is not tried so often.
        let pause = if owner.kind.namespace == UNREPRESENTABLE { 200..400 } else { 0..25 };
        sleep(rng.ms(pause)).await;
    }
}

/// Delivers a message by each plan, twice, while nothing else happens.
pub(crate) async fn deliver_by_each_plan(owner: &Owner) {
    for (number, plan) in Plan::each(owner.kind.user).enumerate() {
        let (namespace, key) = (owner.kind.namespace, format!("plan-{}-{number}", owner.number));
        let message = Message { namespace, key, payload: 0, id: 0 };
        owner.deliver(&message, plan).await;
        owner.deliver(&message, Plan::SUCCEED).await;
    }
}

fn pick(rng: &mut Rng, namespace: &'static str, deliveries: usize) -> Message {
    let period = deliveries / KEY_LASTS;
    // A key of an earlier time may have a lease that has ended meanwhile.
    let period = period.saturating_sub(*rng.pick(&[0, 0, 0, 1, 3]));
    let number = rng.draw(0..KEYS);
    let key = match rng.draw(0..60) {
        0 => ODD.to_owned(),
        1 => FOREIGN.to_owned(),
        2 => format!("k{period}-{JAPANESE}"),
        3 => format!("k{period}-{}", "long".repeat(60)),
        4 => format!("größe-{period}"),
        _ => format!("k{period}-{number}"),
    };
    let payload = u8::from(rng.happens(120));
    Message { namespace, key, payload, id: *rng.pick(&[0, 0, 0, 1]) }
}

/// Delivers each message until it is done, or cannot be. Returns those for which that took too long.
pub(crate) async fn finish(world: &World, last: &[Owner]) -> Vec<String> {
    let of_all: BTreeSet<Message> = lock(&world.tally.sent).iter().map(|sent| sent.message.clone()).collect();
    let of =
        |owner: &Owner| of_all.iter().filter(|message| message.namespace == owner.kind.namespace).cloned().collect();
    let each = last.iter().map(|owner| finish_all(world, owner, of(owner)));
    futures_util::future::join_all(each).await.concat()
}

async fn finish_all(world: &World, owner: &Owner, mut pending: Vec<Message>) -> Vec<String> {
    for round in 0..ROUNDS {
        let mut left = Vec::new();
        for mut message in pending {
            let returned = owner.deliver(&message, Plan::SUCCEED).await;
            match returned.as_ref().map(|Returned { told, .. }| told) {
                Some(told) if is_over(told, &message) => continue,
                // It applies to this message.
                Some(Told::FailedBefore | Told::FailedPermanently { .. }) => message.id = message.id.saturating_add(10),
                // The owner may have died. Its record is lost before its lease ends.
                Some(Told::Conflict { .. }) if round > 3 => {
                    world.losses.delete(message.namespace, &stored(&message)).await;
                }
                _ => {}
            }
            left.push(message);
        }
        if left.is_empty() {
            return Vec::new();
        }
        pending = left;
        sleep(Duration::from_millis(40)).await;
    }
    pending.into_iter().map(|message| format!("done: it did not become done: {message:?}")).collect()
}

fn stored(message: &Message) -> String {
    idempotent_sqs::Key::new(&message.key).unwrap().stored().into_owned()
}

/// Whether no further delivery changes anything.
fn is_over(told: &Told, message: &Message) -> bool {
    match told {
        Told::Done { .. } | Told::Duplicate { .. } | Told::Mismatch => true,
        Told::NotARecord => message.key == FOREIGN,
        Told::FailedBefore => message.key.contains(JAPANESE) && message.id >= 10,
        Told::Failed { error, .. } | Told::FailedPermanently { error, .. } => {
            error.text.contains(UNFINISHED) || error.text.contains(OF_THE_KEY)
        }
        _ => false,
    }
}

impl Message {
    /// Whether the encoding LATIN1 has no form for its key.
    pub(crate) fn is_unrepresentable(&self) -> bool {
        self.key.contains(JAPANESE)
    }
}

pub(crate) async fn write_foreign_value(redis: &Redis) {
    let mut connection = redis.connection().await;
    for key in FOREIGN_KEYS {
        let () = redis::cmd("SET").arg(key).arg(FOREIGN_VALUE).query_async(&mut connection).await.unwrap();
    }
}

/// What is wrong with the values that are not records, and with the calls for them.
pub(crate) async fn wrong_foreign_value(redis: &Redis, histories: &[(&'static str, History)]) -> Vec<String> {
    let mut connection = redis.connection().await;
    let mut wrong = Vec::new();
    for key in FOREIGN_KEYS {
        let value: Option<String> = redis::cmd("GET").arg(key).query_async(&mut connection).await.unwrap();
        if value.as_deref() != Some(FOREIGN_VALUE) {
            wrong.push(format!("store: the value of {key} was changed: {value:?}"));
        }
    }
    let calls = histories.iter().filter(|(namespace, _)| [PAYMENTS, INVOICES].contains(namespace));
    let calls = calls.filter_map(|(_, history)| history.keys.get(FOREIGN)).flatten();
    let is_wrong = |answer: &Answer| !matches!(answer, Answer::NotARecord | Answer::Unknown);
    wrong.extend(
        calls.filter(|call| is_wrong(&call.answer)).map(|call| format!("store: the value is no record: {call}")),
    );
    wrong
}
