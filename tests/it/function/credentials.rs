//! Credentials for Redis: IAM tokens and secrets, their renewal and their errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use redis::aio::MultiplexedConnection;
use redis_test::cluster::{RedisCluster, RedisClusterConfiguration};
use serde_json::json;

use super::{NO_FAILURES, function, pay};
use harness::elasticache::{CACHE, ElastiCache, Token, USER};
use harness::event::event;
use harness::http::{Answer, Request, Server, Sqs, Webhook};
use harness::lambda::{Function, PASSWORD};
use harness::redis::{Redis, connect};
use harness::secrets::{ARN, Secrets};
use harness::until;

type Settings<'a> = &'a [(&'a str, &'a str)];

/// A function, and the servers that it uses except Redis.
struct Fixture {
    function: Function,
    _webhook: Webhook,
    _sqs: Sqs,
}

impl Fixture {
    async fn start(url: &str, settings: Settings<'_>) -> Self {
        let (webhook, sqs) = (Webhook::start().await, Sqs::start().await);
        // The first TLS handshake of a debug build is slow.
        let settings = [&[("REDIS_TIMEOUT_MS", "5000")], settings].concat();
        let function = function(url, &webhook, &sqs, &settings).await;
        Self { function, _webhook: webhook, _sqs: sqs }
    }

    /// A function that authenticates with IAM tokens.
    async fn with_iam(cache: &ElastiCache, settings: Settings<'_>) -> Self {
        let iam = [("REDIS_IAM_USER", USER), ("REDIS_IAM_CACHE", CACHE), ("SSL_CERT_FILE", cache.certificate())];
        Self::start(&cache.url(), &[&iam, settings].concat()).await
    }

    /// A function that authenticates with a secret.
    async fn with_secret(redis: &str, secrets: &Secrets, settings: Settings<'_>) -> Self {
        let endpoint = secrets.url();
        let secret = [("REDIS_SECRET_ARN", ARN), ("AWS_ENDPOINT_URL_SECRETS_MANAGER", endpoint.as_str())];
        Self::start(redis, &[&secret, settings].concat()).await
    }

    async fn succeeds(&self) {
        assert_eq!(self.function.answer(ten_messages()).await, NO_FAILURES);
    }

    async fn fails(&self) -> String {
        self.function.error(ten_messages()).await
    }
}

/// An endpoint for the AWS credentials of a container.
struct CredentialsEndpoint {
    requests: Arc<AtomicUsize>,
    address: String,
    _server: Server,
}

impl CredentialsEndpoint {
    /// Returns these secret keys one after another, and then always the last one.
    async fn start(expiration: &str, keys: &'static [&'static str]) -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let (count, expiration) = (Arc::clone(&requests), expiration.to_owned());
        let server = Server::start(move |_: Request| {
            let key = keys[count.fetch_add(1, Ordering::SeqCst).min(keys.len() - 1)];
            let keys = json!({ "AccessKeyId": "test", "SecretAccessKey": key, "Token": "t", "Expiration": expiration });
            async move { Answer::with(200, &[("Content-Type", "application/json")], keys.to_string().as_bytes()) }
        })
        .await;
        Self { requests, address: format!("http://{}/credentials", server.address()), _server: server }
    }

    fn settings(&self) -> [(&str, &str); 3] {
        [
            ("AWS_ACCESS_KEY_ID", ""),
            ("AWS_SECRET_ACCESS_KEY", ""),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &self.address),
        ]
    }
}

/// Ten messages, so that each node of a cluster has at least one.
fn ten_messages() -> String {
    event((0..10).map(|n| pay(&format!("m{n}"), &format!("pay_{n}"))))
}

/// Waits for the next whole second and returns it. The times of tokens are in whole seconds, so earlier tokens have an
/// earlier time.
async fn next_second() -> SystemTime {
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let next = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds(SystemTime::now()) + 1);
    tokio::time::sleep(next.duration_since(SystemTime::now()).unwrap_or_default()).await;
    next
}

fn assert_all_valid(tokens: &[Token]) {
    assert!(!tokens.is_empty());
    assert!(tokens.iter().all(|token| token.fault.is_none()), "{tokens:?}");
}

#[tokio::test]
async fn a_token_authenticates_to_the_cache_and_the_connection_is_reused() {
    for (cache, is_serverless) in
        [(ElastiCache::start().await, "false"), (ElastiCache::start_serverless().await, "true")]
    {
        // The cache's name is converted to lower case.
        let fixture = Fixture::with_iam(
            &cache,
            &[
                ("REDIS_IAM_CACHE", "Idempotency"),
                ("REDIS_IAM_SERVERLESS", is_serverless),
                ("REDIS_CLUSTER", is_serverless),
                ("AWS_SESSION_TOKEN", "a+b/c=="),
            ],
        )
        .await;
        fixture.succeeds().await;
        let tokens = cache.nodes[0].tokens();
        assert_all_valid(&tokens);
        fixture.succeeds().await;
        assert_eq!(cache.nodes[0].tokens().len(), tokens.len());
        assert!(tokens[0].text.contains("&X-Amz-Security-Token=a%2Bb%2Fc%3D%3D"), "{tokens:?}");
    }
}

#[tokio::test]
async fn each_connection_has_a_newly_signed_token_even_after_a_freeze() {
    let cache = ElastiCache::start().await;
    let node = &cache.nodes[0];
    let fixture = Fixture::with_iam(&cache, &[]).await;
    fixture.succeeds().await;
    for round in 1..=2 {
        fixture.function.signal("-STOP");
        let cut = next_second().await;
        node.cut();
        fixture.function.signal("-CONT");
        fixture.succeeds().await;
        let tokens = node.tokens();
        assert_all_valid(&tokens);
        assert_eq!(tokens.len(), 1 + round);
        assert!(tokens[round].signed_at >= cut, "{tokens:?} after {cut:?}");
    }
}

#[tokio::test]
async fn a_connection_is_replaced_at_its_maximum_age_and_not_before() {
    let cache = ElastiCache::start().await;
    let long_lived = Fixture::with_iam(&cache, &[]).await;
    long_lived.succeeds().await;
    assert_eq!(cache.nodes[0].tokens().len(), 1);
    let fixture = Fixture::with_iam(&cache, &[("REDIS_IAM_SESSION_SECONDS", "1")]).await;
    fixture.succeeds().await;
    // The age is measured by the wall clock, also while the process is stopped.
    fixture.function.signal("-STOP");
    next_second().await;
    let resumed = next_second().await;
    fixture.function.signal("-CONT");
    fixture.succeeds().await;
    cache.nodes[0].tokens_since(resumed).await;

    let before = cache.nodes[0].tokens().len();
    long_lived.succeeds().await;
    let tokens = cache.nodes[0].tokens();
    assert_eq!(tokens.len(), before);
    assert_all_valid(&tokens);
}

#[tokio::test]
async fn each_connection_to_a_cluster_node_has_a_newly_signed_token() {
    let cache = ElastiCache::start_cluster().await;
    let fixture = Fixture::with_iam(&cache, &[("REDIS_CLUSTER", "true")]).await;
    fixture.succeeds().await;
    for cut_nodes in [&cache.nodes[..], &cache.nodes[1..], &cache.nodes[..1]] {
        let cut = next_second().await;
        for node in cut_nodes {
            node.cut();
        }
        fixture.succeeds().await;
        for node in cut_nodes {
            let tokens = node.tokens_since(cut).await;
            assert_all_valid(&tokens);
            let is_new = |token: &Token| token.signed_at >= cut || token.connected_at < cut;
            assert!(tokens.iter().all(is_new), "{tokens:?}");
        }
    }
}

#[tokio::test]
async fn a_rejected_token_is_an_error_that_names_what_to_check() {
    let (single, cluster) = (ElastiCache::start().await, ElastiCache::start_cluster().await);
    for (cache, is_cluster) in [(&single, "false"), (&cluster, "true")] {
        // Without a cluster, it is refused at the start.
        let serverless = (is_cluster == "true").then_some(("REDIS_IAM_SERVERLESS", "true"));
        for invalid in [("REDIS_IAM_CACHE", "another"), ("REDIS_IAM_USER", "another")].into_iter().chain(serverless) {
            let fixture = Fixture::with_iam(cache, &[("REDIS_CLUSTER", is_cluster), invalid]).await;
            let error = fixture.fails().await;
            assert!(error.contains("ElastiCache rejected the IAM token: check that REDIS_IAM_USER is in"), "{error}");
            let tokens = cache.nodes[0].tokens();
            assert!(tokens.iter().all(|token| token.fault.is_some()), "{tokens:?}");
        }
    }
}

#[tokio::test]
async fn without_aws_credentials_or_a_region_the_error_names_what_is_missing() {
    let cache = ElastiCache::start().await;
    for (missing, expected) in [
        (
            [("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")],
            "give the process a role, or set AWS_ACCESS_KEY_ID",
        ),
        ([("AWS_REGION", ""), ("AWS_DEFAULT_REGION", "")], "set AWS_REGION"),
    ] {
        for is_cluster in ["false", "true"] {
            let fixture = Fixture::with_iam(&cache, &[&missing[..], &[("REDIS_CLUSTER", is_cluster)]].concat()).await;
            let error = fixture.fails().await;
            assert!(error.contains(expected), "{error}");
        }
    }
    assert!(cache.nodes[0].tokens().is_empty());
}

#[tokio::test]
async fn aws_credentials_are_fetched_again_near_their_expiration_and_not_for_each_connection() {
    let cache = ElastiCache::start_cluster().await;
    let (future, past) = ("2100-01-01T00:00:00Z".to_owned(), "2020-01-01T00:00:00Z".to_owned());
    // Credentials that expire within a minute are fetched again.
    let soon = DateTime::from(SystemTime::now() + Duration::from_secs(50)).fmt(Format::DateTime).unwrap();
    for (expiration, reused) in [(future, true), (soon, false), (past, false)] {
        let endpoint = CredentialsEndpoint::start(&expiration, &["test"]).await;
        let settings = [&[("REDIS_CLUSTER", "true")], &endpoint.settings()[..]].concat();
        let fixture = Fixture::with_iam(&cache, &settings).await;
        fixture.succeeds().await;
        for node in &cache.nodes {
            node.cut();
        }
        fixture.succeeds().await;
        let requests = endpoint.requests.load(Ordering::SeqCst);
        assert!(
            if reused { requests == 1 } else { requests > 1 },
            "{requests} requests for credentials that expire at {expiration}"
        );
    }
    cache.nodes.iter().for_each(|node| assert_all_valid(&node.tokens()));
}

#[tokio::test]
async fn rejected_aws_credentials_are_fetched_again() {
    let cache = ElastiCache::start().await;
    let endpoint = CredentialsEndpoint::start("2100-01-01T00:00:00Z", &["revoked", "test"]).await;
    Fixture::with_iam(&cache, &endpoint.settings()).await.succeeds().await;
    assert_eq!(endpoint.requests.load(Ordering::SeqCst), 2);
    assert_eq!(cache.nodes[0].tokens().len(), 2);
}

#[tokio::test]
async fn no_token_is_sent_to_a_cache_with_an_untrusted_certificate() {
    let cache = ElastiCache::start().await;
    // Those of Amazon RDS.
    let others = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/postgres/certificates/rds.pem");
    let fixture = Fixture::with_iam(&cache, &[("SSL_CERT_FILE", others)]).await;
    let error = fixture.fails().await;
    assert!(error.contains("the idempotency store is unavailable"), "{error}");
    assert!(cache.nodes[0].tokens().is_empty());
}

/// A connection of the test as this user.
async fn connect_as(address: &str, login: &str) -> MultiplexedConnection {
    connect(format!("redis://{login}@{address}")).await
}

async fn send(connection: &mut MultiplexedConnection, command: &[&str]) {
    let () = redis::cmd(command[0]).arg(&command[1..]).query_async(connection).await.unwrap();
}

#[tokio::test]
async fn a_secret_has_the_password_or_also_the_user_and_is_read_once() {
    let redis = Redis::start_with(&["--requirepass", PASSWORD]).await;
    let mut admin = connect_as(&format!("127.0.0.1:{}", redis.port()), &format!(":{PASSWORD}")).await;
    send(&mut admin, &["ACL", "SETUSER", "payments", "on", ">of-payments", "~*", "+@all"]).await;
    let host = format!("127.0.0.1:{}", redis.port());
    for (user, secret) in [
        ("", PASSWORD.to_owned()),
        ("", json!({ "password": PASSWORD }).to_string()),
        ("", json!({ "username": "payments", "password": "of-payments" }).to_string()),
        ("payments@", "of-payments".to_owned()),
        ("default@", json!({ "username": "payments", "password": "of-payments" }).to_string()),
    ] {
        let secrets = Secrets::start(&secret).await;
        let fixture = Fixture::with_secret(&format!("redis://{user}{host}"), &secrets, &[]).await;
        fixture.succeeds().await;
        send(&mut admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        fixture.succeeds().await;
        assert_eq!(secrets.reads(), 1);
    }
}

#[tokio::test]
async fn a_rotated_secret_is_read_again_and_the_next_invocation_succeeds() {
    let redis = Redis::start_with(&["--requirepass", "first"]).await;
    let mut admin = connect_as(&format!("127.0.0.1:{}", redis.port()), ":first").await;
    let secrets = Secrets::start("first").await;
    let fixture = Fixture::with_secret(&redis.url(), &secrets, &[]).await;
    fixture.succeeds().await;
    for (round, password) in ["second", "third"].into_iter().enumerate() {
        send(&mut admin, &["CONFIG", "SET", "requirepass", password]).await;
        secrets.set(Some(password));
        send(&mut admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        fixture.succeeds().await;
        assert_eq!(secrets.reads(), 2 + round);
    }
}

#[tokio::test]
async fn a_secret_authenticates_to_each_cluster_node_even_after_its_rotation() {
    let cluster = || RedisCluster::new(RedisClusterConfiguration::default());
    let cluster = tokio::task::spawn_blocking(cluster).await.unwrap();
    let mut admins = Vec::new();
    for server in &cluster.servers {
        let mut admin = connect_as(&server.addr.to_string(), "default:").await;
        send(&mut admin, &["CONFIG", "SET", "requirepass", "first"]).await;
        admins.push(admin);
    }
    let secrets = Secrets::start("first").await;
    let url = format!("redis://{}", cluster.servers[0].addr);
    let fixture = Fixture::with_secret(&url, &secrets, &[("REDIS_CLUSTER", "true")]).await;
    fixture.succeeds().await;
    assert_eq!(secrets.reads(), 1);

    secrets.set(Some("second"));
    for admin in &mut admins {
        send(admin, &["CONFIG", "SET", "requirepass", "second"]).await;
        send(admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    }
    fixture.succeeds().await;
    assert_eq!(secrets.reads(), 2);
}

#[tokio::test]
async fn an_unusable_secret_is_an_error_that_names_the_cause_until_it_is_corrected() {
    let redis = Redis::start_with(&["--requirepass", "open-sesame"]).await;
    let secrets = Secrets::start(PASSWORD).await;
    let fixture = Fixture::with_secret(&redis.url(), &secrets, &[]).await;
    let error = fixture.fails().await;
    assert!(error.contains("Redis rejected the user and password of REDIS_SECRET_ARN"), "{error}");
    // Two attempts, each of which reads the secret again at most once.
    assert!((2..=3).contains(&secrets.reads()), "{}", secrets.reads());
    for (secret, expected) in
        [(None, "may call secretsmanager:GetSecretValue"), (Some(r#"{"token":"SECRET-PASSWORD"}"#), "has no password")]
    {
        secrets.set(secret);
        until(async || fixture.fails().await.contains(expected)).await;
    }
    secrets.set(Some("open-sesame"));
    fixture.succeeds().await;
}

#[tokio::test]
async fn a_login_without_certificates_ends_the_invocation_at_once_and_says_what_to_check() {
    let redis = Redis::start_with(&["--requirepass", PASSWORD]).await;
    let secrets = Secrets::start(PASSWORD).await;
    let directory = tempfile::tempdir().unwrap();
    let settings = [("SSL_CERT_DIR", directory.path().to_str().unwrap())];
    let fixture = Fixture::with_secret(&redis.url(), &secrets, &settings).await;
    let began = Instant::now();
    let error = fixture.fails().await;
    assert!(error.contains("check that SSL_CERT_FILE or SSL_CERT_DIR"), "{error}");
    // Longer than a slow machine takes, and half of the time of the invocation.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
