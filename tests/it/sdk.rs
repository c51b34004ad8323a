//! The configuration of the AWS SDK that a program passes (`aws`).

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use futures_util::future::join_all;
use harness::event::{Record, event};
use harness::http::{Answer, Server};
use harness::redis::Redis;
use harness::secrets::{ARN, Secrets};
use harness::sqs::SqsApi;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::aws::{AwsConfig, SecretCredentials};
use idempotent_sqs::config::{Config, Environment};
use idempotent_sqs::credentials::CredentialsSource;
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{Batch, BatchSettings, DeadLetterQueue, Disposition, Message, Visibility};
use idempotent_sqs::{Deadline, Idempotency, MemoryStore, Policy};
use idempotent_sqs_testing::{Queue, QueueSettings, SendRequest};
use lambda_runtime::Context;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::{Instant, advance, pause, resume, sleep};

/// A configuration with which the SDK calls the server at this address.
fn config(endpoint: &str) -> AwsConfig {
    let credentials = Credentials::new("local", "local", None, None, "test");
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .endpoint_url(endpoint)
        .credentials_provider(SharedCredentialsProvider::new(credentials));
    config.build().into()
}

#[tokio::test]
async fn calls_of_sqs_use_the_configuration_that_the_program_loaded() {
    let queue = Queue::new(QueueSettings { name: "payments".into(), ..QueueSettings::default() }, 1);
    let sqs = SqsApi::start(&[&queue]).await;
    queue.send("a payment").unwrap();
    let received = queue.receive(1).remove(0);

    let mut message = Message::new(received.message_id, "a payment");
    (message.receipt_handle, message.queue_arn) = (Some(received.receipt_handle.clone()), Some(queue.arn()));
    let visibility = Visibility::new(config(&sqs.endpoint()));
    let until = Instant::now() + Duration::from_secs(60);
    visibility.change(&[(&message, Duration::from_secs(7))], until).await;

    let [call] = sqs.calls("ChangeMessageVisibilityBatch").try_into().unwrap();
    let entry = json!({ "Id": "0", "ReceiptHandle": received.receipt_handle, "VisibilityTimeout": 7 });
    assert_eq!(call["Entries"], json!([entry]));
}

/// A batch has up to 10,000 messages, and a function 1,024 open files.
#[tokio::test]
async fn the_visibility_timeouts_of_the_largest_batch_are_changed_on_a_limited_number_of_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    // It accepts connections, and does not reply.
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _client)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            kept.push(stream);
        }
    });
    let messages: Vec<_> = (0..10_000).map(received).collect();
    let changes: Vec<_> = messages.iter().map(|message| (message, Duration::from_secs(7))).collect();
    Visibility::new(config(&endpoint)).change(&changes, Instant::now() + Duration::from_secs(2)).await;
    let opened = opened.load(Ordering::Relaxed);
    assert!((1..=50).contains(&opened), "{opened} connections");
}

#[tokio::test]
async fn there_is_time_for_every_call_of_the_largest_batch() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let server = Server::start(move |_request| {
        count.fetch_add(1, Ordering::Relaxed);
        async {
            sleep(Duration::from_millis(20)).await;
            Answer::with(200, &[], br#"{"Successful":[],"Failed":[]}"#)
        }
    })
    .await;
    let messages: Vec<_> = (0..10_000).map(received).collect();
    let changes: Vec<_> = messages.iter().map(|message| (message, Duration::from_secs(7))).collect();
    let until = Instant::now() + Duration::from_secs(60);
    Visibility::new(config(&format!("http://{}", server.address()))).change(&changes, until).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1000);
}

/// A message that was received from a queue.
fn received(number: usize) -> Message {
    let mut message = Message::new(format!("m{number}"), "a payment");
    message.receipt_handle = Some(format!("r{number}"));
    message.queue_arn = Some("arn:aws:sqs:eu-central-1:123456789012:payments".into());
    message
}

/// An invocation that Lambda throttled may begin hours after the receive, from which SQS counts 12 hours.
#[tokio::test]
async fn if_sqs_refuses_a_long_visibility_timeout_an_hour_less_is_asked_for_until_it_accepts() {
    let hours = |count: u64| Duration::from_secs(count * 3600);
    let settings = QueueSettings { name: "payments".into(), visibility_timeout: hours(12), ..QueueSettings::default() };
    let queue = Queue::new(settings, 1);
    queue.send("an early payment").unwrap();
    queue.send("a payment").unwrap();
    let early = queue.receive(1).remove(0);
    pause();
    advance(hours(3)).await;
    resume();
    let messages = [early, queue.receive(1).remove(0)].map(|received| {
        let mut message = Message::new(received.message_id, "a payment");
        (message.receipt_handle, message.queue_arn) = (Some(received.receipt_handle), Some(queue.arn()));
        message
    });
    let sqs = SqsApi::start(&[&queue]).await;
    let longest = hours(12) - Duration::from_secs(1200);
    let changes = messages.each_ref().map(|message| (message, longest));
    Visibility::new(config(&sqs.endpoint())).change(&changes, Instant::now() + Duration::from_secs(60)).await;
    let asked = |call: &Value| {
        let entries = call["Entries"].as_array().unwrap().iter();
        entries.map(|entry| entry["VisibilityTimeout"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let calls: Vec<_> = sqs.calls("ChangeMessageVisibilityBatch").iter().map(asked).collect();
    assert_eq!(calls, [vec![42_000, 42_000], vec![38_400], vec![34_800], vec![31_200]]);
    let remains = queue.next_change().unwrap() - Instant::now();
    assert!((31_100..=31_200).contains(&remains.as_secs()), "{remains:?}");
}

/// Lambda would kill the invocation, and deliver again the messages whose work is done.
#[tokio::test(start_paused = true)]
async fn the_response_is_returned_before_the_end_if_sqs_does_not_reply() {
    // Connections wait to be accepted.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let visibility = Visibility::new(config(&format!("http://{}", listener.local_addr().unwrap())));
    let work = ScriptedWork::always(Action::FailRetryable);
    let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
    let handler = Handler::new(Batch::new(idempotency, &work, BatchSettings::default()), Some(visibility));
    let mut context = Context::default();
    context.deadline = 2_000;
    let began = Instant::now();
    let response = handler.handle(&event([Record::new("m1")]), &context).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(response.batch_item_failures.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn messages_are_processed_although_sqs_does_not_reply_to_dead_letters_of_others() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    process_beside_dead_letters(&format!("http://{}", listener.local_addr().unwrap())).await;
}

#[tokio::test]
async fn messages_are_processed_although_sqs_is_slow_to_refuse_dead_letters_of_others() {
    let refuse = async |_request| {
        sleep(Duration::from_secs(2)).await;
        Answer::with(503, &[], br#"{"__type":"ServiceUnavailable"}"#)
    };
    let server = Server::start(refuse).await;
    process_beside_dead_letters(&format!("http://{}", server.address())).await;
}

/// Twenty messages are dead letters, and twenty later ones are done.
async fn process_beside_dead_letters(endpoint: &str) {
    let config = config(endpoint);
    let mut settings = BatchSettings::default();
    settings.dead_letter_queue = Some(DeadLetterQueue::new("https://sqs.eu-central-1.amazonaws.com/1/letters", config));
    settings.concurrency = NonZeroUsize::MIN;
    let work = ScriptedWork::new(|run| match run.message_id.parse::<u8>() {
        Ok(0..20) => Action::FailPermanently,
        Ok(_) | Err(_) => Action::Return(b""),
    });
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let messages: Vec<_> = (0..40).map(|number| Message::new(number.to_string(), "a payment")).collect();
    let reports = batch.run(&messages, Deadline::within(Duration::from_secs(15))).await.unwrap();
    let done = reports.iter().filter(|report| report.disposition == Disposition::Done);
    assert_eq!(done.count(), 20, "{reports:?}");
}

#[tokio::test]
async fn a_visibility_timeout_that_sqs_refuses_for_another_reason_is_asked_for_once() {
    let brief = Duration::from_secs(1);
    let settings =
        QueueSettings { name: "payments.fifo".into(), visibility_timeout: brief, ..QueueSettings::default() };
    let queue = Queue::new(settings, 1);
    queue.send(SendRequest::new("a payment").group("account-1").deduplication_id("d1")).unwrap();
    let expired = queue.receive(1).remove(0).receipt_handle;
    pause();
    advance(2 * brief).await;
    resume();
    for handle in ["unknown", &expired] {
        let sqs = SqsApi::start(&[&queue]).await;
        let mut message = Message::new("m1", "a payment");
        (message.receipt_handle, message.queue_arn) = (Some(handle.into()), Some(queue.arn()));
        let hours = Duration::from_secs(9 * 3600);
        Visibility::new(config(&sqs.endpoint()))
            .change(&[(&message, hours)], Instant::now() + Duration::from_secs(60))
            .await;
        assert_eq!(sqs.calls("ChangeMessageVisibilityBatch").len(), 1, "the receipt handle is invalid");
    }
}

#[tokio::test]
async fn a_letter_is_sent_to_the_region_of_its_queue() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = config(&format!("http://{}", listener.local_addr().unwrap()));
    let mut settings = BatchSettings::default();
    settings.dead_letter_queue = Some(DeadLetterQueue::new("https://sqs.us-east-1.amazonaws.com/1/letters", config));
    let work = ScriptedWork::always(Action::FailPermanently);
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let mut message = Message::new("m1", "a payment");
    message.queue_arn = Some("arn:aws:sqs:eu-central-1:1:payments".into());
    let request = async {
        let (mut stream, _client) = listener.accept().await.unwrap();
        let mut text = vec![0; 4096];
        let length = stream.read(&mut text).await.unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let messages = [message];
    let run = batch.run(&messages, Deadline::within(Duration::from_secs(10)));
    let (_report, request) = tokio::join!(run, request);
    assert!(request.contains("/us-east-1/sqs/aws4_request"), "{request}");
}

#[tokio::test]
async fn the_clients_of_the_settings_use_the_configuration_that_the_program_loaded() {
    let redis = Redis::start().await;
    let named = |name: &str| Queue::new(QueueSettings { name: name.into(), ..QueueSettings::default() }, 1);
    let (payments, letters) = (named("payments"), named("letters"));
    let sqs = SqsApi::start(&[&payments, &letters]).await;
    let settings = HashMap::from([
        ("REDIS_URL", redis.url()),
        ("IDEMPOTENCY_NAMESPACE", "payments".to_owned()),
        ("IDEMPOTENCY_KEY", "attribute:Payment-Id".to_owned()),
        ("DEAD_LETTER_QUEUE_URL", sqs.queue_url(&letters)),
    ]);
    let mut environment = Environment::new(move |name| settings.get(name).cloned());
    let read = Config::read_with(&mut environment, config(&sqs.endpoint()));
    let settings = environment.finish(read).unwrap();
    let handler = settings.handler(ScriptedWork::always(Action::Return(b""))).unwrap();
    let mut context = Context::default();
    context.deadline = 30_000;
    // It has no key.
    let response = handler.handle(&event([Record::new("m1")]), &context).await.unwrap();
    assert!(response.batch_item_failures.is_empty(), "{response:?}");
    assert_eq!(sqs.calls("SendMessage").len(), 1);
}

/// Each would call Secrets Manager otherwise, and discard what another one has just read.
#[tokio::test]
async fn a_secret_is_read_once_for_all_connections_that_were_rejected_together() {
    let secrets = Secrets::start("first").await;
    let source = SecretCredentials::new(ARN.parse().unwrap(), None, "advice", config(&secrets.url()));
    let old = source.login(None).await.unwrap();
    secrets.set(Some("second"));
    let logins = join_all((0..16).map(|_| source.login(Some(&old)))).await;
    assert!(logins.into_iter().all(|login| login.unwrap().password == "second"));
    assert_eq!(secrets.reads(), 2);
}
