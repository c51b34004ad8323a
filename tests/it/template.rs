use std::path::Path;
use std::time::Duration;

use idempotent_sqs::idempotency::{Acquire, Claim, Failure, Settled, Store, StoredResult};
use idempotent_sqs::{RedisSettings, RedisStore};
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::{Cmd, ErrorKind, ServerErrorKind};
use redis_test::cluster::{RedisCluster, RedisClusterConfiguration};

use harness::redis::{Redis, connect};
use harness::with;
use idempotent_sqs_testing::attempt;

const NAMESPACE: &str = "payments";

/// The namespace of the ledger example.
const LEDGERS: &str = "payments-ledger";

/// What a server does not know yet cannot be granted on it: CLIENT SETINFO came with Redis 7.2. Before
/// that the client's is answered with an error, which it takes for nothing.
const NEWER: &str = "client|setinfo";

/// The words of the user's access string, from template.yaml or from the template of the ledger example.
fn access_string(user: &str) -> Vec<String> {
    let (template, resource, namespace) = match user {
        "LedgerUser" => ("examples/ledger/template.yaml", "RedisUser", LEDGERS),
        _ => ("template.yaml", user, NAMESPACE),
    };
    let template = Path::new(env!("CARGO_MANIFEST_DIR")).join(template);
    let template = std::fs::read_to_string(template).unwrap();
    let resource = template.split(&format!("\n  {resource}:\n")).nth(1).expect("the template has the user");
    let string = resource.split("AccessString: !Sub\n").nth(1).unwrap();
    let string = string.split_once(">-\n").unwrap().1.split_once("- Prefix:").unwrap().0;
    let string = string.replace("${Prefix}", namespace);
    let words: Vec<_> = string.split_whitespace().map(str::to_owned).collect();
    assert_eq!(words[..2], ["on".to_owned(), format!("~{namespace}:*")], "{user}");
    words
}

/// Make the user on this server, by its access string alone.
async fn grant(admin: &mut MultiplexedConnection, user: &str) {
    let mut grant = redis::cmd("ACL");
    grant.arg("SETUSER").arg(user).arg(">secret");
    for word in access_string(user) {
        let known = match word.strip_prefix('+') {
            Some(command) => redis::cmd("COMMAND").arg("INFO").arg(command).query_async(admin).await.unwrap(),
            None => vec![redis::Value::Okay],
        };
        if known == [redis::Value::Nil] {
            assert_eq!(word, format!("+{NEWER}"));
        } else {
            grant.arg(word);
        }
    }
    let () = grant.query_async(admin).await.unwrap();
}

/// What was refused on this server, to anybody.
async fn refusals(admin: &mut MultiplexedConnection) -> Vec<redis::Value> {
    redis::cmd("ACL").arg("LOG").query_async(admin).await.unwrap()
}

fn url(port: u16, user: &str) -> String {
    format!("redis://{user}:secret@127.0.0.1:{port}")
}

fn store(port: u16, cluster: bool) -> RedisStore {
    let url = url(port, "CacheUser").parse().unwrap();
    // Longer than the function's own, as a busy machine is no fault of the server's rights.
    let timeout = Duration::from_secs(5);
    RedisStore::new(&with!(RedisSettings::new(url, NAMESPACE), cluster = cluster, timeout = timeout)).unwrap()
}

async fn acquired(store: &RedisStore, key: &str) -> Claim {
    match store.acquire(attempt(key)).await.unwrap() {
        Acquire::Acquired(claim) => claim,
        other => panic!("not acquired: {other:?}"),
    }
}

/// Each verb in each of its ways, and more records than one run of a script takes.
async fn works(store: &RedisStore) {
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
    grant(&mut admin, "CacheUser").await;
    let store = store(redis.port(), false);
    works(&store).await;
    let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut admin).await.unwrap();
    let claim = acquired(&store, "after a flush").await;
    store.complete(&claim, StoredResult::NotKept).await.unwrap();
    assert_eq!(refusals(&mut admin).await, []);
    may_look_and_follow(&mut admin).await;
}

#[tokio::test]
async fn the_ledger_reaches_its_own_keys_only() {
    let redis = Redis::start().await;
    let mut admin = redis.connection().await;
    grant(&mut admin, "LedgerUser").await;
    let mut ledger = connect(url(redis.port(), "LedgerUser")).await;
    let () = command(&["SET", "payments-ledger:e-1", "value"]).query_async(&mut ledger).await.unwrap();
    for words in FORBIDDEN.iter().chain(FORBIDDEN_TO_THE_FUNCTION) {
        refused(&mut ledger, words).await;
    }
    refused(&mut ledger, &["GET", "payments:pay_1"]).await;
    grant(&mut admin, "CacheUser").await;
    let mut function = connect(url(redis.port(), "CacheUser")).await;
    refused(&mut function, &["GET", "payments-ledger:e-1"]).await;
}

#[tokio::test]
async fn the_function_works_under_its_access_string_on_a_cluster() {
    let cluster = tokio::task::spawn_blocking(|| RedisCluster::new(RedisClusterConfiguration::default()));
    let cluster = cluster.await.unwrap();
    let mut admins = Vec::new();
    for server in &cluster.servers {
        let mut admin = connect(format!("redis://{}", server.addr)).await;
        grant(&mut admin, "CacheUser").await;
        admins.push(admin);
    }
    let port = cluster.servers[0].addr.to_string().rsplit_once(':').unwrap().1.parse().unwrap();
    works(&store(port, true)).await;
    for admin in &mut admins {
        assert_eq!(refusals(admin).await, []);
        may_look_and_follow(admin).await;
    }
    let asked = ClusterClient::new(vec![url(port, "CacheUser")]).unwrap().get_async_connection().await;
    refused(&mut asked.unwrap(), &["GET", "orders:pay_1"]).await;
}

/// Nothing waits for the look at the server, and no slot is on its way here. So whether those are granted
/// is asked of the server.
async fn may_look_and_follow(admin: &mut MultiplexedConnection) {
    for command in ["INFO", "ASKING"] {
        let mut may = redis::cmd("ACL");
        let granted: String = may.arg(&["DRYRUN", "CacheUser", command]).query_async(admin).await.unwrap();
        assert_eq!(granted, "OK");
    }
}

fn command(words: &[&str]) -> Cmd {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command
}

async fn refused(connection: &mut impl redis::aio::ConnectionLike, words: &[&str]) {
    let answer = command(words).query_async::<redis::Value>(connection).await;
    let error = answer.expect_err(&format!("{words:?} is refused"));
    // What a script calls is refused by an error of the script, worded as Redis or as Valkey has it.
    let by_script = ["The user executing the script can't", "ACL failure in script"];
    let by_script = by_script.iter().any(|words| error.to_string().contains(words));
    assert!(error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) || by_script, "{words:?}: {error}");
}

/// What nobody has to do who keeps or looks at these records.
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

/// What the function has no need of.
const FORBIDDEN_TO_THE_FUNCTION: &[&[&str]] = &[
    &["DEL", "payments:pay_1"],
    &["EVAL", "return redis.call('DEL', KEYS[1])", "1", "payments:pay_1"],
    &["SCAN", "0"],
    &["SET", "orders:pay_1", "value"],
    &["EVAL", "return redis.call('SET', KEYS[1], 'value')", "1", "orders:pay_1"],
];

/// What an operator has no need of: a record is the scripts' to write.
const FORBIDDEN_TO_OPERATORS: &[&[&str]] = &[
    &["SET", "payments:pay_1", "value"],
    &["EVAL", "return redis.call('SET', KEYS[1], 'value')", "1", "payments:pay_1"],
    &["DEL", "orders:pay_1"],
];

#[tokio::test]
async fn anything_else_is_refused_to_the_function_and_to_operators() {
    let redis = Redis::start().await;
    let mut admin = redis.connection().await;
    for (user, more) in [("CacheUser", FORBIDDEN_TO_THE_FUNCTION), ("OperatorUser", FORBIDDEN_TO_OPERATORS)] {
        grant(&mut admin, user).await;
        let mut connection = connect(url(redis.port(), user)).await;
        for words in FORBIDDEN.iter().chain(more) {
            refused(&mut connection, words).await;
        }
    }
}

#[tokio::test]
async fn operators_look_and_forget_under_their_access_string() {
    let redis = Redis::start().await;
    let mut admin = redis.connection().await;
    grant(&mut admin, "CacheUser").await;
    grant(&mut admin, "OperatorUser").await;
    works(&store(redis.port(), false)).await;
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
    assert_eq!(refusals(&mut admin).await, []);
}
