//! Records of a Redis by Sentinel.

use harness::redis::Redis;
use harness::sentinel::{self, Sentinel};

use super::{LONG, Tool, claim};

#[tokio::test]
async fn records_are_read_and_removed_by_sentinel() {
    let redis = Redis::start_with(&["--appendonly", "yes"]).await;
    let sentinel = Sentinel::watch(&redis, 1).await;
    let tool = Tool::on(&sentinel::url(&[sentinel.port()]));
    claim(&tool.store(), "pay_1", LONG).await;
    let record = tool.inspect("pay_1").await;
    assert_eq!((&record["redis_key"], &record["state"]), (&"payments:pay_1".into(), &"PROCESSING".into()));
    let stats = tool.run(&["stats"]).await;
    assert!(stats.code == 0 && stats.stdout.contains("min-replicas-to-write is 0"), "{}{}", stats.stdout, stats.stderr);
    let fence = record["fence"].to_string();
    let forgotten = tool.run(&["forget", "pay_1", "--state", "processing", "--fence", &fence, "--force"]).await;
    assert_eq!(forgotten.code, 0, "{}", forgotten.stderr);
    assert_eq!(tool.json(&["inspect", "pay_1"]).await.0, 1);
}
