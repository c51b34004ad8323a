//! A receiver that was unavailable works again while S3 does not respond: docs/failures.md, "While a receiver is
//! unavailable". One message at a time is sent there, and each with a payload in S3 takes all the time for work. The
//! others come first, so that each of them is sent, and the receiver counts as available once it does the work of one.

use std::sync::Arc;

use history::Rng;
use idempotent_sqs::idempotency::Deadline;

use super::scene::{Answers, RECEIVERS, Scene};
use super::turns::Known;
use super::{Kind, Round, Sent, batch};
use crate::late_results::Silent;

/// Number of receivers of a seed.
const RECOVERIES: usize = 4;

/// What is wrong with the batches of this seed.
pub(super) async fn recover_without_s3(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x5351);
    let mut wrong = Vec::new();
    for _ in 0..RECOVERIES {
        wrong.extend(recover(rng).await);
    }
    wrong
}

async fn recover(rng: &mut Rng) -> Vec<String> {
    let (scene, concurrency, receiver) = (Scene::new(rng), *rng.pick(&[1, 2, 4]), *rng.pick(&RECEIVERS));
    let batch = batch(&scene, concurrency, Arc::new(Silent));
    let (mut known, mut wrong) = (Known::default(), Vec::new());
    let unavailable = *rng.pick(&[Answers::Refuses, Answers::Hangs]);
    // The last batch shows whether the receiver counts as available again.
    let rounds =
        [(unavailable, vec![Kind::Inline]), (Answers::Works, mixed(rng)), (Answers::Works, vec![Kind::Inline; 8])];
    for (number, (answers, kinds)) in rounds.into_iter().enumerate() {
        let messages = kinds.into_iter().enumerate().map(|(lane, kind)| {
            let id = format!("{receiver}-{number}-{lane}-{kind:?}");
            Sent { id, batch: 0, receiver, kind, lane }
        });
        let answers = [answers; RECEIVERS.len()];
        let round = Round { messages: messages.collect(), batches: 1, concurrency, answers };
        scene.begin(round.answers);
        let messages: Vec<_> = round.messages.iter().map(|sent| sent.message(false)).collect();
        // Enough for all messages without a payload in S3. It ends before the function stops waiting for S3.
        let deadline = Deadline::within(rng.ms(7000..11_000));
        // Its reports show no more than the steps.
        drop(Box::pin(batch.run(&messages, deadline)).await);
        let steps = scene.steps();
        wrong.extend(round.faults(&steps, &known));
        known.learn(&steps);
    }
    wrong
}

/// Messages with and without payloads in S3, at least one of each, in any order.
fn mixed(rng: &mut Rng) -> Vec<Kind> {
    let mut kinds = vec![Kind::InS3, Kind::Inline];
    kinds.extend((0..rng.draw(0..9)).map(|_| *rng.pick(&[Kind::InS3, Kind::Inline])));
    kinds.sort_by_cached_key(|_| rng.draw(0..1000));
    kinds
}
