//! Values that are not records, TLS, invalid arguments and settings.

use harness::redis::Redis;
use harness::soon;
use redis::AsyncCommands;
use serde_json::json;

use super::{Tool, closed};

#[tokio::test]
async fn a_value_that_is_not_a_record_is_reported_and_never_removed() {
    let redis = Redis::start().await;
    let (tool, mut connection) = (Tool::of(&redis), redis.connection().await);
    let longer_than_a_record = [b"P\x01".as_slice(), &[0; 51]].concat();
    let another_format = [b"C\x02".as_slice(), &[0; 34]].concat();
    let strings: [(&str, &[u8]); 5] = [
        ("text", b"in use"),
        ("empty", b""),
        ("zero", &[0; 52]),
        ("longer", &longer_than_a_record),
        ("format", &another_format),
    ];
    for (key, value) in strings {
        let () = connection.set(format!("payments:{key}"), value).await.unwrap();
    }
    let () = connection.hset("payments:hash", "status", "INPROGRESS").await.unwrap();
    for key in strings.map(|(key, _)| key).into_iter().chain(["hash"]) {
        let (code, record) = tool.json(&["inspect", key]).await;
        assert_eq!((code, &record["state"]), (1, &json!("NOT_A_RECORD")), "{key}");
        let (code, answer) = tool.json(&["forget", key, "--state", "processing", "--fence", "0", "--force"]).await;
        assert_eq!((code, &answer["outcome"]), (1, &json!("NOT_A_RECORD")), "{key}");
        assert!(connection.exists::<_, bool>(format!("payments:{key}")).await.unwrap(), "{key}");
    }
}

#[tokio::test]
async fn tls_works_only_with_a_trusted_certificate() {
    let (redis, files) = Redis::start_with_tls().await;
    let tool = Tool::of(&redis).with("SSL_CERT_FILE", files.ca_crt.to_str().unwrap());
    let (code, stats) = tool.json(&["stats"]).await;
    assert_eq!((code, &stats["complete"]), (0, &json!(true)));
    assert_eq!(tool.run(&["inspect", "pay_1"]).await.code, 1);
    let untrusting = Tool::of(&redis);
    let output = untrusting.run(&["inspect", "pay_1"]).await;
    assert!(output.code == 2 && output.stderr.contains("invalid peer certificate"), "{}", output.stderr);
}

#[tokio::test]
async fn invalid_settings_and_arguments_exit_with_2_and_name_the_error() {
    let unset = Tool { settings: Vec::new() };
    let output = unset.run(&["stats"]).await;
    assert!(
        output.stderr.contains("REDIS_URL is missing") && output.stderr.contains("IDEMPOTENCY_NAMESPACE is missing")
    );
    assert!(!output.stderr.contains("TARGET_URL"), "{}", output.stderr);
    assert_eq!((output.code, output.stdout.as_str()), (2, ""));
    let tool = Tool::on("redis://127.0.0.1:1");
    let invalid: [&[&str]; 7] = [
        &["inspect", ""],
        &["forget", "pay_1"],
        &["forget", "pay_1", "--fence", "1"],
        &["forget", "pay_1", "--state", "completed"],
        &["forget", "pay_1", "--state", "completed", "--fence", "x"],
        &["keys"],
        &[],
    ];
    for arguments in invalid {
        let output = tool.run(arguments).await;
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(
            output.stderr.contains("Usage: ") || output.stderr.contains("invalid value"),
            "{arguments:?}: {}",
            output.stderr
        );
    }
    // The name of a FAILED state includes the failure.
    let output = tool.run(&["forget", "pay_1", "--state", "failed", "--fence", "1"]).await;
    assert!(output.code == 2 && output.stderr.contains("failed-uncertain"), "{}", output.stderr);
    let help = tool.run(&["--help"]).await;
    assert!(help.code == 0 && help.stdout.contains("inspect") && help.stdout.contains("REDIS_URL"), "{}", help.stdout);
}

#[tokio::test]
async fn errors_that_cannot_be_written_exit_with_2_too() {
    let unset = Tool { settings: Vec::new() };
    for arguments in [&["stats"][..], &["inspect", ""], &["keys"]] {
        let status = soon(unset.command(arguments).stderr(closed()).status()).await.unwrap();
        assert_eq!(status.code(), Some(2), "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_output_that_cannot_be_written_exits_with_2() {
    let redis = Redis::start().await;
    let full = || std::fs::File::create("/dev/full").unwrap();
    for arguments in [&["stats"][..], &["stats", "--json"]] {
        let run = Tool::of(&redis).command(arguments).stdout(full()).spawn().unwrap();
        let output = super::Output::new(soon(run.wait_with_output()).await.unwrap());
        assert!(output.code == 2 && output.stderr.contains("cannot write to stdout: "), "{}", output.stderr);
        let status = soon(Tool::of(&redis).command(arguments).stdout(full()).stderr(full()).status()).await.unwrap();
        assert_eq!(status.code(), Some(2), "{arguments:?}");
    }
}
