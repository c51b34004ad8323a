//! Records on a cluster, where those of one shard share script calls.

use futures_util::future::join_all;
use futures_util::join;
use harness::cluster::SmallCluster;
use redis::cluster_routing::Slot;

use super::*;

fn on_cluster(url: &str) -> RedisStore {
    with_timeout(url, harness::TIMEOUT)
}

fn with_timeout(url: &str, timeout: Duration) -> RedisStore {
    let mut settings = RedisSettings::new(url.parse().unwrap(), "payments");
    settings.cluster = true;
    settings.timeout = timeout;
    RedisStore::new(&settings).unwrap()
}

fn attempts(keys: &[String]) -> Vec<AcquireRequest> {
    keys.iter().map(|key| attempt(key)).collect()
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| n.to_string()).collect()
}

/// The slot of a key's record.
fn slot(key: &str) -> u16 {
    let slot = Slot::for_key(format!("payments:{key}"));
    (0..16_384).find(|number| Slot::new(*number) == Some(slot)).unwrap()
}

async fn acquire_all(store: &RedisStore, attempts: &[AcquireRequest]) -> Vec<Claim> {
    soon(join_all(attempts.iter().map(|attempt| acquired(store, attempt.clone())))).await
}

async fn complete_all(store: &RedisStore, claims: &[Claim]) {
    let settled = soon(join_all(claims.iter().map(|claim| store.complete(claim, StoredResult::Inline(b"done"))))).await;
    assert!(settled.iter().all(|settled| matches!(settled, Ok(Settled::Recorded))), "{settled:?}");
}

#[tokio::test]
async fn records_of_one_shard_share_script_calls() {
    let cluster = SmallCluster::start(2).await;
    let store = on_cluster(&cluster.url());
    complete_all(&store, &acquire_all(&store, &attempts(&keys(20))).await).await;
    let (before, pings) = (cluster.calls("evalsha").await, cluster.calls("ping").await);
    let other: Vec<String> = (0..300).map(|n| format!("other {n}")).collect();
    complete_all(&store, &acquire_all(&store, &attempts(&other)).await).await;
    let after = cluster.calls("evalsha").await;
    // About 150 records a node, 64 a call, twice.
    for (before, after) in before.iter().zip(&after) {
        assert!((4..=8).contains(&(after - before)), "{} calls", after - before);
    }
    assert_eq!(cluster.records().await.iter().sum::<usize>(), 320);
    // A PING precedes each shared call, or it could take the ASKING of a redirected record and write a foreign key.
    let made = |before: Vec<u64>, after: Vec<u64>| before.iter().zip(after).map(|(b, a)| a - b).collect::<Vec<_>>();
    assert_eq!(made(pings, cluster.calls("ping").await), made(before, after));
}

#[tokio::test]
async fn the_shards_of_a_cluster_are_the_parts_of_its_store() {
    let cluster = SmallCluster::start(2).await;
    let store = on_cluster(&cluster.url());
    let keys: Vec<_> = keys(20).iter().map(|key| Key::new(key.as_str()).unwrap()).collect();
    let parts = || keys.iter().map(|key| store.part(key)).collect::<Vec<_>>();
    assert_eq!(parts(), [0; 20], "no shard is known");
    acquire_all(&store, &keys.iter().map(|key| attempt(key.as_str())).collect::<Vec<_>>()).await;
    let of_shards: Vec<_> = keys.iter().map(|key| if slot(key.as_str()) < 8192 { 1 } else { 8193 }).collect();
    assert_eq!(parts(), of_shards);
    assert_eq!(std::sync::Arc::new(store).part(&keys[0]), of_shards[0]);
}

#[tokio::test]
async fn a_record_without_another_one_of_its_shard_declares_its_key() {
    let cluster = SmallCluster::start(2).await;
    let store = on_cluster(&cluster.url());
    let on = |first| keys(100).into_iter().find(|key| (slot(key) < 8192) == first).unwrap();
    acquired(&store, attempt("connects")).await;
    let before = cluster.calls("ping").await;
    acquire_all(&store, &attempts(&[on(true), on(false)])).await;
    assert_eq!(cluster.calls("ping").await, before);
}

/// An acquire that was sent without a reply may be executed later, also if no further connection can be opened.
#[tokio::test]
async fn a_record_whose_shared_call_had_no_reply_may_have_been_acquired() {
    let cluster = SmallCluster::start(1).await;
    let store = with_timeout(&cluster.url(), Duration::from_millis(500));
    acquire_all(&store, &attempts(&keys(2))).await;
    cluster.nodes[0].signal("-STOP");
    let answers = soon(join_all(keys(2).iter().map(|key| store.acquire(attempt(key))))).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(StoreError::Unavailable(_)))), "{answers:?}");
}

/// The client of a cluster sends a call again by itself, and returns only the last error.
#[tokio::test]
async fn an_acquire_without_a_reply_may_have_been_executed_also_if_it_was_sent_again_and_rejected() {
    let cluster = SmallCluster::start(1).await;
    let front = Front::to(cluster.nodes[0].port()).await;
    let configure = |name: &'static str, value: String| {
        let cluster = &cluster;
        async move { cluster.ask::<()>(0, &["CONFIG", "SET", name, &value]).await }
    };
    configure("cluster-announce-port", front.port.to_string()).await;
    let store = on_cluster(&format!("redis://127.0.0.1:{}", front.port));
    acquired(&store, attempt("connects")).await;
    front.drop_replies(true);
    let reject_the_next = async {
        until(|| async { cluster.ask::<bool>(0, &["EXISTS", "payments:executed"]).await }).await;
        configure("maxmemory-policy", "noeviction".to_owned()).await;
        configure("maxmemory", "1".to_owned()).await;
        front.drop_replies(false);
        front.cut();
    };
    let (answer, ()) = join!(store.acquire(attempt("executed")), reject_the_next);
    let error = answer.unwrap_err();
    assert!(format!("{error:?}").contains("OOM") && error.may_have_run(), "{error:?}");
}

#[tokio::test]
async fn a_call_that_the_user_of_a_cluster_may_not_execute_was_not_executed() {
    let cluster = SmallCluster::start(2).await;
    for node in 0..2 {
        let limited = ["ACL", "SETUSER", "limited", "on", ">open-sesame", "~*", "+@all", "-evalsha", "-eval"];
        cluster.ask::<()>(node, &limited).await;
    }
    let store = on_cluster(&cluster.url().replace("redis://", "redis://limited:open-sesame@"));
    let error = store.acquire(attempt("pay_1")).await.unwrap_err();
    assert!(error.is_unavailable() && !error.may_have_run(), "{error:?}");
}

/// The client of a cluster sends a call whose connection breaks to another node, which has none of the records.
#[tokio::test]
async fn records_of_a_shared_call_that_reached_two_nodes_may_have_been_acquired() {
    let cluster = SmallCluster::start(2).await;
    let front = Front::to(cluster.nodes[0].port()).await;
    let () = cluster.ask(0, &["CONFIG", "SET", "cluster-announce-port", &front.port.to_string()]).await;
    let store = on_cluster(&format!("redis://127.0.0.1:{}", front.port));
    let tag = keys(20).into_iter().find(|tag| slot(&format!("{{{tag}}}")) < 8192).unwrap();
    // Of one slot, so that they are sent one after another once they are sent alone.
    let of_first = keys(6).into_iter().map(|key| format!("{{{tag}}}{key}")).collect::<Vec<_>>();
    let (before, of_first) = of_first.split_at(3);
    let announced = format!(":{}@", front.port);
    until(|| async { cluster.ask::<String>(1, &["CLUSTER", "NODES"]).await.contains(&announced) }).await;
    // Later calls find their script.
    acquire_all(&store, &attempts(before)).await;
    front.drop_replies(true);
    let end_the_first_node = async {
        let last = format!("payments:{}", of_first[2]);
        until(|| async { cluster.ask::<bool>(0, &["EXISTS", &last]).await }).await;
        front.forward_to(closed_port());
        front.cut();
    };
    let acquires = join_all(of_first.iter().map(|key| store.acquire(attempt(key))));
    let (answers, ()) = soon(async { join!(acquires, end_the_first_node) }).await;
    for answer in answers {
        let error = answer.unwrap_err();
        assert!(error.may_have_run(), "{error:?}");
    }
}

/// After a command of a script on keys of several slots, a node with Valkey 9.0 or 9.1 refuses every script until it is
/// restarted.
#[tokio::test]
async fn no_command_of_a_shared_call_has_keys_of_several_slots() {
    let cluster = SmallCluster::start(1).await;
    let store = on_cluster(&cluster.url());
    complete_all(&store, &acquire_all(&store, &attempts(&keys(20))).await).await;
    let stats: String = cluster.ask(0, &["INFO", "commandstats"]).await;
    assert!(!stats.contains("cmdstat_mget"), "{stats}");
    acquire_all(&store, &attempts(&["alone".to_owned()])).await;
}

/// A tag of keys whose slot is of the first of two nodes.
fn tag_of_first_node() -> String {
    (0..1000).map(|n: u32| format!("{{{n}}}")).find(|tag| slot(tag) < 8192).unwrap()
}

/// A move that was interrupted can leave a slot whose nodes redirect calls to each other.
#[tokio::test]
async fn a_call_that_is_redirected_without_end_is_unavailable_after_its_timeout_and_holds_up_no_other() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let cluster = SmallCluster::start(2).await;
    let store = with_timeout(&cluster.url(), TIMEOUT);
    let tag = tag_of_first_node();
    cluster.start_to_move(slot(&tag), 0, 1).await;
    let _: String = cluster.ask(1, &["CLUSTER", "SETSLOT", &slot(&tag).to_string(), "STABLE"]).await;
    let began = std::time::Instant::now();
    let redirected = async { (store.acquire(attempt(&tag)).await, began.elapsed()) };
    let others = async {
        for n in 0..10 {
            acquired(&store, attempt(&format!("other{n}"))).await;
        }
        began.elapsed()
    };
    let ((answer, after), others_after) = soon(async { join!(redirected, others) }).await;
    assert!(answer.unwrap_err().is_unavailable());
    assert!((TIMEOUT..2 * TIMEOUT).contains(&after), "{after:?}");
    assert!(others_after < TIMEOUT, "{others_after:?}");
}

/// The calls share a connection to the new node, on which each can take the ASKING of another.
#[tokio::test]
async fn concurrent_calls_for_a_slot_that_is_being_moved_all_succeed() {
    let cluster = SmallCluster::start(2).await;
    let store = on_cluster(&cluster.url());
    let tag = tag_of_first_node();
    cluster.start_to_move(slot(&tag), 0, 1).await;
    let caller = async |caller: usize| {
        for n in 0..30 {
            let claim = acquired(&store, attempt(&format!("{tag}{caller}-{n}"))).await;
            assert_eq!(store.complete(&claim, StoredResult::NotKept).await.unwrap(), Settled::Recorded);
        }
    };
    soon(join_all((0..10).map(caller))).await;
    assert_eq!(cluster.records().await, [0, 300]);
}

/// A key in a slot that is being moved has at most one record, on whichever node it is.
#[tokio::test]
async fn records_of_a_slot_that_is_being_moved_are_acquired_once() {
    let cluster = SmallCluster::start(2).await;
    let store = on_cluster(&cluster.url());
    // Keys of one slot of the first node among keys of others.
    let tag = tag_of_first_node();
    let slot = slot(&tag);
    let moving: Vec<String> = (0..20).map(|n| format!("{tag}{n}")).collect();
    let attempts = attempts(&[keys(100), moving.clone()].concat());
    let (known, new) = attempts.split_at(110);
    let first = acquire_all(&store, known).await;

    cluster.start_to_move(slot, 0, 1).await;
    for key in &moving[..5] {
        cluster.move_record(&format!("payments:{key}"), 0, 1).await;
    }
    let again = acquire_all(&store, known).await;
    let fences = |claims: &[Claim]| claims.iter().map(Claim::fence).collect::<Vec<_>>();
    assert_eq!(fences(&again), fences(&first), "the same owners have the same claims");
    let all: Vec<Claim> = again.into_iter().chain(acquire_all(&store, new).await).collect();
    assert_eq!(cluster.records().await.iter().sum::<usize>(), 120);
    complete_all(&store, &all[..60]).await;

    for key in &moving[5..10] {
        cluster.move_record(&format!("payments:{key}"), 0, 1).await;
    }
    cluster.end_move(slot, 0, 1).await;
    complete_all(&store, &all).await;
    assert_eq!(cluster.records().await.iter().sum::<usize>(), 120);
    let duplicates = soon(join_all(attempts.iter().map(|attempt| store.acquire(attempt.clone())))).await;
    assert!(duplicates.iter().all(|answer| matches!(answer, Ok(Acquire::Duplicate { .. }))));
}

#[tokio::test]
async fn a_slot_that_has_moved_is_found_and_its_shard_shares_calls_again() {
    let cluster = SmallCluster::start(2).await;
    let store = on_cluster(&cluster.url());
    let keys = keys(300);
    let claims = acquire_all(&store, &attempts(&keys)).await;
    let moved: Vec<u16> = keys.iter().map(|key| slot(key)).filter(|slot| *slot < 8192).take(20).collect();
    for key in keys.iter().filter(|key| moved.contains(&slot(key))) {
        cluster.start_to_move(slot(key), 0, 1).await;
        cluster.move_record(&format!("payments:{key}"), 0, 1).await;
        cluster.end_move(slot(key), 0, 1).await;
    }
    complete_all(&store, &claims).await;
    assert_eq!(cluster.records().await.iter().sum::<usize>(), 300);

    let before: u64 = cluster.calls("evalsha").await.iter().sum();
    complete_all(&store, &claims).await;
    let after: u64 = cluster.calls("evalsha").await.iter().sum();
    assert!(after - before <= 30, "{} calls", after - before);
}

#[tokio::test]
async fn failures_and_releases_find_a_slot_that_has_moved() {
    let cluster = SmallCluster::start(2).await;
    let store = on_cluster(&cluster.url());
    let keys: Vec<String> = keys(100).into_iter().filter(|key| slot(key) < 8192).take(20).collect();
    let attempts = attempts(&keys);
    let claims = acquire_all(&store, &attempts).await;
    for key in &keys[5..15] {
        cluster.start_to_move(slot(key), 0, 1).await;
        cluster.move_record(&format!("payments:{key}"), 0, 1).await;
        cluster.end_move(slot(key), 0, 1).await;
    }
    let settle = async || {
        let failures = join_all(claims[..10].iter().map(|claim| store.fail(claim, Failure::default())));
        let to_release = attempts[10..].iter().zip(&claims[10..]);
        let releases = join_all(to_release.map(|(attempt, claim)| store.release(attempt, Some(claim))));
        let (failures, releases) = soon(async { join!(failures, releases) }).await;
        let mut settled = failures.into_iter().chain(releases);
        assert!(settled.all(|settled| matches!(settled, Ok(Settled::Recorded))));
    };
    settle().await;
    let before: u64 = cluster.calls("evalsha").await.iter().sum();
    settle().await;
    let after: u64 = cluster.calls("evalsha").await.iter().sum();
    assert_eq!(after - before, 4, "a call on each node for the failures and for the releases");
    assert_eq!(cluster.records().await, [10, 10]);
}

/// The client library sends the calls for a node that does not respond to another one, where they are in vain.
#[tokio::test]
async fn records_of_other_nodes_are_acquired_while_a_node_does_not_respond() {
    let cluster = SmallCluster::start(3).await;
    let store = with_timeout(&cluster.url(), Duration::from_secs(2));
    acquire_all(&store, &attempts(&keys(30))).await;
    // By default, the other nodes refuse all calls once they know that a node has failed. ElastiCache's do not by
    // default.
    for node in 0..2 {
        cluster.ask::<()>(node, &["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    cluster.nodes[2].signal("-STOP");
    for batch in 0..2 {
        let keys: Vec<String> = (0..30).map(|n| format!("{batch} {n}")).collect();
        let answers = soon(join_all(keys.iter().map(|key| store.acquire(attempt(key))))).await;
        let of_others = keys.iter().zip(answers).filter(|(key, _)| slot(key) <= 10_000);
        let late: Vec<_> = of_others.filter(|(_, answer)| answer.is_err()).map(|(key, _)| key).collect();
        // On a slow machine a call may time out behind those for the node. Its message is then delivered again.
        let again = soon(join_all(late.iter().map(|key| store.acquire(attempt(key))))).await;
        assert!(again.iter().all(Result::is_ok), "{late:?}: {again:?}");
    }
}

#[tokio::test]
async fn most_records_of_other_nodes_do_not_wait_while_the_connection_to_a_cluster_is_replaced() {
    let cluster = SmallCluster::start(3).await;
    let store = with_timeout(&cluster.url(), Duration::from_millis(500));
    acquire_all(&store, &attempts(&keys(30))).await;
    for node in 0..2 {
        cluster.ask::<()>(node, &["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    cluster.nodes[2].signal("-STOP");
    let keys = |of_stopped| (0..).map(|n| n.to_string()).filter(move |key| (slot(key) > 10_000) == of_stopped);
    // Each of these drops the connection. A new one waits for the node.
    let of_stopped = async {
        for key in keys(true).skip(30).take(4) {
            assert!(store.acquire(attempt(&key)).await.is_err());
        }
    };
    let mut acquired = 0;
    let of_others = async {
        for key in keys(false).skip(30) {
            acquired += usize::from(store.acquire(attempt(&key)).await.is_ok());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = soon(of_stopped) => {}
        () = of_others => unreachable!(),
    }
    assert!(acquired > 100, "{acquired} records of other nodes were acquired");
}

/// While a new connection is opened, the first try of a call is on the old one, which may still serve other nodes.
#[tokio::test]
async fn the_second_try_of_a_call_is_on_the_new_connection_to_a_cluster() {
    let timeout = Duration::from_secs(1);
    let cluster = SmallCluster::start(1).await;
    let front = Front::to(cluster.nodes[0].port()).await;
    let () = cluster.ask(0, &["CONFIG", "SET", "cluster-announce-port", &front.port.to_string()]).await;
    let store = with_timeout(&format!("redis://127.0.0.1:{}", front.port), timeout);
    acquired(&store, attempt("connects")).await;
    let before = front.connections();
    front.freeze();
    // The new connection takes four replies, and so longer than the first try that begins meanwhile.
    front.delay_replies(timeout / 3);
    let meanwhile = async {
        until(|| async { front.connections() > before }).await;
        acquired(&store, attempt("second")).await
    };
    soon(async { join!(acquired(&store, attempt("first")), meanwhile) }).await;
}

#[tokio::test]
async fn records_of_one_slot_do_not_wait_for_each_other_while_their_node_does_not_respond() {
    let cluster = SmallCluster::start(1).await;
    let store = with_timeout(&cluster.url(), Duration::from_millis(500));
    acquire_all(&store, &attempts(&keys(2))).await;
    cluster.nodes[0].signal("-STOP");
    let asked = std::time::Instant::now();
    let keys: Vec<String> = (0..30).map(|n| format!("{{one slot}} {n}")).collect();
    let answers = soon(join_all(keys.iter().map(|key| store.acquire(attempt(key))))).await;
    assert!(answers.iter().all(Result::is_err));
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn an_unreachable_cluster_is_tried_as_often_for_several_records_as_for_one() {
    let mut dials = Vec::new();
    for records in [1, 2] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let store = with_timeout(&url, Duration::from_millis(200));
        let attempts = attempts(&keys(records));
        let asked = join_all(attempts.into_iter().map(|attempt| store.acquire(attempt)));
        let mut silent = Vec::new();
        let answers = tokio::select! {
            answers = soon(asked) => answers,
            () = async { loop { silent.push(listener.accept().await.unwrap()); } } => unreachable!(),
        };
        assert!(answers.iter().all(Result::is_err));
        dials.push(silent.len());
    }
    // The second record may not share the attempt of the first.
    assert!(dials[0] > 0 && dials[1] <= dials[0] + 1, "{dials:?} dials");
}

/// A call that a node refuses is not a try of its records, and keeps the connection. A call without a reply is one.
#[tokio::test]
async fn a_record_that_shared_a_call_in_vain_has_as_many_tries_as_another() {
    let cluster = SmallCluster::start(1).await;
    let refusal = ["CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"];
    let silence = ["CLIENT PAUSE 100000 WRITE", "CLIENT UNPAUSE"];
    let send = async |command: &str| cluster.ask::<()>(0, &command.split(' ').collect::<Vec<_>>()).await;
    for [fault, end] in [refusal, silence] {
        let mut connections = Vec::new();
        for records in [1, 2] {
            let store = with_timeout(&cluster.url(), Duration::from_millis(500));
            acquire_all(&store, &attempts(&[format!("{fault} {records}")])).await;
            send(fault).await;
            let before = cluster.connections().await;
            let answers = soon(join_all(keys(records).iter().map(|key| store.acquire(attempt(key))))).await;
            assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(StoreError::is_unavailable)), "{answers:?}");
            connections.push(cluster.connections().await - before);
            send(end).await;
        }
        assert!(connections[0] > 0 && connections[0] == connections[1], "{connections:?} connections");
    }
}

/// A node that is full, or that finds the cluster down, refuses every call and not only shared ones.
#[tokio::test]
async fn calls_are_shared_while_a_node_refuses_every_call_and_after_that() {
    let cluster = SmallCluster::start(3).await;
    let full = ["CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"];
    let down = ["CLUSTER DELSLOTS 16383", "CLUSTER ADDSLOTS 16383"];
    for [fault, end] in [full, down] {
        let store = on_cluster(&cluster.url());
        let send = async |command: &str| cluster.ask::<()>(2, &command.split(' ').collect::<Vec<_>>()).await;
        let acquire = async |batch: &str| {
            let keys: Vec<String> = (0..60).map(|n| format!("{fault} {batch} {n}")).collect();
            let before = cluster.calls("evalsha").await;
            let answers = soon(join_all(keys.iter().map(|key| store.acquire(attempt(key))))).await;
            let calls: Vec<u64> = cluster.calls("evalsha").await.iter().zip(before).map(|(a, b)| a - b).collect();
            (keys.into_iter().zip(answers).collect::<Vec<_>>(), calls)
        };
        acquire("connects").await;
        send(fault).await;
        for batch in ["first", "second"] {
            let (answers, calls) = acquire(batch).await;
            for (key, answer) in answers {
                assert_eq!(answer.is_ok(), slot(&key) < 10_923, "{key}: {answer:?}");
            }
            assert_eq!(calls[..2], [1, 1], "{fault}");
        }
        send(end).await;
        let (answers, calls) = acquire("last").await;
        assert!(answers.iter().all(|(_, answer)| answer.is_ok()), "{answers:?}");
        assert_eq!(calls, [1, 1, 1], "{end}");
    }
}

#[tokio::test]
async fn each_record_is_judged_alone_if_the_node_rejects_a_shared_call() {
    let cluster = SmallCluster::start(1).await;
    let limited = ["ACL", "SETUSER", "limited", "on", ">open-sesame", "~payments:mine*", "+@all"];
    let () = cluster.ask(0, &limited).await;
    let store = on_cluster(&cluster.url().replace("127.0.0.1", "limited:open-sesame@127.0.0.1"));
    let keys: Vec<String> = (0..10).flat_map(|n| [format!("mine {n}"), format!("theirs {n}")]).collect();
    for batch in 0..2 {
        let before = cluster.calls("evalsha").await[0];
        let answers = soon(join_all(keys.iter().map(|key| store.acquire(attempt(key))))).await;
        for (key, answer) in keys.iter().zip(answers) {
            match answer {
                Ok(_) => assert!(key.starts_with("mine"), "{key}"),
                Err(error) => assert!(key.starts_with("theirs") && error.is_unavailable(), "{key}: {error:?}"),
            }
        }
        // The first shared call was in vain, so the second batch has none. A call that is not permitted is not counted.
        assert!(batch == 0 || cluster.calls("evalsha").await[0] - before == 10);
    }
    assert_eq!(cluster.records().await, [10]);
}

#[tokio::test]
async fn a_value_that_is_not_a_record_fails_no_other_record_of_its_shard() {
    let cluster = SmallCluster::start(1).await;
    let store = on_cluster(&cluster.url());
    let () = cluster.ask(0, &["SET", "payments:3", "in use"]).await;
    let () = cluster.ask(0, &["HSET", "payments:4", "status", "INPROGRESS"]).await;
    let answers = soon(join_all(keys(20).iter().map(|key| store.acquire(attempt(key))))).await;
    for (key, answer) in keys(20).iter().zip(answers) {
        match answer {
            Ok(Acquire::Acquired(_)) => assert!(!["3", "4"].contains(&&**key), "{key}"),
            Err(StoreError::NotARecord(named)) => assert_eq!(named, format!("payments:{key}")),
            other => panic!("{key}: {other:?}"),
        }
    }
    // A shared call, which found the script missing.
    assert_eq!(cluster.calls("eval").await, [1]);
}

#[tokio::test]
async fn claims_are_completed_on_a_replica_that_was_promoted() {
    let cluster = SmallCluster::start(1).await;
    let replica = cluster.replica_of_first().await;
    let store = on_cluster(&cluster.url());
    let claims = acquire_all(&store, &attempts(&keys(100))).await;
    let mut promoted = replica.connection().await;
    until(|| {
        let mut promoted = promoted.clone();
        async move { redis::cmd("DBSIZE").query_async::<usize>(&mut promoted).await.unwrap() == 100 }
    })
    .await;
    let () = redis::cmd("CLUSTER").arg("FAILOVER").arg("TAKEOVER").query_async(&mut promoted).await.unwrap();
    until(|| async { cluster.ask::<String>(0, &["INFO", "replication"]).await.contains("role:slave") }).await;

    // The open connections lead to the old master, which serves no key any more.
    complete_all(&store, &claims).await;
    let records: usize = redis::cmd("DBSIZE").query_async(&mut promoted).await.unwrap();
    assert_eq!(records, 100);
    let record: Vec<u8> = promoted.get("payments:7").await.unwrap();
    assert_eq!(record[0], b'C');
}
