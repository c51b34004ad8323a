use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

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

/// A function, and all that it talks to but Redis.
struct Fixture {
    function: Function,
    _webhook: Webhook,
    _sqs: Sqs,
}

impl Fixture {
    async fn start(url: &str, settings: Settings<'_>) -> Self {
        let (webhook, sqs) = (Webhook::start().await, Sqs::start().await);
        // The first handshake of a debug build is slow.
        let settings = [&[("REDIS_TIMEOUT_MS", "5000")], settings].concat();
        let function = function(url, &webhook, &sqs, &settings).await;
        Self { function, _webhook: webhook, _sqs: sqs }
    }

    async fn by_iam(cache: &ElastiCache, settings: Settings<'_>) -> Self {
        let iam = [("REDIS_IAM_USER", USER), ("REDIS_IAM_CACHE", CACHE), ("SSL_CERT_FILE", cache.certificate())];
        Self::start(&cache.url(), &[&iam, settings].concat()).await
    }

    async fn by_secret(redis: &str, secrets: &Secrets, settings: Settings<'_>) -> Self {
        let endpoint = secrets.url();
        let secret = [("REDIS_SECRET_ARN", ARN), ("AWS_ENDPOINT_URL_SECRETS_MANAGER", endpoint.as_str())];
        Self::start(redis, &[&secret, settings].concat()).await
    }

    async fn works(&self) {
        assert_eq!(self.function.answer(ten_messages()).await, NO_FAILURES);
    }

    async fn fails(&self) -> String {
        self.function.error(ten_messages()).await
    }
}

/// Where a container has its AWS credentials from.
struct Container {
    asked: Arc<AtomicUsize>,
    address: String,
    _server: Server,
}

impl Container {
    /// It gives these secret keys, one after another, and the last for ever.
    async fn start(end: &'static str, keys: &'static [&'static str]) -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let server = Server::start(move |_: Request| {
            let key = keys[count.fetch_add(1, Ordering::SeqCst).min(keys.len() - 1)];
            let keys = json!({ "AccessKeyId": "test", "SecretAccessKey": key, "Token": "t", "Expiration": end });
            async move { Answer::with(200, &[("Content-Type", "application/json")], keys.to_string().as_bytes()) }
        })
        .await;
        Self { asked, address: format!("http://{}/credentials", server.address()), _server: server }
    }

    fn settings(&self) -> [(&str, &str); 3] {
        [
            ("AWS_ACCESS_KEY_ID", ""),
            ("AWS_SECRET_ACCESS_KEY", ""),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &self.address),
        ]
    }
}

/// So many that a cluster's nodes all have some.
fn ten_messages() -> String {
    event((0..10).map(|n| pay(&format!("m{n}"), &format!("pay_{n}"))))
}

/// A token's time is in whole seconds: the next one that no earlier token can have.
async fn next_second() -> SystemTime {
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let next = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds(SystemTime::now()) + 1);
    tokio::time::sleep(next.duration_since(SystemTime::now()).unwrap_or_default()).await;
    next
}

fn assert_all_good(tokens: &[Token]) {
    assert!(!tokens.is_empty());
    assert!(tokens.iter().all(|token| token.fault.is_none()), "{tokens:?}");
}

#[tokio::test]
async fn a_token_lets_the_function_into_its_cache_and_a_connection_is_kept() {
    for serverless in [false, true] {
        let cache = ElastiCache::start(serverless).await;
        // The cache's name is in lower case, however it was written.
        let fixture = Fixture::by_iam(
            &cache,
            &[
                ("REDIS_IAM_CACHE", "Idempotency"),
                ("REDIS_IAM_SERVERLESS", if serverless { "true" } else { "false" }),
                ("AWS_SESSION_TOKEN", "a+b/c=="),
            ],
        )
        .await;
        fixture.works().await;
        fixture.works().await;
        let tokens = cache.nodes[0].tokens();
        assert_all_good(&tokens);
        assert_eq!(tokens.len(), 1);
        assert!(tokens[0].text.contains("&X-Amz-Security-Token=a%2Bb%2Fc%3D%3D"), "{tokens:?}");
    }
}

#[tokio::test]
async fn each_connection_has_a_token_that_was_signed_for_it_also_after_a_freeze() {
    let cache = ElastiCache::start(false).await;
    let node = &cache.nodes[0];
    let fixture = Fixture::by_iam(&cache, &[]).await;
    fixture.works().await;
    for round in 1..=2 {
        fixture.function.signal("-STOP");
        let cut = next_second().await;
        node.cut();
        fixture.function.signal("-CONT");
        fixture.works().await;
        let tokens = node.tokens();
        assert_all_good(&tokens);
        assert_eq!(tokens.len(), 1 + round);
        assert!(tokens[round].signed_at >= cut, "{tokens:?} after {cut:?}");
    }
}

#[tokio::test]
async fn a_connection_is_made_anew_once_it_is_as_old_as_its_session_may_be_and_not_before() {
    let cache = ElastiCache::start(false).await;
    let patient = Fixture::by_iam(&cache, &[]).await;
    patient.works().await;
    assert_eq!(cache.nodes[0].tokens().len(), 1);
    let fixture = Fixture::by_iam(&cache, &[("REDIS_IAM_SESSION_SECONDS", "1")]).await;
    fixture.works().await;
    // The age is that of the world's clock, not of the time that the process had.
    fixture.function.signal("-STOP");
    next_second().await;
    let thaw = next_second().await;
    fixture.function.signal("-CONT");
    fixture.works().await;
    cache.nodes[0].tokens_since(thaw).await;

    let before = cache.nodes[0].tokens().len();
    patient.works().await;
    let tokens = cache.nodes[0].tokens();
    assert_eq!(tokens.len(), before);
    assert_all_good(&tokens);
}

#[tokio::test]
async fn on_a_cluster_each_nodes_connection_has_a_token_that_was_signed_for_it() {
    let cache = ElastiCache::start_cluster().await;
    let fixture = Fixture::by_iam(&cache, &[("REDIS_CLUSTER", "true")]).await;
    fixture.works().await;
    for cut_nodes in [&cache.nodes[..], &cache.nodes[1..], &cache.nodes[..1]] {
        let cut = next_second().await;
        for node in cut_nodes {
            node.cut();
        }
        fixture.works().await;
        for node in cut_nodes {
            let tokens = node.tokens_since(cut).await;
            assert_all_good(&tokens);
            let fresh = |token: &Token| token.signed_at + Duration::from_secs(1) > token.connected_at;
            assert!(tokens.iter().all(fresh), "{tokens:?}");
        }
    }
}

#[tokio::test]
async fn a_refused_token_is_an_error_that_says_what_to_look_at() {
    let (alone, cluster) = (ElastiCache::start(false).await, ElastiCache::start_cluster().await);
    for (cache, in_a_cluster) in [(&alone, "false"), (&cluster, "true")] {
        for wrong in [("REDIS_IAM_CACHE", "another"), ("REDIS_IAM_SERVERLESS", "true"), ("REDIS_IAM_USER", "another")] {
            let fixture = Fixture::by_iam(cache, &[("REDIS_CLUSTER", in_a_cluster), wrong]).await;
            let error = fixture.fails().await;
            assert!(error.contains("ElastiCache rejected the IAM token: check that REDIS_IAM_USER is in"), "{error}");
            let tokens = cache.nodes[0].tokens();
            assert!(tokens.iter().all(|token| token.fault.is_some()), "{tokens:?}");
        }
    }
}

#[tokio::test]
async fn without_credentials_or_a_region_nothing_is_signed_and_the_error_says_what_is_missing() {
    let cache = ElastiCache::start(false).await;
    for (missing, said) in [
        (
            [("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")],
            "give the process a role, or set AWS_ACCESS_KEY_ID",
        ),
        ([("AWS_REGION", ""), ("AWS_DEFAULT_REGION", "")], "set AWS_REGION"),
    ] {
        for in_a_cluster in ["false", "true"] {
            let fixture = Fixture::by_iam(&cache, &[&missing[..], &[("REDIS_CLUSTER", in_a_cluster)]].concat()).await;
            let error = fixture.fails().await;
            assert!(error.contains(said), "{error}");
        }
    }
    assert!(cache.nodes[0].tokens().is_empty());
}

#[tokio::test]
async fn credentials_that_end_are_fetched_anew_near_their_end_and_not_for_each_node() {
    let cache = ElastiCache::start_cluster().await;
    for (end, few) in [("2100-01-01T00:00:00Z", true), ("2020-01-01T00:00:00Z", false)] {
        let container = Container::start(end, &["test"]).await;
        let settings = [&[("REDIS_CLUSTER", "true")], &container.settings()[..]].concat();
        Fixture::by_iam(&cache, &settings).await.works().await;
        let asked = container.asked.load(Ordering::SeqCst);
        assert!(if few { asked == 1 } else { asked > 1 }, "{asked} for credentials until {end}");
    }
    cache.nodes.iter().for_each(|node| assert_all_good(&node.tokens()));
}

#[tokio::test]
async fn credentials_that_were_refused_are_fetched_anew() {
    let cache = ElastiCache::start(false).await;
    let container = Container::start("2100-01-01T00:00:00Z", &["taken back", "test"]).await;
    Fixture::by_iam(&cache, &container.settings()).await.works().await;
    assert_eq!(container.asked.load(Ordering::SeqCst), 2);
    assert_eq!(cache.nodes[0].tokens().len(), 2);
}

#[tokio::test]
async fn no_token_is_given_to_a_cache_whose_certificate_is_not_trusted() {
    let cache = ElastiCache::start(false).await;
    let fixture = Fixture::by_iam(&cache, &[("SSL_CERT_FILE", "/dev/null")]).await;
    let error = fixture.fails().await;
    assert!(error.contains("the idempotency store is unavailable"), "{error}");
    assert!(cache.nodes[0].tokens().is_empty());
}

/// A connection of the test's own, as this user.
async fn signed_in(address: &str, login: &str) -> MultiplexedConnection {
    connect(format!("redis://{login}@{address}")).await
}

async fn tell(connection: &mut MultiplexedConnection, command: &[&str]) {
    let () = redis::cmd(command[0]).arg(&command[1..]).query_async(connection).await.unwrap();
}

#[tokio::test]
async fn a_secret_is_the_password_or_names_the_user_too_and_is_read_once() {
    let redis = Redis::start_with(&["--requirepass", PASSWORD]).await;
    let mut admin = signed_in(&format!("127.0.0.1:{}", redis.port()), &format!(":{PASSWORD}")).await;
    tell(&mut admin, &["ACL", "SETUSER", "payments", "on", ">of-payments", "~*", "+@all"]).await;
    let host = format!("127.0.0.1:{}", redis.port());
    for (user, secret) in [
        ("", PASSWORD.to_owned()),
        ("", json!({ "password": PASSWORD }).to_string()),
        ("", json!({ "username": "payments", "password": "of-payments" }).to_string()),
        ("payments@", "of-payments".to_owned()),
        ("default@", json!({ "username": "payments", "password": "of-payments" }).to_string()),
    ] {
        let secrets = Secrets::start(&secret).await;
        let fixture = Fixture::by_secret(&format!("redis://{user}{host}"), &secrets, &[]).await;
        fixture.works().await;
        tell(&mut admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        fixture.works().await;
        assert_eq!(secrets.reads(), 1);
    }
}

#[tokio::test]
async fn a_rotated_secret_is_read_anew_and_the_very_next_invocation_works() {
    let redis = Redis::start_with(&["--requirepass", "first"]).await;
    let mut admin = signed_in(&format!("127.0.0.1:{}", redis.port()), ":first").await;
    let secrets = Secrets::start("first").await;
    let fixture = Fixture::by_secret(&redis.url(), &secrets, &[]).await;
    fixture.works().await;
    for (round, password) in ["second", "third"].into_iter().enumerate() {
        tell(&mut admin, &["CONFIG", "SET", "requirepass", password]).await;
        secrets.says(Some(password));
        tell(&mut admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        fixture.works().await;
        assert_eq!(secrets.reads(), 2 + round);
    }
}

#[tokio::test]
async fn a_secret_signs_in_to_each_node_of_a_cluster_also_after_its_rotation() {
    let cluster = || RedisCluster::new(RedisClusterConfiguration::default());
    let cluster = tokio::task::spawn_blocking(cluster).await.unwrap();
    let mut admins = Vec::new();
    for server in &cluster.servers {
        let mut admin = signed_in(&server.addr.to_string(), "default:").await;
        tell(&mut admin, &["CONFIG", "SET", "requirepass", "first"]).await;
        admins.push(admin);
    }
    let secrets = Secrets::start("first").await;
    let url = format!("redis://{}", cluster.servers[0].addr);
    let fixture = Fixture::by_secret(&url, &secrets, &[("REDIS_CLUSTER", "true")]).await;
    fixture.works().await;
    assert_eq!(secrets.reads(), 1);

    secrets.says(Some("second"));
    for admin in &mut admins {
        tell(admin, &["CONFIG", "SET", "requirepass", "second"]).await;
        tell(admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    }
    fixture.works().await;
    assert_eq!(secrets.reads(), 2);
}

#[tokio::test]
async fn a_secret_that_is_of_no_use_is_an_error_that_says_why_and_mends_itself() {
    let redis = Redis::start_with(&["--requirepass", "open-sesame"]).await;
    let secrets = Secrets::start(PASSWORD).await;
    let fixture = Fixture::by_secret(&redis.url(), &secrets, &[]).await;
    let error = fixture.fails().await;
    assert!(error.contains("Redis rejected the user and password of REDIS_SECRET_ARN"), "{error}");
    // Two tries, each of which reads it anew at most once.
    assert!((2..=3).contains(&secrets.reads()), "{}", secrets.reads());
    for (secret, said) in
        [(None, "may call secretsmanager:GetSecretValue"), (Some(r#"{"token":"SECRET-PASSWORD"}"#), "has no password")]
    {
        secrets.says(secret);
        until(async || fixture.fails().await.contains(said)).await;
    }
    secrets.says(Some("open-sesame"));
    fixture.works().await;
}
