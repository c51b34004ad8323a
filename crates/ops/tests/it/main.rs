//! The operator's tool, by its binary. Test names are sentences.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer must fail the test")]
#![allow(clippy::unchecked_time_subtraction, reason = "tests subtract known times")]

/// The removal of one record, which is the one that was seen.
mod forget;
/// Who may do what, and what is said of what one may not.
mod rights;
/// All records, met once each, on one server and on a cluster.
mod scans;
/// Sign-in with an IAM token.
mod sign_in;

use std::time::Duration;

use harness::lambda::PASSWORD;
use harness::redis::Redis;
use harness::{TIMEOUT, soon, with};
use idempotent_sqs::config::Environment;
use idempotent_sqs::idempotency::{Acquire, Claim, Failure, Fingerprint, Store, StoredResult};
use idempotent_sqs::stores::{RedisSettings, RedisStore};
use idempotent_sqs_testing::attempt;
use redis::AsyncCommands;
use serde_json::{Value, json};
use tokio::process::Command;

const CLEAN: Failure = Failure { uncertain: false, permanent: false };
const UNCERTAIN: Failure = Failure { uncertain: true, permanent: false };
const PERMANENT: Failure = Failure { uncertain: false, permanent: true };

/// A lease that no test outlives.
const LONG: Duration = Duration::from_secs(60);

/// A lease that ends while a test waits for it.
const SHORT: Duration = Duration::from_millis(20);

/// The tool, as an operator of this consumer has set it up.
struct Tool {
    settings: Vec<(&'static str, String)>,
}

/// What the tool has said.
struct Said {
    code: i32,
    text: String,
    error: String,
}

impl Tool {
    /// On the Redis at this URL, which has a password if it wants one.
    fn on(url: &str) -> Self {
        let timeout = TIMEOUT.as_millis().to_string();
        let settings = [("REDIS_URL", url), ("IDEMPOTENCY_NAMESPACE", "payments"), ("REDIS_TIMEOUT_MS", &timeout)];
        Self { settings: settings.map(|(name, value)| (name, value.to_owned())).into() }
    }

    fn of(redis: &Redis) -> Self {
        Self::on(&redis.url().replace("://", &format!("://default:{PASSWORD}@")))
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.settings.retain(|(known, _)| *known != name);
        self.settings.push((name, value.to_owned()));
        self
    }

    async fn ask(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_records"));
        command.args(arguments).env_clear().envs(self.settings.iter().cloned());
        let output = soon(command.output()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let said = Said { code: output.status.code().unwrap(), text: text(output.stdout), error: text(output.stderr) };
        assert!(!said.text.contains(PASSWORD) && !said.error.contains(PASSWORD), "{}{}", said.text, said.error);
        said
    }

    /// What it says to a script, with its exit code.
    async fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let said = self.ask(&[arguments, &["--json"]].concat()).await;
        let document = serde_json::from_str(&said.text);
        (said.code, document.unwrap_or_else(|error| panic!("{error}: {}{}", said.text, said.error)))
    }

    async fn inspect(&self, key: &str) -> Value {
        let (code, record) = self.json(&["inspect", key]).await;
        assert_eq!(code, 0, "{record}");
        record
    }

    async fn fence(&self, key: &str) -> String {
        self.inspect(key).await["fence"].to_string()
    }

    async fn forget(&self, key: &str, state: &str, fence: &str) -> (i32, Value) {
        self.json(&["forget", key, "--state", state, "--fence", fence]).await
    }

    /// The same place, for what the function does there.
    fn redis_settings(&self) -> RedisSettings {
        let settings = self.settings.clone();
        let value = move |name: &str| settings.iter().find(|(set, _)| *set == name).map(|(_, value)| value.clone());
        let mut environment = Environment::new(value);
        let redis = RedisSettings::read(&mut environment);
        environment.finish(redis).unwrap()
    }

    fn store(&self) -> RedisStore {
        RedisStore::new(&self.redis_settings()).unwrap()
    }
}

impl Said {
    /// The value of a line of the table.
    fn row(&self, name: &str) -> &str {
        let line = self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("  "));
        line.unwrap_or_else(|| panic!("no {name} in {}", self.text)).trim_start()
    }
}

async fn claim(store: &RedisStore, key: &str, lease: Duration) -> Claim {
    match soon(store.acquire(with!(attempt(key), lease = lease))).await.unwrap() {
        Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => claim,
        other => panic!("not acquired: {other:?}"),
    }
}

/// A claim whose lease has ended.
async fn claim_that_died(store: &RedisStore, key: &str) -> Claim {
    let claim = claim(store, key, SHORT).await;
    tokio::time::sleep(SHORT * 2).await;
    claim
}

#[tokio::test]
async fn a_record_in_work_shows_its_owner_and_the_lease_that_remains() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let claim = claim(&tool.store(), "pay_1", LONG).await;
    let record = tool.inspect("pay_1").await;
    assert_eq!(record["key"], "pay_1");
    assert_eq!(record["redis_key"], "payments:pay_1");
    assert_eq!(record["state"], "PROCESSING");
    assert_eq!(record["recovery"], false);
    assert_eq!(record["fence"], claim.fence().0);
    assert_eq!(record["attempts"], 1);
    assert_eq!(record["owner"], claim.asked().owner.to_string());
    assert_eq!(record["fingerprint"], Fingerprint::of(b"payload").to_string());
    assert_eq!(record["result"], Value::Null);
    let (lease, age) = (record["lease_remains_ms"].as_u64().unwrap(), record["age_ms"].as_u64().unwrap());
    assert!((59_900..=60_001).contains(&(lease + age)), "the lease is a minute from the claim: {lease} and {age}");
    let life = record["life_remains_ms"].as_u64().unwrap();
    assert!((599_000..=600_001).contains(&(life + age)), "{life} and {age}");

    let said = tool.ask(&["inspect", "pay_1"]).await;
    assert_eq!((said.code, said.error.as_str()), (0, ""));
    assert_eq!(said.row("fence"), claim.fence().to_string());
    assert!(said.row("lease").ends_with(" s remain"), "{}", said.text);
    assert!(said.row("life").starts_with("9 min "), "{}", said.text);
    let values: Vec<_> = said.text.lines().map(|line| line[..13].len() - line[..13].trim_end().len()).collect();
    assert!(values.iter().all(|space| *space >= 2), "the values are in one column: {}", said.text);
}

#[tokio::test]
async fn a_lease_that_has_ended_says_so_and_a_recovery_too() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    claim_that_died(&store, "pay_1").await;
    let record = tool.inspect("pay_1").await;
    assert_eq!((&record["state"], &record["lease_remains_ms"]), (&json!("PROCESSING"), &json!(0)));
    let said = tool.ask(&["inspect", "pay_1"]).await;
    assert!(said.row("lease").starts_with("ended ") && said.row("lease").ends_with(" ago"), "{}", said.text);

    claim(&store, "pay_1", LONG).await;
    let record = tool.inspect("pay_1").await;
    assert_eq!((&record["recovery"], &record["attempts"]), (&json!(true), &json!(2)));
}

#[tokio::test]
async fn a_completed_record_shows_its_result_as_text_or_in_base64_or_where_it_is_or_that_it_was_not_kept() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let place = "s3://results/kept/7";
    let cases: [(&str, StoredResult<&[u8]>, Value, &str); 6] = [
        (
            "text",
            StoredResult::Inline("€ 12.50\n".as_bytes()),
            json!({ "bytes": 10, "text": "€ 12.50\n" }),
            "€ 12.50\\n (10 bytes)",
        ),
        ("bytes", StoredResult::Inline(&[0xff, 0]), json!({ "bytes": 2, "base64": "/wA=" }), "/wA= (2 bytes, base64)"),
        (
            "steers",
            StoredResult::Inline(b"\x1b[2J"),
            json!({ "bytes": 4, "base64": "G1sySg==" }),
            "G1sySg== (4 bytes, base64)",
        ),
        ("empty", StoredResult::Inline(b""), json!({ "bytes": 0, "text": "" }), "empty"),
        ("object", StoredResult::Object(place.as_bytes()), json!({ "object": place }), "in s3://results/kept/7"),
        ("none", StoredResult::NotKept, Value::Null, "not kept"),
    ];
    for (key, result, document, row) in cases {
        store.complete(&claim(&store, key, LONG).await, result).await.unwrap();
        let record = tool.inspect(key).await;
        assert_eq!((&record["state"], &record["result"]), (&json!("COMPLETED"), &document));
        assert_eq!(record["result_kept"], result != StoredResult::NotKept);
        assert_eq!(tool.ask(&["inspect", key]).await.row("result"), row);
    }
}

#[tokio::test]
async fn a_failed_record_shows_how_it_failed() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let cases = [(false, false, "clean"), (true, false, "uncertain"), (false, true, "permanent")];
    for (uncertain, permanent, row) in [&cases[..], &[(true, true, "uncertain, permanent")]].concat() {
        let failure = Failure { uncertain, permanent };
        store.fail(&claim(&store, row, LONG).await, failure).await.unwrap();
        let record = tool.inspect(row).await;
        assert_eq!(record["state"], "FAILED");
        assert_eq!((&record["uncertain"], &record["permanent"]), (&json!(uncertain), &json!(permanent)));
        assert_eq!(tool.ask(&["inspect", row]).await.row("failure"), row);
    }
}

#[tokio::test]
async fn a_record_without_an_end_and_one_without_a_fingerprint_say_so() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let without = with!(attempt("pay_1"), fingerprint = Fingerprint::NONE, lease = LONG);
    tool.store().acquire(without).await.unwrap();
    let () = redis.connection().await.persist("payments:pay_1").await.unwrap();
    let record = tool.inspect("pay_1").await;
    assert_eq!((&record["life_remains_ms"], &record["fingerprint"]), (&Value::Null, &Value::Null));
    let said = tool.ask(&["inspect", "pay_1"]).await;
    assert_eq!((said.row("life"), said.row("fingerprint")), ("has no end", "none"));
}

#[tokio::test]
async fn a_long_key_is_found_as_the_log_shows_it_and_by_its_hash() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let key = "k".repeat(201);
    claim(&tool.store(), &key, LONG).await;
    let record = tool.inspect(&key).await;
    let redis_key = record["redis_key"].as_str().unwrap();
    assert!(redis_key.starts_with("payments:sha256:"), "{redis_key}");
    assert_eq!(tool.inspect(redis_key.strip_prefix("payments:").unwrap()).await["fence"], record["fence"]);
}

#[tokio::test]
async fn a_key_without_a_record_is_told_with_a_word_on_the_namespace() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    claim(&tool.store(), "pay_1", LONG).await;
    let said = tool.ask(&["inspect", "pay_1", "--namespace", "refunds"]).await;
    assert_eq!(said.code, 1);
    assert!(
        said.text.contains("no record of pay_1") && said.text.contains("namespace is not refunds"),
        "{}",
        said.text
    );
    let (code, record) = tool.json(&["inspect", "pay_2"]).await;
    assert_eq!((code, &record["state"]), (1, &json!("ABSENT")));
    let by_name = Tool::of(&redis).with("IDEMPOTENCY_NAMESPACE", "").with("AWS_LAMBDA_FUNCTION_NAME", "payments");
    assert_eq!(by_name.inspect("pay_1").await["redis_key"], "payments:pay_1");
}

#[tokio::test]
async fn a_key_cannot_steer_the_terminal() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let key = "pay\x1b[2J\n\u{202e}_\"1\"";
    store.fail(&claim(&store, key, LONG).await, CLEAN).await.unwrap();
    for command in [["inspect", key].as_slice(), &["failed"]] {
        let said = tool.ask(command).await;
        assert!(said.text.contains(r#"pay\u{1b}[2J\n\u{202e}_"1""#), "{}", said.text);
        assert!(!said.text.contains('\x1b') && !said.text.contains('\u{202e}'), "{}", said.text);
    }
    assert_eq!(tool.inspect(key).await["key"], key);
}

#[tokio::test]
async fn what_is_not_a_record_is_named_so_and_never_removed() {
    let redis = Redis::start().await;
    let (tool, mut connection) = (Tool::of(&redis), redis.connection().await);
    let like_a_record = [b"P\x01".as_slice(), &[0; 51]].concat();
    let another_format = [b"C\x02".as_slice(), &[0; 34]].concat();
    let strings: [(&str, &[u8]); 5] = [
        ("text", b"in use"),
        ("empty", b""),
        ("zero", &[0; 52]),
        ("like", &like_a_record),
        ("format", &another_format),
    ];
    for (key, value) in strings {
        let () = connection.set(format!("payments:{key}"), value).await.unwrap();
    }
    let () = connection.hset("payments:hash", "status", "INPROGRESS").await.unwrap();
    for key in strings.map(|(key, _)| key).into_iter().chain(["hash"]) {
        let (code, record) = tool.json(&["inspect", key]).await;
        assert_eq!((code, &record["state"]), (1, &json!("NOT_A_RECORD")), "{key}");
        let (code, answer) =
            tool.json(&["forget", key, "--state", "processing", "--fence", "0", "--even-in-work"]).await;
        assert_eq!((code, &answer["outcome"]), (1, &json!("NOT_A_RECORD")), "{key}");
        assert!(connection.exists::<_, bool>(format!("payments:{key}")).await.unwrap(), "{key}");
    }
}

#[tokio::test]
async fn it_works_with_tls_and_only_with_a_certificate_that_it_knows() {
    let (redis, files) = Redis::start_with_tls().await;
    let tool = Tool::of(&redis).with("SSL_CERT_FILE", files.ca_crt.to_str().unwrap());
    let (code, stats) = tool.json(&["stats"]).await;
    assert_eq!((code, &stats["complete"]), (0, &json!(true)));
    assert_eq!(tool.ask(&["inspect", "pay_1"]).await.code, 1);
    let stranger = Tool::of(&redis);
    let said = stranger.ask(&["inspect", "pay_1"]).await;
    assert!(said.code == 2 && said.error.contains("invalid peer certificate"), "{}", said.error);
}

#[tokio::test]
async fn a_question_that_is_wrong_ends_with_2_and_says_what_is_missing() {
    let nothing = Tool { settings: Vec::new() };
    let said = nothing.ask(&["stats"]).await;
    assert!(said.error.contains("REDIS_URL is missing") && said.error.contains("IDEMPOTENCY_NAMESPACE is missing"));
    assert!(!said.error.contains("TARGET_URL"), "{}", said.error);
    assert_eq!((said.code, said.text.as_str()), (2, ""));
    let tool = Tool::on("redis://127.0.0.1:1");
    let wrongs: [&[&str]; 7] = [
        &["inspect", ""],
        &["forget", "pay_1"],
        &["forget", "pay_1", "--fence", "1"],
        &["forget", "pay_1", "--state", "completed"],
        &["forget", "pay_1", "--state", "completed", "--fence", "x"],
        &["keys"],
        &[],
    ];
    for wrong in wrongs {
        let said = tool.ask(wrong).await;
        assert_eq!((said.code, said.text.as_str()), (2, ""), "{wrong:?}");
        assert!(said.error.contains("Usage: ") || said.error.contains("invalid value"), "{wrong:?}: {}", said.error);
    }
    // A failure is named with how it failed.
    let said = tool.ask(&["forget", "pay_1", "--state", "failed", "--fence", "1"]).await;
    assert!(said.code == 2 && said.error.contains("failed-uncertain"), "{}", said.error);
    let help = tool.ask(&["--help"]).await;
    assert!(help.code == 0 && help.text.contains("inspect") && help.text.contains("REDIS_URL"), "{}", help.text);
}
