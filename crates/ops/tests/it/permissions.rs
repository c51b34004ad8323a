//! The Redis permissions that each command needs, and the errors without them.

use harness::redis::{Redis, closed_port, connect};
use harness::workspace;
use redis::{AsyncCommands, ConnectionInfo, IntoConnectionInfo};

use super::{LONG, PASSWORD, Tool, claim, expired_claim};

/// The ACL rules that the documentation lists for this user, without the one that requires Redis 7.2. The client
/// continues if it may not set its name.
pub(super) fn permissions(user: &str) -> Vec<String> {
    let page = std::fs::read_to_string(workspace("docs/records.md")).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("ACL SETUSER {user} ")));
    let line = line.unwrap().replace("PASSWORD", PASSWORD);
    line.split_whitespace().filter(|rule| *rule != "+client|setinfo").map(str::to_owned).collect()
}

/// Creates a user with only these permissions.
pub(super) async fn create_user(server: ConnectionInfo, user: &str, permissions: &[String]) {
    let mut connection = connect(server).await;
    let () = redis::cmd("ACL").arg("SETUSER").arg(user).arg(permissions).query_async(&mut connection).await.unwrap();
}

/// The tool, signed in as a new user with only these permissions.
async fn signed_in(redis: &Redis, user: &str, permissions: &[String]) -> Tool {
    create_user(redis.url().into_connection_info().unwrap(), user, permissions).await;
    Tool::on(&format!("redis://{user}:{PASSWORD}@127.0.0.1:{}", redis.port()))
}

#[tokio::test]
async fn a_user_without_write_access_can_read_everything_and_remove_nothing() {
    let redis = Redis::start().await;
    let claim = expired_claim(&Tool::of(&redis).store(), "pay_1").await;
    let tool = signed_in(&redis, "viewer", &permissions("viewer")).await;
    assert_eq!(tool.inspect("pay_1").await["state"], "PROCESSING");
    assert_eq!(tool.run(&["failed"]).await.code, 0);
    let (_, stats) = tool.json(&["stats"]).await;
    assert_eq!(stats["memory"]["records_measured"], 1);
    assert!(stats["server"]["bytes_in_use"].as_u64().unwrap() > 0);

    let output = tool.run(&["forget", "pay_1", "--state", "processing", "--fence", &claim.fence().to_string()]).await;
    assert_eq!((output.code, output.stdout.as_str()), (2, ""));
    assert!(output.stderr.contains("docs/records.md") && output.stderr.contains("eval"), "{}", output.stderr);
    assert!(redis.connection().await.exists::<_, bool>("payments:pay_1").await.unwrap());
    let other = tool.run(&["inspect", "pay_1", "--namespace", "refunds"]).await;
    assert!(other.code == 2 && other.stderr.contains("lacks the permission"), "{}", other.stderr);
}

#[tokio::test]
async fn the_permissions_of_an_operator_are_enough_to_forget() {
    let redis = Redis::start().await;
    let claim = expired_claim(&Tool::of(&redis).store(), "pay_1").await;
    let tool = signed_in(&redis, "operator", &permissions("operator")).await;
    assert_eq!(tool.forget("pay_1", "processing", &claim.fence().to_string()).await.0, 0);
    assert_eq!(tool.run(&["stats"]).await.code, 0);
}

#[tokio::test]
async fn stats_omit_what_the_user_may_not_read() {
    let redis = Redis::start().await;
    claim(&Tool::of(&redis).store(), "pay_1", LONG).await;
    let is_kept = |rule: &String| !["+info", "+dbsize", "+memory|usage"].contains(&rule.as_str());
    let reduced: Vec<_> = permissions("viewer").into_iter().filter(is_kept).collect();
    let tool = signed_in(&redis, "viewer", &reduced).await;
    let (code, stats) = tool.json(&["stats"]).await;
    assert_eq!((code, stats["processing"].as_u64()), (0, Some(1)));
    assert!(stats["server"].is_null() && stats["memory"].is_null(), "{stats}");
    let output = tool.run(&["stats"]).await;
    assert!(output.row("memory").starts_with("unknown: ") && output.row("server").starts_with("unknown: "));
}

#[tokio::test]
async fn an_unreachable_server_and_a_rejected_password_exit_with_2_and_show_no_secret() {
    let unreachable = Tool::on(&format!("redis://default:{PASSWORD}@127.0.0.1:{}", closed_port()));
    let forget = ["forget", "pay_1", "--state", "completed", "--fence", "1"];
    for command in [["inspect", "pay_1"].as_slice(), &["failed"], &["stats"], &forget] {
        let output = unreachable.run(command).await;
        assert_eq!((output.code, output.stdout.as_str()), (2, ""));
        assert!(
            output.stderr.contains("REDIS_URL") && output.stderr.contains("Connection refused"),
            "{}",
            output.stderr
        );
    }
    let redis = Redis::start_with(&["--requirepass", "another"]).await;
    let output = Tool::of(&redis).run(&["inspect", "pay_1"]).await;
    assert!(output.code == 2 && output.stdout.is_empty(), "{}", output.stderr);
}
