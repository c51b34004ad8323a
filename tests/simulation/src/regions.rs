//! The regions in which dead letters are sent, by the URL of their queue and the ARN of the queue of their message:
//! <https://docs.aws.amazon.com/general/latest/gr/sqs-service.html>.

use std::time::Duration;

use history::Rng;
use idempotent_sqs::sqs::{Batch, BatchSettings, DeadLetterQueue, Message};
use idempotent_sqs::{Claim, Deadline, Idempotency, MemoryStore, Policy, WorkError, work_fn};
use idempotent_sqs_testing::{Queue, QueueSettings};

use crate::sqs::Sqs;

/// Number of letters of a seed.
const LETTERS: usize = 12;

/// The process of the client.
const CLIENT: &str = "regions";

/// The region of the configuration of the SDK.
const OF_PROGRAM: &str = "us-east-1";

const REGIONS: [&str; 4] = ["eu-central-1", "us-gov-west-1", "cn-north-1", "us-iso-east-1"];
const ACCOUNTS: [&str; 2] = ["123456789012", "210987654321"];
const NAMES: [&str; 2] = ["payments", "letters"];

/// What is wrong with the regions of the letters of this seed.
pub async fn send_to_regions(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x4e61);
    let queue = Queue::new(QueueSettings { name: CLIENT.to_owned(), ..QueueSettings::default() }, seed);
    let sqs = Sqs::new(queue.clone(), queue, rng.fork(), false);
    sqs.end_faults();
    sqs.listen();
    let mut wrong = Vec::new();
    for number in 0..LETTERS {
        let (host, of_url) = host(rng);
        let (account, name) = (*rng.pick(&ACCOUNTS), *rng.pick(&NAMES));
        let url = format!("{host}/{account}/{name}");
        let (arn, source) = arn(rng);
        let mut message = Message::new(format!("m{number}"), "a payment");
        message.queue_arn = Some(arn.clone());
        let before = sqs.calls().len();
        send(&sqs, &url, &message).await;
        let found: Vec<_> = sqs.calls().drain(before..).map(|call| call.endpoint.1).collect();
        // A letter to the queue of its message would be delivered again.
        let is_own = source == Some((of_url.unwrap_or(source.map_or("", |source| source.0)), account, name));
        let region = of_url.or(source.map(|source| source.0)).unwrap_or(OF_PROGRAM);
        let expected = if is_own { vec![] } else { vec![region] };
        if found != expected {
            wrong.push(format!("sent in {found:?}, not in {expected:?}: {url}, from {arn}"));
        }
    }
    wrong
}

/// The address in a URL of a queue, and its region if it has one.
fn host(rng: &mut Rng) -> (String, Option<&'static str>) {
    let region = *rng.pick(&REGIONS);
    let with_region = [
        format!("https://sqs.{region}.amazonaws.com"),
        format!("https://sqs.{region}.api.aws"),
        format!("https://sqs-fips.{region}.amazonaws.com"),
        format!("https://{region}.queue.amazonaws.com"),
        format!("https://vpce-0a1-b2.sqs.{region}.vpce.amazonaws.com"),
        format!("http://sqs.{region}.localhost.localstack.cloud:4566"),
    ];
    let without = [
        "http://localhost:4566",
        "http://127.0.0.1:4566",
        "https://sqs.payments.internal",
        "https://sqs.payments-1.internal",
        "https://sqs.eu-central-one.internal",
        "https://sqs.eu-central-.internal",
        "https://sqs.EU-CENTRAL-1.internal",
        "https://proxy.queue.internal",
        "https://eu-central-1.internal",
    ];
    match rng.draw(0..8) {
        0 => ("https://queue.amazonaws.com".to_owned(), Some("us-east-1")),
        1..=3 => ((*rng.pick(&without)).to_owned(), None),
        _ => (rng.pick(&with_region).clone(), Some(region)),
    }
}

/// An ARN, and the region, account and name of its queue if it is one.
fn arn(rng: &mut Rng) -> (String, Option<(&'static str, &'static str, &'static str)>) {
    let (region, account, name) = (*rng.pick(&REGIONS), *rng.pick(&ACCOUNTS), *rng.pick(&NAMES));
    let arn = |partition: &str, service: &str, region: &str, account: &str, name: &str| {
        format!("arn:{partition}:{service}:{region}:{account}:{name}")
    };
    let invalid = [
        "payments".to_owned(),
        arn("", "sqs", region, account, name),
        arn("aws", "sns", region, account, name),
        arn("aws", "sqs", "", account, name),
        arn("aws", "sqs", region, "", name),
        arn("aws", "sqs", region, account, ""),
        arn("aws", "sqs", region, account, name).replacen("arn", "urn", 1),
    ];
    if rng.happens(200) {
        return (rng.pick(&invalid).clone(), None);
    }
    (arn(rng.pick::<&str>(&["aws", "aws-cn"]), "sqs", region, account, name), Some((region, account, name)))
}

/// Sends the letter of this message, which SQS need not accept.
async fn send(sqs: &Sqs, url: &str, message: &Message) {
    let mut settings = BatchSettings::default();
    settings.dead_letter_queue = Some(DeadLetterQueue::new(url, sqs.config(CLIENT, CLIENT)));
    let work = work_fn(|_: &Claim, _: &Message| async { Err::<Vec<u8>, _>(WorkError::permanent("rejected")) });
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), work, settings);
    let deadline = Deadline::within(Duration::from_secs(10));
    batch.run(std::slice::from_ref(message), deadline).await.expect("the store is in memory");
}
