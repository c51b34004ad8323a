//! Batches with messages of several receivers, which are unavailable at times: docs/failures.md, "While a receiver is
//! unavailable". The invocations of a round may run at the same time, as on Lambda Managed Instances, and all rounds
//! share what is known of the receivers. Each receiver responds in one way for a round.
//!
//! - `recovery`: a receiver works again while S3 does not respond
//! - `scene`: the work, the store and the objects, which record their steps
//! - `turns`: which messages may be sent
//! - `slots`: whether messages are sent as soon as they may be

mod recovery;
mod scene;
mod slots;
mod turns;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use harness::event::set_pointer;
use history::Rng;
use idempotent_sqs::idempotency::{Deadline, ObjectStore};
use idempotent_sqs::sqs::{Batch, BatchSettings, Message};
use idempotent_sqs::{Idempotency, Policy};
use tokio::time::sleep;

use scene::{Answers, RECEIVERS, Scene, Step};
use turns::Known;

/// Number of rounds of a seed.
const ROUNDS: usize = 40;

/// Time of an invocation: all messages end long before.
const TIME: Duration = Duration::from_hours(1);

/// What a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Inline,
    InS3,
    /// Its payload in S3 was deleted.
    Missing,
    /// Its record says that it has failed.
    Failed,
}

/// A message of a round.
#[derive(Debug)]
struct Sent {
    /// Its key too.
    id: String,
    batch: usize,
    receiver: &'static str,
    kind: Kind,
    /// Its group, or a number of its own on a standard queue.
    lane: usize,
}

/// What is chosen for a round.
#[derive(Debug)]
struct Round {
    messages: Vec<Sent>,
    batches: usize,
    concurrency: usize,
    /// How the receivers respond, in their order.
    answers: [Answers; RECEIVERS.len()],
}

/// What is wrong with the batches of this seed.
pub async fn run_batches(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0xba7c);
    let scene = Scene::new(rng);
    let concurrency = *rng.pick(&[1, 1, 2, 4]);
    let batch = batch(&scene, concurrency, Arc::new(scene.clone()));
    let (is_fifo, mut known, mut wrong) = (rng.happens(500), Known::default(), Vec::new());
    for number in 0..ROUNDS {
        let round = Round::of(number, concurrency, is_fifo, scene.has_own_records, rng);
        scene.begin(round.answers);
        let runs = (0..round.batches).map(|of| {
            let of_batch = round.messages.iter().filter(|sent| sent.batch == of);
            let messages: Vec<_> = of_batch.map(|sent| sent.message(is_fifo)).collect();
            let (batch, pause) = (&batch, if of == 0 { Duration::ZERO } else { rng.ms(0..150) });
            async move {
                sleep(pause).await;
                // Its reports show no more than the steps.
                drop(batch.run(&messages, Deadline::within(TIME)).await);
            }
        });
        join_all(runs.collect::<Vec<_>>()).await;
        let steps = scene.steps();
        wrong.extend(round.faults(&steps, &known));
        known.learn(&steps);
    }
    wrong.extend(recovery::recover_without_s3(seed).await);
    wrong
}

/// The batches of a process, which run this many messages at the same time.
fn batch(scene: &Scene, concurrency: usize, objects: Arc<dyn ObjectStore>) -> Batch<Scene, Scene> {
    let mut settings = BatchSettings::default();
    settings.concurrency = NonZeroUsize::new(concurrency).unwrap_or(NonZeroUsize::MIN);
    settings.extended_client.objects = Some(objects);
    settings.extended_client.buckets = vec![scene::BUCKET.to_owned()];
    Batch::new(Idempotency::new(scene.clone(), Policy::default()), scene.clone(), settings)
}

impl Round {
    fn of(number: usize, concurrency: usize, is_fifo: bool, has_own_records: bool, rng: &mut Rng) -> Self {
        let batches = *rng.pick(&[1, 1, 2, 3]);
        let answers = [(); RECEIVERS.len()].map(|()| Answers::of(has_own_records, rng));
        let groups = rng.draw(1..8);
        let has_objects = rng.happens(300);
        // A receiver's messages without a payload in S3 come first. Some rounds have none of them.
        let kinds = if has_objects && rng.happens(400) { 2 } else { 10 };
        let messages = (0..rng.draw(1..20) * u64::try_from(batches).unwrap_or(1)).map(|message| {
            let receiver = *rng.pick(&RECEIVERS);
            let kind = match rng.draw(0..kinds) {
                0 | 1 if has_objects => Kind::InS3,
                2 if has_objects => Kind::Missing,
                3 => Kind::Failed,
                _ => Kind::Inline,
            };
            let lane = if is_fifo { rng.draw(0..groups) } else { message };
            let batch = usize::try_from(message).unwrap_or_default() % batches;
            let id = format!("{receiver}-{number}-{message}-{kind:?}");
            Sent { id, batch, receiver, kind, lane: usize::try_from(lane).unwrap_or_default() }
        });
        Self { messages: messages.collect(), batches, concurrency, answers }
    }

    /// What is wrong with the steps of this round.
    fn faults(&self, steps: &[Step], known: &Known) -> Vec<String> {
        let mut faults = self.wrong_turns(steps, known);
        if self.batches == 1 {
            faults.extend(self.not_sent(steps, known));
            faults.extend(self.sent_late(steps, known));
        }
        faults.into_iter().map(|fault| format!("{fault}: {self:?}, {known:?}: {steps:#?}")).collect()
    }

    fn sent(&self, id: &str) -> &Sent {
        self.messages.iter().find(|sent| sent.id == id).expect("each step is of a message")
    }

    /// Whether no earlier message of its lane is in the batch.
    fn is_first(&self, sent: &Sent) -> bool {
        let of_lane = |other: &&Sent| (other.batch, other.lane) == (sent.batch, sent.lane);
        self.messages.iter().find(of_lane).is_some_and(|first| first.id == sent.id)
    }

    fn answers(&self, receiver: &str) -> Answers {
        let at = RECEIVERS.iter().position(|name| *name == receiver);
        self.answers[at.expect("it is one of the receivers")]
    }
}

impl Sent {
    fn is_in_s3(&self) -> bool {
        matches!(self.kind, Kind::InS3 | Kind::Missing)
    }

    fn message(&self, is_fifo: bool) -> Message {
        let mut message = Message::new(&self.id, "a payment");
        message.attributes.insert("Idempotency-Key".to_owned(), (&*self.id).into());
        if self.is_in_s3() {
            set_pointer(&mut message, scene::BUCKET, &self.id);
        }
        let queue = if is_fifo { "payments.fifo" } else { "payments" };
        message.queue_arn = Some(format!("arn:aws:sqs:eu-central-1:123456789012:{queue}"));
        message.group_id = is_fifo.then(|| self.lane.to_string());
        message
    }
}
