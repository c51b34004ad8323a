//! The Redis permissions that each command needs, and the errors without them.

use harness::redis::{Redis, connect, free_port};
use harness::workspace;
use redis::{AsyncCommands, ConnectionInfo, IntoConnectionInfo};

use super::{LONG, PASSWORD, Tool, claim, claim_that_died};

/// The rights in the docs, of this heading, without what Redis knows from 7.2 on only: a client goes on
/// where it may not say its name.
pub(super) fn rights(user: &str) -> Vec<String> {
    let page = std::fs::read_to_string(workspace("docs/records.md")).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("ACL SETUSER {user} ")));
    let line = line.unwrap().replace("PASSWORD", PASSWORD);
    line.split_whitespace().filter(|right| *right != "+client|setinfo").map(str::to_owned).collect()
}

/// Make a user there that has just these rights.
pub(super) async fn allow(server: ConnectionInfo, user: &str, rights: &[String]) {
    let mut connection = connect(server).await;
    let () = redis::cmd("ACL").arg("SETUSER").arg(user).arg(rights).query_async(&mut connection).await.unwrap();
}

/// The tool, signed in as a user that has just these rights.
async fn signed_in(redis: &Redis, user: &str, rights: &[String]) -> Tool {
    allow(redis.url().into_connection_info().unwrap(), user, rights).await;
    Tool::on(&format!("redis://{user}:{PASSWORD}@127.0.0.1:{}", redis.port()))
}

#[tokio::test]
async fn a_user_who_may_only_read_can_look_at_everything_and_change_nothing() {
    let redis = Redis::start().await;
    let claim = claim_that_died(&Tool::of(&redis).store(), "pay_1").await;
    let tool = signed_in(&redis, "viewer", &rights("viewer")).await;
    assert_eq!(tool.inspect("pay_1").await["state"], "PROCESSING");
    assert_eq!(tool.ask(&["failed"]).await.code, 0);
    let (_, stats) = tool.json(&["stats"]).await;
    assert_eq!(stats["memory"]["records_measured"], 1);
    assert!(stats["server"]["bytes_in_use"].as_u64().unwrap() > 0);

    let said = tool.ask(&["forget", "pay_1", "--state", "processing", "--fence", &claim.fence().to_string()]).await;
    assert_eq!((said.code, said.text.as_str()), (2, ""));
    assert!(said.error.contains("docs/records.md") && said.error.contains("eval"), "{}", said.error);
    assert!(redis.connection().await.exists::<_, bool>("payments:pay_1").await.unwrap());
    let other = tool.ask(&["inspect", "pay_1", "--namespace", "refunds"]).await;
    assert!(other.code == 2 && other.error.contains("may not do this"), "{}", other.error);
}

#[tokio::test]
async fn the_rights_of_an_operator_are_enough_to_forget() {
    let redis = Redis::start().await;
    let claim = claim_that_died(&Tool::of(&redis).store(), "pay_1").await;
    let tool = signed_in(&redis, "operator", &rights("operator")).await;
    assert_eq!(tool.forget("pay_1", "processing", &claim.fence().to_string()).await.0, 0);
    assert_eq!(tool.ask(&["stats"]).await.code, 0);
}

#[tokio::test]
async fn what_the_server_says_of_itself_is_left_out_where_it_may_not_be_asked() {
    let redis = Redis::start().await;
    claim(&Tool::of(&redis).store(), "pay_1", LONG).await;
    let less = |right: &String| !["+info", "+dbsize", "+memory|usage"].contains(&right.as_str());
    let rights: Vec<_> = rights("viewer").into_iter().filter(less).collect();
    let tool = signed_in(&redis, "viewer", &rights).await;
    let (code, stats) = tool.json(&["stats"]).await;
    assert_eq!((code, stats["processing"].as_u64()), (0, Some(1)));
    assert!(stats["server"].is_null() && stats["memory"].is_null(), "{stats}");
    let said = tool.ask(&["stats"]).await;
    assert!(said.row("memory").starts_with("not known") && said.row("server").starts_with("not known"));
}

#[tokio::test]
async fn a_server_out_of_reach_and_a_refused_password_end_with_2_and_show_no_secret() {
    let away = Tool::on(&format!("redis://default:{PASSWORD}@127.0.0.1:{}", free_port()));
    let forget = ["forget", "pay_1", "--state", "completed", "--fence", "1"];
    for command in [["inspect", "pay_1"].as_slice(), &["failed"], &["stats"], &forget] {
        let said = away.ask(command).await;
        assert_eq!((said.code, said.text.as_str()), (2, ""));
        assert!(said.error.contains("REDIS_URL") && said.error.contains("Connection refused"), "{}", said.error);
    }
    let redis = Redis::start_with(&["--requirepass", "another"]).await;
    let said = Tool::of(&redis).ask(&["inspect", "pay_1"]).await;
    assert!(said.code == 2 && said.text.is_empty(), "{}", said.error);
}
