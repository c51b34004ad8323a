//! `failed` and `stats`: scans of all records, on one server and on a cluster.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use harness::cluster::SmallCluster;
use harness::front::Front;
use harness::redis::{Redis, connect};
use harness::until;
use idempotent_sqs::idempotency::{Store, StoredResult};
use idempotent_sqs::stores::RedisStore;
use idempotent_sqs::stores::redis::records::{Records, ScanPage};
use redis::AsyncCommands;
use redis_test::cluster::{RedisCluster, RedisClusterConfiguration};
use serde_json::{Value, json};
use tokio::process::Command;

use super::permissions::{create_user, permissions};
use super::{CLEAN, LONG, PASSWORD, PERMANENT, Tool, UNCERTAIN, claim, expired_claim, soon};

/// Writes 10,000 records: 9,000 COMPLETED, 600 FAILED (100 uncertain, 200 permanent) and 400 PROCESSING.
async fn fill(store: &RedisStore) {
    // 500 at a time, because on a cluster every claim is a separate call.
    for part in 0..20 {
        join_all((part * 500..(part + 1) * 500).map(|n: u32| async move {
            let claim = claim(store, &format!("pay_{n}"), LONG).await;
            match n {
                0..100 => store.fail(&claim, UNCERTAIN).await.map(drop),
                100..300 => store.fail(&claim, PERMANENT).await.map(drop),
                300..600 => store.fail(&claim, CLEAN).await.map(drop),
                600..1_000 => Ok(()),
                1_000.. => store.complete(&claim, StoredResult::Inline(b"receipt")).await.map(drop),
            }
            .unwrap();
        }))
        .await;
    }
}

/// Asserts that `stats` counts and `failed` lists each record of [`fill`] once.
async fn assert_all_are_found(tool: &Tool) {
    let (code, stats) = tool.json(&["stats"]).await;
    assert_eq!((code, &stats["complete"]), (0, &json!(true)), "{stats}");
    let counts = ["processing", "completed", "failed", "failed_uncertain", "failed_permanent", "not_records"];
    assert_eq!(counts.map(|name| stats[name].as_u64().unwrap()), [400, 9_000, 600, 100, 200, 0]);
    assert_eq!(stats["leases_ended"], 0);
    assert_eq!(stats["memory"]["records_measured"], 500);
    let each = stats["memory"]["bytes"].as_u64().unwrap() / 10_000;
    assert!((80..300).contains(&each), "{each} bytes a record");

    let (code, failed) = tool.json(&["failed", "--limit", "1000"]).await;
    assert_eq!((code, &failed["complete"]), (0, &json!(true)));
    let keys: HashSet<_> =
        failed["failed"].as_array().unwrap().iter().map(|record| record["key"].to_string()).collect();
    assert_eq!((failed["failed"].as_array().unwrap().len(), keys.len()), (600, 600));
    assert!((0..600).all(|n| keys.contains(&format!("\"pay_{n}\""))));
}

async fn command_calls(redis: &Redis, command: &str) -> u64 {
    let stats: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut redis.connection().await).await.unwrap();
    let calls = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn ten_thousand_records_are_found_once_each_in_small_steps() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    fill(&tool.store()).await;
    assert_all_are_found(&tool).await;
    // Two scans of at least 50 steps each. Empty slots of Redis's table add steps.
    let scans = command_calls(&redis, "scan").await;
    assert!((100..=200).contains(&scans), "{scans} SCANs");
    assert_eq!(command_calls(&redis, "keys").await, 0);
    assert_eq!(command_calls(&redis, "getrange").await, 20_000);
}

#[tokio::test]
async fn a_scan_stops_at_its_limits_and_reports_that_it_is_incomplete() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    fill(&tool.store()).await;
    let (code, failed) = tool.json(&["failed", "--limit", "10"]).await;
    assert_eq!((code, failed["failed"].as_array().unwrap().len(), &failed["complete"]), (0, 10, &json!(false)));
    let output = tool.run(&["failed", "--limit", "10"]).await;
    assert_eq!(output.stdout.lines().count(), 12, "a header, ten records and a note: {}", output.stdout);
    assert!(output.stdout.contains("there may be more records"), "{}", output.stdout);
    let before = command_calls(&redis, "scan").await;
    let (code, stats) = tool.json(&["stats", "--keys", "1000"]).await;
    assert_eq!((code, &stats["complete"], &stats["keys_scanned"]), (0, &json!(false), &json!(1000)));
    let counted: u64 = ["processing", "completed", "failed"].map(|name| stats[name].as_u64().unwrap()).iter().sum();
    assert!((900..=1200).contains(&counted), "{counted}");
    assert_eq!(command_calls(&redis, "scan").await - before, 5);
}

#[tokio::test]
async fn all_masters_of_a_cluster_are_scanned_and_moved_slots_are_reported() {
    let cluster = tokio::task::spawn_blocking(|| RedisCluster::new(RedisClusterConfiguration::default()));
    let cluster = cluster.await.unwrap();
    let address = cluster.servers[0].addr.to_string();
    let url = format!("redis://default:{PASSWORD}@{address}");
    let tool = Tool::on(&url).with("REDIS_CLUSTER", "true");
    let store = tool.store();
    fill(&store).await;
    assert_all_are_found(&tool).await;
    for server in &cluster.servers {
        create_user(server.connection_info(), "operator", &permissions("operator")).await;
    }
    let tool = Tool::on(&url.replace("default", "operator")).with("REDIS_CLUSTER", "true");
    assert_eq!(tool.json(&["stats"]).await.1["completed"], 9_000);
    let record = tool.inspect("pay_5000").await;
    assert_eq!((&record["state"], &record["result"]["text"]), (&json!("COMPLETED"), &json!("receipt")));
    let (code, answer) = tool.forget("pay_5000", "completed", &record["fence"].to_string()).await;
    assert_eq!((code, &answer["outcome"]), (0, &json!("FORGOTTEN")));
    assert_eq!(tool.run(&["inspect", "pay_5000"]).await.code, 1);

    let output = Tool::on(&url).run(&["stats"]).await;
    assert!(
        output.code == 2 && output.stderr.contains("set REDIS_CLUSTER=true"),
        "the records of one node are not all records: {}",
        output.stderr
    );

    let records = Records::new(&tool.redis_settings()).unwrap();
    let mut scan = records.scan().await.unwrap();
    assert!(scan.next().await.unwrap().is_some() && !scan.may_lack_records());
    let moved = Command::new("redis-cli")
        .args(["--cluster", "reshard", &address, "--cluster-from", "all", "--cluster-to", &id(&cluster).await])
        .args(["--cluster-slots", "4", "--cluster-yes"])
        .output();
    let moved = soon(moved).await.unwrap();
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stdout));
    while scan.next().await.unwrap().is_some() {}
    assert!(scan.may_lack_records());
}

/// Its records may be on a master that was scanned before.
#[tokio::test]
async fn a_slot_in_the_middle_of_a_range_is_reported_while_it_is_moved_and_when_it_has_moved() {
    /// A slot of the last of three masters, without keys.
    const SLOT: u16 = 16_000;
    let cluster = tokio::task::spawn_blocking(|| RedisCluster::new(RedisClusterConfiguration::default()));
    let cluster = cluster.await.unwrap();
    let url = format!("redis://default:{PASSWORD}@{}", cluster.servers[0].addr);
    let records = Records::new(&Tool::on(&url).with("REDIS_CLUSTER", "true").redis_settings()).unwrap();
    let mut nodes = join_all(cluster.servers.iter().map(|server| connect(server.connection_info()))).await;
    let mut ids: Vec<String> = Vec::new();
    for node in &mut nodes {
        ids.push(redis::cmd("CLUSTER").arg("MYID").query_async(node).await.unwrap());
    }
    let mut set_slot = async |node: usize, state: &str, other: usize| {
        let command = redis::cmd("CLUSTER").arg("SETSLOT").arg(SLOT).arg(state).arg(&ids[other]).to_owned();
        let () = command.query_async(&mut nodes[node]).await.unwrap();
    };
    for meanwhile in ["nothing", "is moved", "has moved"] {
        let mut scan = records.scan().await.unwrap();
        match meanwhile {
            "is moved" => {
                set_slot(0, "IMPORTING", 2).await;
                set_slot(2, "MIGRATING", 0).await;
            }
            "has moved" => {
                for node in 0..3 {
                    set_slot(node, "NODE", 0).await;
                }
            }
            _ => {}
        }
        while soon(scan.next()).await.unwrap().is_some() {}
        assert_eq!(scan.may_lack_records(), meanwhile != "nothing", "{meanwhile}");
    }
}

/// Reads of several of them at the same time fail, because the ASKING before one read applies to another.
#[tokio::test]
async fn the_records_of_a_slot_that_is_being_moved_are_found() {
    let cluster = SmallCluster::start(2).await;
    let tool = Tool::on(&cluster.url()).with("REDIS_CLUSTER", "true");
    let store = tool.store();
    let written: HashSet<_> = (0..50).map(|n| format!("{{pay}}_{n}")).collect();
    for key in &written {
        claim(&store, key, LONG).await;
    }
    let slot = cluster.ask(0, &["CLUSTER", "KEYSLOT", "{pay}"]).await;
    cluster.start_to_move(slot, 0, 1).await;
    for key in &written {
        cluster.move_record(&format!("payments:{key}"), 0, 1).await;
    }
    // Such reads may wait for the timeout, twice.
    let records = Records::new(&tool.with("REDIS_TIMEOUT_MS", "3000").redis_settings()).unwrap();
    let (mut scan, mut found) = (records.scan().await.unwrap(), HashSet::new());
    while let Some(page) = soon(scan.next()).await.unwrap() {
        found.extend(keys(page));
    }
    assert_eq!((found, scan.may_lack_records()), (written, true));
}

/// The order of its keys is another one then, so the rest of the scan lacks some.
#[tokio::test]
async fn a_scan_during_which_the_server_restarts_or_is_a_replica_may_lack_records() {
    let mut redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let tool = Tool::of(&redis);
    fill(&tool.store()).await;
    let records = Records::new(&tool.redis_settings()).unwrap();
    for (meanwhile, may_lack) in [("nothing", false), ("a replica", false), ("a failover", true), ("a restart", true)] {
        let mut scan = records.scan().await.unwrap();
        assert!(soon(scan.next()).await.unwrap().is_some());
        match meanwhile {
            "a replica" => drop(replica_of(&redis).await),
            "a restart" => {
                redis.kill();
                redis.restart().await;
            }
            "a failover" => {
                let mut connection = redis.connection().await;
                for of in [["127.0.0.1", "1"], ["NO", "ONE"]] {
                    let () = redis::cmd("REPLICAOF").arg(&of).query_async(&mut connection).await.unwrap();
                }
            }
            _ => {}
        }
        while soon(scan.next()).await.unwrap().is_some() {}
        assert_eq!(scan.may_lack_records(), may_lack, "{meanwhile}");
    }
}

/// A replica of this server that has all records of [`fill`].
async fn replica_of(primary: &Redis) -> Redis {
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &primary.port().to_string()]).await;
    // It replies with an error while it loads them.
    let keys = async || redis::cmd("DBSIZE").query_async(&mut replica.connection().await).await;
    until(|| async { keys().await == Ok(10_000) }).await;
    replica
}

/// A failover behind one endpoint, as ElastiCache has it without cluster mode.
#[tokio::test]
async fn statistics_say_that_a_failover_may_have_hidden_records() {
    let primary = Redis::start().await;
    fill(&Tool::of(&primary).store()).await;
    let replica = replica_of(&primary).await;
    let endpoint = Front::to(primary.port()).await;
    endpoint.delay_replies(Duration::from_millis(10));
    let tool = Tool::on(&format!("redis://default:{PASSWORD}@127.0.0.1:{}", endpoint.port));
    let failover = async {
        let (mut promoted, before) = (replica.connection().await, command_calls(&primary, "scan").await);
        until(|| async { command_calls(&primary, "scan").await > before }).await;
        let () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut promoted).await.unwrap();
        endpoint.forward_to(replica.port());
        endpoint.cut();
    };
    let ((code, stats), ()) = tokio::join!(tool.json(&["stats"]), failover);
    assert_eq!((code, &stats["complete"]), (0, &json!(false)), "{stats}");
}

async fn id(cluster: &RedisCluster) -> String {
    let mut connection = connect(cluster.servers[0].connection_info()).await;
    redis::cmd("CLUSTER").arg("MYID").query_async(&mut connection).await.unwrap()
}

fn keys(page: ScanPage) -> Vec<String> {
    page.records.into_iter().map(|(key, _)| key.as_str().to_owned()).collect()
}

#[tokio::test]
async fn a_key_that_scan_returns_twice_when_the_table_shrinks_is_found_once() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let store = &store;
    join_all((0..8_000).map(|n| async move { claim(store, &format!("pay_{n}"), LONG).await })).await;
    let records = Records::new(&tool.redis_settings()).unwrap();
    let mut scan = records.scan().await.unwrap();
    let (mut found, mut last) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        last = keys(scan.next().await.unwrap().unwrap());
        found.extend(last.clone());
    }
    // All keys but those of the last step are removed, so the table shrinks. In the smaller table, the scan continues
    // at the slots of the remaining keys.
    let mut connection = redis.connection().await;
    let stay: HashSet<String> = last.iter().map(|key| format!("payments:{key}")).collect();
    let all: Vec<String> = connection.keys("*").await.unwrap();
    let () = connection.del(all.into_iter().filter(|key| !stay.contains(key)).collect::<Vec<_>>()).await.unwrap();
    until(|| {
        let mut connection = connection.clone();
        async move {
            let tables = redis::cmd("DEBUG").arg("HTSTATS").arg(0).query_async::<String>(&mut connection).await;
            !tables.unwrap().contains("table size: 8192")
        }
    })
    .await;
    while let Some(page) = scan.next().await.unwrap() {
        found.extend(keys(page));
    }
    let once: HashSet<_> = found.iter().collect();
    assert_eq!(once.len(), found.len());
}

#[tokio::test]
async fn only_the_given_namespace_is_scanned_also_if_its_name_has_wildcards() {
    let redis = Redis::start().await;
    let all = Tool::of(&redis);
    for namespace in ["pay*", "payments", r"pay[a-z]\?"] {
        let tool = Tool::of(&redis).with("IDEMPOTENCY_NAMESPACE", namespace);
        let store = tool.store();
        store.fail(&claim(&store, namespace, LONG).await, CLEAN).await.unwrap();
    }
    for namespace in ["pay*", "payments", r"pay[a-z]\?"] {
        let (_, failed) = all.json(&["failed", "--namespace", namespace]).await;
        assert_eq!(failed["failed"][0]["key"], namespace);
        assert_eq!(failed["failed"].as_array().unwrap().len(), 1, "{failed}");
    }
}

#[tokio::test]
async fn stats_show_the_oldest_claim_values_that_are_not_records_and_findings() {
    let redis = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]).await;
    let (tool, mut connection) = (Tool::of(&redis), redis.connection().await);
    let store = tool.store();
    let oldest = expired_claim(&store, "pay_1").await;
    claim(&store, "pay_2", LONG).await;
    let () = connection.set("payments:text", "in use").await.unwrap();
    let () = connection.hset("payments:hash", "status", "INPROGRESS").await.unwrap();
    let one_byte_more_than_a_record = [b"P\x01".as_slice(), &[0; 51]].concat();
    let () = connection.set("payments:like", one_byte_more_than_a_record).await.unwrap();
    let () = connection.set("refunds:pay_1", "elsewhere").await.unwrap();

    let (_, stats) = tool.json(&["stats"]).await;
    assert_eq!(
        (&stats["processing"], &stats["leases_ended"], &stats["not_records"]),
        (&json!(2), &json!(1), &json!(3))
    );
    assert_eq!(stats["oldest_processing"]["key"], "pay_1");
    assert_eq!(stats["oldest_processing"]["fence"], oldest.fence().0);
    assert_eq!(stats["server"]["maxmemory_policy"], json!(["volatile-lru"]));
    assert_eq!(stats["server"]["bytes_limit"], 104_857_600);
    let findings = stats["server"]["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding.as_str().unwrap().contains("set it to noeviction")), "{stats}");

    let output = tool.run(&["stats"]).await;
    assert_eq!(output.row("PROCESSING"), "2, of which 1 with an ended lease");
    assert!(output.row("  oldest").starts_with("pay_1, claimed "), "{}", output.stdout);
    assert!(output.row("finding").contains("volatile-lru") && output.row("server").ends_with("of 100.0 MiB"));

    let empty = tool.run(&["stats", "--namespace", "unused"]).await;
    assert_eq!((empty.row("  oldest"), empty.row("memory")), ("none", "none"));
    assert_eq!(tool.run(&["failed"]).await.stdout, "no FAILED records\n");
}

#[tokio::test]
async fn progress_is_shown_only_on_terminals() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    fill(&tool.store()).await;
    assert_eq!(tool.run(&["stats"]).await.stderr, "");

    // `script` runs the tool in a terminal and copies its output to stdout.
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{} failed --json --limit 1000", env!("CARGO_BIN_EXE_records")), "/dev/null"]);
    let path = ("PATH", std::env::var("PATH").unwrap());
    let output = soon(command.env_clear().envs(tool.settings.iter().cloned()).envs([path]).output()).await.unwrap();
    let terminal = String::from_utf8(output.stdout).unwrap();
    let (progress, document) = terminal.split_once('{').unwrap();
    assert!(progress.starts_with("\rscanned about 200 of 10,000 keys\x1b[K"), "{progress:?}");
    assert!(progress.ends_with("\r\x1b[K"), "the line is cleared at the end: {progress:?}");
    let document: Value = serde_json::from_str(&format!("{{{document}")).unwrap();
    assert_eq!(document["failed"].as_array().unwrap().len(), 600);
}

#[tokio::test]
async fn a_list_of_failed_records_is_incomplete_exactly_if_its_limit_cut_it_off() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    for n in 0..3 {
        store.fail(&claim(&store, &format!("pay_{n}"), LONG).await, CLEAN).await.unwrap();
    }
    for (limit, listed, is_complete) in [("2", 2, false), ("3", 3, true), ("4", 3, true)] {
        let (_, list) = tool.json(&["failed", "--limit", limit]).await;
        assert_eq!(list["failed"].as_array().unwrap().len(), listed);
        assert_eq!(list["complete"], json!(is_complete), "--limit {limit}");
        let text = tool.run(&["failed", "--limit", limit]).await.stdout;
        let note = "the list stopped at --limit: there are more records\n";
        assert_eq!(text.ends_with(note), !is_complete, "--limit {limit}: {text}");
    }
}
