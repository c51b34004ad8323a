//! The primary that real sentinels name, before and after a failover.

use idempotent_sqs::credentials::{CredentialsSource, Login, LoginFuture};

use harness::sentinel::{self, Sentinel, Service, is_synchronized};

use super::*;

/// What the error of a call says.
async fn refusal(url: &str) -> String {
    let error = on(url).acquire(attempt("pay_1")).await.unwrap_err();
    assert!(error.is_unavailable() && !error.may_have_run(), "{error:?}");
    std::error::Error::source(&error).unwrap().to_string()
}

/// Claims `before` and completes `done`, and returns the claim once both records are on the replica.
async fn records(store: &RedisStore, replica: &Redis) -> Claim {
    let done = acquired(store, attempt("done")).await;
    store.complete(&done, StoredResult::Inline(b"receipt")).await.unwrap();
    let before = acquired(store, attempt("before")).await;
    let connection = replica.connection().await;
    until(|| {
        let mut connection = connection.clone();
        async move { connection.exists("payments:before").await.unwrap() }
    })
    .await;
    before
}

/// Waits until the store answers, and checks the records after a failover to this server.
async fn continues(store: &RedisStore, claim: &Claim, primary: &Redis) {
    until(|| async { matches!(store.acquire(attempt("done")).await, Ok(Acquire::Duplicate { .. })) }).await;
    assert_eq!(store.complete(claim, StoredResult::NotKept).await.unwrap(), Settled::Recorded);
    acquired(store, attempt("after")).await;
    let mut connection = primary.connection().await;
    let state: String = connection.getrange("payments:before", 0, 0).await.unwrap();
    let exists: bool = connection.exists("payments:after").await.unwrap();
    assert!(state == "C" && exists, "recorded on the new primary");
}

#[tokio::test]
async fn calls_continue_on_the_new_primary_after_the_old_one_was_killed() {
    let mut service = Service::start().await;
    let store = on(&service.url());
    let claim = records(&store, &service.servers[1]).await;
    service.servers[0].kill();
    continues(&store, &claim, &service.servers[1]).await;
}

#[tokio::test]
async fn calls_leave_a_primary_that_hangs() {
    let service = Service::start().await;
    let store = on(&service.url());
    let claim = records(&store, &service.servers[1]).await;
    service.servers[0].signal("-STOP");
    continues(&store, &claim, &service.servers[1]).await;
    service.servers[0].signal("-CONT");
}

#[tokio::test]
async fn the_next_call_leaves_a_primary_that_a_manual_failover_demoted() {
    let service = Service::start().await;
    let store = on(&service.url());
    let claim = records(&store, &service.servers[1]).await;
    let () = service.sentinels[0].call(&["FAILOVER", sentinel::SERVICE]).await.unwrap();
    service.is_primary(&service.servers[1]).await;
    // The sentinels leave the old primary as it is for a while.
    is_synchronized(&service.servers[0]).await;
    assert_eq!(store.complete(&claim, StoredResult::NotKept).await.unwrap(), Settled::Recorded);
    continues(&store, &claim, &service.servers[1]).await;
}

#[tokio::test]
async fn sentinels_that_are_down_or_silent_delay_nothing_if_a_majority_replies() {
    let redis = Redis::start().await;
    let (silent, alive) = (Sentinel::watch(&redis, 1).await, Sentinel::watch(&redis, 1).await);
    let others = [Sentinel::watch(&redis, 1).await, Sentinel::watch(&redis, 1).await];
    silent.signal("-STOP");
    let url = sentinel::url(&[closed_port(), silent.port(), alive.port(), others[0].port(), others[1].port()]);
    let settings = with!(RedisSettings::new(url.parse().unwrap(), "payments"), timeout = Duration::from_secs(15));
    let asked = std::time::Instant::now();
    acquired(&RedisStore::new(&settings).unwrap(), attempt("pay_1")).await;
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn one_sentinel_that_replies_is_enough() {
    let redis = Redis::start().await;
    let (silent, alive) = (Sentinel::watch(&redis, 1).await, Sentinel::watch(&redis, 1).await);
    silent.signal("-STOP");
    acquired(&on(&sentinel::url(&[closed_port(), silent.port(), alive.port()])), attempt("pay_1")).await;
}

#[tokio::test]
async fn a_sentinel_with_an_older_configuration_is_not_believed() {
    let (service, old) = (Service::start().await, Redis::start().await);
    let stale = Sentinel::watch(&old, 2).await;
    let () = service.sentinels[0].call(&["FAILOVER", sentinel::SERVICE]).await.unwrap();
    service.is_primary(&service.servers[1]).await;
    let mut ports = vec![stale.port()];
    ports.extend(service.sentinels.iter().map(Sentinel::port));
    for number in 0..20 {
        // A new connection each.
        acquired(&on(&sentinel::url(&ports)), attempt(&format!("pay_{number}"))).await;
    }
    let records: u64 = redis::cmd("DBSIZE").query_async(&mut old.connection().await).await.unwrap();
    assert_eq!(records, 0);
}

#[tokio::test]
async fn a_replica_that_a_sentinel_names_is_not_used() {
    let primary = Redis::start_with(&["--repl-diskless-sync-delay", "0"]).await;
    let old = Redis::start_with(&["--replicaof", "127.0.0.1", &primary.port().to_string()]).await;
    is_synchronized(&old).await;
    // Two sentinels would have to agree before these change their minds.
    let (stale, current) = (Sentinel::watch(&old, 2).await, Sentinel::watch(&primary, 2).await);
    let refused = refusal(&sentinel::url(&[stale.port()])).await;
    assert!(refused.contains(&format!("127.0.0.1:{}, which is not a primary", old.port())), "{refused}");
    acquired(&on(&sentinel::url(&[stale.port(), current.port()])), attempt("pay_1")).await;
}

#[tokio::test]
async fn an_unknown_service_and_sentinels_that_do_not_reply_have_their_own_errors() {
    let redis = Redis::start().await;
    let sentinel = Sentinel::watch(&redis, 1).await;
    let unknown = |sentinels: &[u16]| sentinel::url(sentinels).replace(sentinel::SERVICE, "other");
    let refused = refusal(&unknown(&[sentinel.port()])).await;
    assert_eq!(refused, "no sentinel knows the service other: check its name in REDIS_URL");
    let refused = refusal(&unknown(&[sentinel.port(), 1])).await;
    assert!(refused.starts_with("no sentinel knows the service other, and some did not reply: "), "{refused}");
    let refused = refusal(&sentinel::url(&[1, 2])).await;
    assert!(refused.starts_with("none of 2 sentinels replied: ") && refused.contains("refused"), "{refused}");
    sentinel.signal("-STOP");
    let refused = refusal(&sentinel::url(&[sentinel.port()])).await;
    assert!(refused.starts_with("none of 1 sentinels replied: no reply"), "{refused}");
    // A server is not a sentinel.
    let refused = refusal(&sentinel::url(&[redis.port()])).await;
    assert!(refused.starts_with("none of 1 sentinels replied: ") && refused.contains("SENTINEL"), "{refused}");
}

#[tokio::test]
async fn sentinels_and_servers_have_separate_logins() {
    let redis = Redis::start_with(&["--requirepass", "of-the-server"]).await;
    let sentinel = Sentinel::watch(&redis, 1).await;
    sentinel.require_password("of-the-sentinel").await;
    let url = |server: &str, sentinel_login: &str| {
        format!("redis+sentinel://:{server}@127.0.0.1:{}/mymaster{sentinel_login}", sentinel.port())
    };
    acquired(&on(&url("of-the-server", "?sentinel_password=of-the-sentinel")), attempt("pay_1")).await;
    let refused = refusal(&url("of-the-server", "")).await;
    assert!(refused.starts_with("none of 1 sentinels replied: ") && refused.contains("NOAUTH"), "{refused}");
    let refused = refusal(&url("wrong", "?sentinel_password=of-the-sentinel")).await;
    assert!(refused.starts_with("Redis rejected the user and password of REDIS_URL"), "{refused}");
}

/// A secret that was rotated: its first password is the old one.
#[derive(Debug)]
struct Rotated;

impl CredentialsSource for Rotated {
    fn login<'a>(&'a self, rejected: Option<&'a Login>) -> LoginFuture<'a> {
        let password = if rejected.is_some() { "new" } else { "old" };
        Box::pin(async move { Ok(Login { user: None, password: password.to_owned() }) })
    }
}

#[tokio::test]
async fn a_source_of_logins_is_asked_again_after_the_primary_rejected_one() {
    let redis = Redis::start_with(&["--requirepass", "new"]).await;
    let sentinel = Sentinel::watch(&redis, 1).await;
    let url = format!("redis+sentinel://127.0.0.1:{}/mymaster", sentinel.port());
    let settings = RedisSettings::new(url.parse().unwrap(), "payments");
    let settings = with!(settings, credentials = Some(std::sync::Arc::new(Rotated)));
    acquired(&RedisStore::new(&settings).unwrap(), attempt("pay_1")).await;
}

#[tokio::test]
async fn the_user_needs_the_command_role_besides_those_of_other_servers() {
    let redis = Redis::start().await;
    let sentinel = Sentinel::watch(&redis, 1).await;
    let page = std::fs::read_to_string(harness::workspace("docs/security.md")).unwrap();
    let user = page.split("ACL SETUSER payments on >PASSWORD ").nth(1).unwrap().lines().next().unwrap();
    let mut admin = redis.connection().await;
    let mut set_user = redis::cmd("ACL");
    set_user.arg(&["SETUSER", "payments", "on", ">PASSWORD"]);
    // It cannot be granted before Redis 7.2.
    set_user.arg(user.split(' ').filter(|word| *word != "+client|setinfo").collect::<Vec<_>>());
    let () = set_user.query_async(&mut admin).await.unwrap();
    let url = format!("redis+sentinel://payments:PASSWORD@127.0.0.1:{}/mymaster", sentinel.port());
    let refused = refusal(&url).await;
    assert!(refused.contains("no permissions to run the 'role' command"), "{refused}");
    let () = set_user.arg("+role").query_async(&mut admin).await.unwrap();
    acquired(&on(&url), attempt("pay_1")).await;
}

#[tokio::test]
async fn a_primary_without_enough_replicas_refuses_claims_and_is_connected_anew() {
    let options = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"];
    let primary = Redis::start_with(&[&["--repl-diskless-sync-delay", "0"], &options[..]].concat()).await;
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &primary.port().to_string()]).await;
    is_synchronized(&replica).await;
    let store = on(&primary.url());
    until(|| async { store.acquire(attempt("pay_1")).await.is_ok() }).await;
    let mut observer = primary.connection().await;
    let mut connections = async || -> u64 {
        let stats: redis::InfoDict = redis::cmd("INFO").arg("stats").query_async(&mut observer).await.unwrap();
        stats.get("total_connections_received").unwrap()
    };
    let before = connections().await;
    // As in a partition: the connection stays open.
    replica.signal("-STOP");
    let refused = tokio::sync::OnceCell::new();
    until(|| async {
        let answer = store.acquire(attempt(&getrandom::u32().unwrap().to_string())).await;
        answer.is_err_and(|error| refused.set(error).is_ok())
    })
    .await;
    replica.signal("-CONT");
    let error = refused.get().unwrap();
    let cause = std::error::Error::source(error).unwrap().to_string();
    assert!(cause.contains("NOREPLICAS") && !error.may_have_run(), "{error:?}: {cause}");
    // The second try asks the sentinels again, if there are any.
    assert!(connections().await > before);
}

#[test]
fn a_sentinel_url_has_no_cluster_protocol() {
    let settings = RedisSettings::new(sentinel::url(&[1]).parse().unwrap(), "payments");
    let error = RedisStore::new(&with!(settings, cluster = true)).unwrap_err().to_string();
    assert!(error.contains("turn the cluster protocol off") && !error.contains("PASSWORD"), "{error}");
}

/// Starts a sentinel that names a primary with its epoch, and another one from the second request of a connection on.
/// Returns its port.
async fn sentinel_that_names(known: [(u64, u16); 2]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut bytes, mut asked) = ([0; 4096], 0);
                while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                    let request = String::from_utf8_lossy(&bytes[..length]).into_owned();
                    let (epoch, primary) = known[asked.min(1)];
                    let (epoch, primary) = (epoch.to_string(), primary.to_string());
                    // Each command is an array.
                    let replies = request.split('*').skip(1).map(|command| match command {
                        _ if command.contains("GET-MASTER-ADDR-BY-NAME") => array(["127.0.0.1", &primary]),
                        _ if command.contains("MASTER") => array(["config-epoch", &epoch]),
                        _ => "+OK\r\n".to_owned(),
                    });
                    let replies: String = replies.collect();
                    asked += usize::from(request.contains("SENTINEL"));
                    stream.write_all(replies.as_bytes()).await.unwrap();
                }
            });
        }
    });
    port
}

/// A reply of two texts.
fn array(texts: [&str; 2]) -> String {
    texts.iter().fold("*2\r\n".to_owned(), |reply, text| format!("{reply}${}\r\n{text}\r\n", text.len()))
}

#[tokio::test]
async fn a_failover_while_a_sentinel_is_asked_does_not_make_the_old_primary_the_newest() {
    let (old, new) = (Redis::start().await, Redis::start().await);
    let slow = Front::to(new.port()).await;
    // The old primary would be connected first.
    slow.delay_replies(Duration::from_millis(30));
    let switching = sentinel_that_names([(9, old.port()), (10, slow.port)]).await;
    let current = sentinel_that_names([(10, slow.port); 2]).await;
    let store = on(&format!("redis+sentinel://127.0.0.1:{switching},127.0.0.1:{current}/payments"));
    acquired(&store, attempt("pay_1")).await;
    let [in_old, in_new]: [bool; 2] = [
        old.connection().await.exists("payments:pay_1").await.unwrap(),
        new.connection().await.exists("payments:pay_1").await.unwrap(),
    ];
    assert_eq!((in_old, in_new), (false, true));
}
