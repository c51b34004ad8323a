//! The Redis access strings of templates/cache.yaml and of the ledger example, on a real server and a real cluster.

use std::fs;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::{Cmd, ErrorKind, ServerErrorKind};
use redis_test::cluster::{RedisCluster, RedisClusterConfiguration};

use harness::redis::{Redis, connect};
use harness::{with, workspace};
use idempotent_sqs::idempotency::{Acquire, Claim, Failure, Settled, Store, StoredResult, error_chain};
use idempotent_sqs::{RedisSettings, RedisStore};
use idempotent_sqs_testing::attempt;

const NAMESPACE: &str = "payments";

/// The namespace of the ledger example.
const LEDGER_NAMESPACE: &str = "payments-ledger";

/// A command since Redis 7.2. It cannot be granted on older servers, whose error the client ignores.
const SINCE_REDIS_7_2: &str = "client|setinfo";

/// The words of the user's access string in the template of the cache or in that of the ledger example.
fn access_string(user: &str) -> Vec<String> {
    let (template, resource, namespace) = match user {
        "LedgerUser" => ("examples/ledger/template.yaml", "RedisUser", LEDGER_NAMESPACE),
        _ => ("templates/cache.yaml", user, NAMESPACE),
    };
    let template = fs::read_to_string(workspace(template)).unwrap();
    let resource = template.split(&format!("\n  {resource}:\n")).nth(1).expect("the template has the user");
    let string = resource.split("AccessString: !Sub").nth(1).unwrap();
    // The text ends with the resource, or with the list of its variables.
    let string = string.split_once(">-\n").unwrap().1.split("\n\n").next().unwrap().split("- Prefix:").next().unwrap();
    let string = string.replace("${Prefix}", namespace).replace("${Consumer}", namespace);
    let words: Vec<_> = string.split_whitespace().map(str::to_owned).collect();
    assert_eq!(words[..2], ["on".to_owned(), format!("~{namespace}:*")], "{user}");
    words
}

/// Creates the user on this server with its access string.
async fn create_user(admin: &mut MultiplexedConnection, user: &str) {
    let mut set_user = redis::cmd("ACL");
    set_user.arg("SETUSER").arg(user).arg(">secret");
    for word in access_string(user) {
        let known = match word.strip_prefix('+') {
            Some(command) => redis::cmd("COMMAND").arg("INFO").arg(command).query_async(admin).await.unwrap(),
            None => vec![redis::Value::Okay],
        };
        if known == [redis::Value::Nil] {
            assert_eq!(word, format!("+{SINCE_REDIS_7_2}"));
        } else {
            set_user.arg(word);
        }
    }
    let () = set_user.query_async(admin).await.unwrap();
}

/// The entries of ACL LOG: commands denied to any user.
async fn denials(admin: &mut MultiplexedConnection) -> Vec<redis::Value> {
    redis::cmd("ACL").arg("LOG").query_async(admin).await.unwrap()
}

fn url(port: u16, user: &str) -> String {
    format!("redis://{user}:secret@127.0.0.1:{port}")
}

fn store(port: u16, cluster: bool) -> RedisStore {
    let url = url(port, "CacheUser").parse().unwrap();
    // Longer than the default, because the test machine may be busy.
    let timeout = Duration::from_secs(5);
    RedisStore::new(&with!(RedisSettings::new(url, NAMESPACE), cluster = cluster, timeout = timeout)).unwrap()
}

async fn acquired(store: &RedisStore, key: &str) -> Claim {
    match store.acquire(attempt(key)).await.unwrap() {
        Acquire::Acquired(claim) => claim,
        other => panic!("not acquired: {other:?}"),
    }
}

/// Calls every operation of the store, also with more records than one script run takes.
async fn use_store(store: &RedisStore) {
    let long = "k".repeat(300);
    for key in ["pay_1", &long] {
        let claim = acquired(store, key).await;
        assert!(matches!(store.acquire(attempt(key)).await.unwrap(), Acquire::Conflict { .. }));
        assert_eq!(store.complete(&claim, StoredResult::Inline(b"receipt")).await.unwrap(), Settled::Recorded);
        assert!(matches!(store.acquire(attempt(key)).await.unwrap(), Acquire::Duplicate { .. }));
    }
    let claim = acquired(store, "pay_2").await;
    assert_eq!(store.fail(&claim, Failure::default()).await.unwrap(), Settled::Recorded);
    acquired(store, "pay_2").await;
    let keys: Vec<_> = (0..100).map(|n| format!("many_{n}")).collect();
    let claims = futures_util::future::join_all(keys.iter().map(|key| acquired(store, key))).await;
    let settled =
        futures_util::future::join_all(claims.iter().map(|claim| store.complete(claim, StoredResult::NotKept))).await;
    assert!(settled.into_iter().all(|settled| settled.unwrap() == Settled::Recorded));
}

#[tokio::test]
async fn the_function_works_under_its_access_string_on_one_server() {
    let redis = Redis::start().await;
    let mut admin = redis.connection().await;
    create_user(&mut admin, "CacheUser").await;
    let store = store(redis.port(), false);
    use_store(&store).await;
    let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut admin).await.unwrap();
    let claim = acquired(&store, "after a flush").await;
    store.complete(&claim, StoredResult::NotKept).await.unwrap();
    assert_eq!(denials(&mut admin).await, []);
    has_info_and_asking(&mut admin).await;
}

#[tokio::test]
async fn another_database_than_0_needs_the_right_to_select_it() {
    let redis = Redis::start().await;
    let mut admin = redis.connection().await;
    create_user(&mut admin, "CacheUser").await;
    let url = format!("{}/2", url(redis.port(), "CacheUser")).parse().unwrap();
    let store = RedisStore::new(&RedisSettings::new(url, NAMESPACE)).unwrap();
    let refused = store.acquire(attempt("pay_1")).await.unwrap_err();
    assert!(error_chain(&refused).contains("'select'"), "{}", error_chain(&refused));
    let () = command(&["ACL", "SETUSER", "CacheUser", "+select"]).query_async(&mut admin).await.unwrap();
    acquired(&store, "pay_1").await;
}

#[tokio::test]
async fn the_ledger_has_access_only_to_its_own_keys() {
    let redis = Redis::start().await;
    let mut admin = redis.connection().await;
    create_user(&mut admin, "LedgerUser").await;
    let mut ledger = connect(url(redis.port(), "LedgerUser")).await;
    let () = command(&["SET", "payments-ledger:e-1", "value"]).query_async(&mut ledger).await.unwrap();
    for words in FORBIDDEN.iter().chain(FORBIDDEN_TO_THE_FUNCTION) {
        assert_denied(&mut ledger, words).await;
    }
    assert_denied(&mut ledger, &["GET", "payments:pay_1"]).await;
    create_user(&mut admin, "CacheUser").await;
    let mut function = connect(url(redis.port(), "CacheUser")).await;
    assert_denied(&mut function, &["GET", "payments-ledger:e-1"]).await;
}

#[tokio::test]
async fn the_function_works_under_its_access_string_on_a_cluster() {
    let cluster = tokio::task::spawn_blocking(|| RedisCluster::new(RedisClusterConfiguration::default()));
    let cluster = cluster.await.unwrap();
    let mut admins = Vec::new();
    for server in &cluster.servers {
        let mut admin = connect(format!("redis://{}", server.addr)).await;
        create_user(&mut admin, "CacheUser").await;
        admins.push(admin);
    }
    let port = cluster.servers[0].addr.to_string().rsplit_once(':').unwrap().1.parse().unwrap();
    use_store(&store(port, true)).await;
    for admin in &mut admins {
        assert_eq!(denials(admin).await, []);
        has_info_and_asking(admin).await;
    }
    let connection = ClusterClient::new(vec![url(port, "CacheUser")]).unwrap().get_async_connection().await;
    assert_denied(&mut connection.unwrap(), &["GET", "orders:pay_1"]).await;
}

/// INFO is sent in the background and ASKING only during a slot migration, so the test asks the server whether both are
/// allowed.
async fn has_info_and_asking(admin: &mut MultiplexedConnection) {
    for command in ["INFO", "ASKING"] {
        let mut acl = redis::cmd("ACL");
        let granted: String = acl.arg(&["DRYRUN", "CacheUser", command]).query_async(admin).await.unwrap();
        assert_eq!(granted, "OK");
    }
}

fn command(words: &[&str]) -> Cmd {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command
}

/// Asserts that the server denies the command.
async fn assert_denied(connection: &mut impl redis::aio::ConnectionLike, words: &[&str]) {
    let answer = command(words).query_async::<redis::Value>(connection).await;
    let error = answer.expect_err(&format!("{words:?} is denied"));
    // For a command in a script the error is the script's, with the wording of Redis or of Valkey.
    let by_script = ["The user executing the script can't", "ACL failure in script"];
    let by_script = by_script.iter().any(|words| error.to_string().contains(words));
    assert!(error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) || by_script, "{words:?}: {error}");
}

/// Commands that neither the function nor an operator needs.
const FORBIDDEN: &[&[&str]] = &[
    &["KEYS", "*"],
    &["FLUSHALL"],
    &["FLUSHDB"],
    &["CONFIG", "GET", "maxmemory-policy"],
    &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
    &["ACL", "SETUSER", "CacheUser", "+@all"],
    &["ACL", "LIST"],
    &["SCRIPT", "FLUSH"],
    &["SCRIPT", "KILL"],
    &["FUNCTION", "FLUSH"],
    &["CLIENT", "KILL", "TYPE", "normal"],
    &["CLIENT", "LIST"],
    &["CLIENT", "PAUSE", "1000"],
    &["CLUSTER", "RESET"],
    &["DEBUG", "SLEEP", "1"],
    &["MONITOR"],
    &["SHUTDOWN", "NOSAVE"],
    &["SAVE"],
    &["REPLICAOF", "NO", "ONE"],
    &["SWAPDB", "0", "1"],
    &["RANDOMKEY"],
    &["PUBLISH", "payments:channel", "news"],
    &["SUBSCRIBE", "payments:channel"],
    &["UNLINK", "payments:pay_1"],
    &["EXPIRE", "payments:pay_1", "1"],
    &["PERSIST", "payments:pay_1"],
    &["RENAME", "payments:pay_1", "payments:pay_2"],
    &["COPY", "payments:pay_1", "payments:pay_2"],
    &["DUMP", "payments:pay_1"],
    &["APPEND", "payments:pay_1", "more"],
    &["SETRANGE", "payments:pay_1", "0", "C"],
    &["HSET", "payments:hash", "field", "value"],
    &["GET", "orders:pay_1"],
    &["MGET", "payments:pay_1", "orders:pay_1"],
    &["EVAL", "return redis.call('GET', KEYS[1])", "1", "orders:pay_1"],
    &["EVAL", "return redis.call('GET', 'orders:pay_1')", "1", "payments:pay_1"],
    &["EVAL", "return redis.call('FLUSHALL')", "1", "payments:pay_1"],
    &["EVAL", "return redis.call('EXPIRE', KEYS[1], 1)", "1", "payments:pay_1"],
];

/// Commands that the function does not need.
const FORBIDDEN_TO_THE_FUNCTION: &[&[&str]] = &[
    &["DEL", "payments:pay_1"],
    &["EVAL", "return redis.call('DEL', KEYS[1])", "1", "payments:pay_1"],
    &["SCAN", "0"],
    &["SET", "orders:pay_1", "value"],
    &["EVAL", "return redis.call('SET', KEYS[1], 'value')", "1", "orders:pay_1"],
];

/// Commands that an operator does not need. Only the scripts write records.
const FORBIDDEN_TO_OPERATORS: &[&[&str]] = &[
    &["SET", "payments:pay_1", "value"],
    &["EVAL", "return redis.call('SET', KEYS[1], 'value')", "1", "payments:pay_1"],
    &["DEL", "orders:pay_1"],
];

#[tokio::test]
async fn all_other_commands_are_denied_to_the_function_and_to_operators() {
    let redis = Redis::start().await;
    let mut admin = redis.connection().await;
    for (user, more) in [("CacheUser", FORBIDDEN_TO_THE_FUNCTION), ("OperatorUser", FORBIDDEN_TO_OPERATORS)] {
        create_user(&mut admin, user).await;
        let mut connection = connect(url(redis.port(), user)).await;
        for words in FORBIDDEN.iter().chain(more) {
            assert_denied(&mut connection, words).await;
        }
    }
}

#[tokio::test]
async fn operators_can_inspect_and_forget_records_under_their_access_string() {
    let redis = Redis::start().await;
    let mut admin = redis.connection().await;
    create_user(&mut admin, "CacheUser").await;
    create_user(&mut admin, "OperatorUser").await;
    use_store(&store(redis.port(), false)).await;
    let mut operator = connect(url(redis.port(), "OperatorUser")).await;
    let (_, keys): (String, Vec<String>) =
        command(&["SCAN", "0", "MATCH", "payments:*", "COUNT", "10000"]).query_async(&mut operator).await.unwrap();
    assert_eq!(keys.len(), 103);
    let forget = "if redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('TIME') then \
                  return redis.call('DEL', KEYS[1]) end return 0";
    let record: Vec<u8> = command(&["GET", "payments:pay_1"]).query_async(&mut operator).await.unwrap();
    let mut forget = command(&["EVAL", forget, "1", "payments:pay_1"]);
    let forgotten: u32 = forget.arg(record).query_async(&mut operator).await.unwrap();
    assert_eq!(forgotten, 1);
    for words in [["PTTL", "payments:pay_2"].as_slice(), &["MEMORY", "USAGE", "payments:pay_2"], &["DBSIZE"]] {
        assert!(command(words).query_async::<u64>(&mut operator).await.unwrap() > 0);
    }
    let state: String = command(&["GETRANGE", "payments:pay_2", "0", "0"]).query_async(&mut operator).await.unwrap();
    assert_eq!(state, "P");
    let () = command(&["INFO"]).query_async(&mut operator).await.unwrap();
    assert_eq!(denials(&mut admin).await, []);
}
