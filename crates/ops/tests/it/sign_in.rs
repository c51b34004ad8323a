//! Sign-in: the tool signs in to ElastiCache with an IAM token.

use harness::elasticache::{CACHE, ElastiCache, USER};
use harness::soon;
use tokio::process::Command;

#[tokio::test]
async fn the_tool_signs_in_with_an_iam_token() {
    let cache = ElastiCache::start().await;
    let url = cache.url();
    let settings = [
        ("REDIS_URL", url.as_str()),
        ("REDIS_IAM_USER", USER),
        ("REDIS_IAM_CACHE", CACHE),
        ("SSL_CERT_FILE", cache.certificate()),
        ("IDEMPOTENCY_NAMESPACE", "payments"),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_records"));
    let output = soon(command.args(["inspect", "pay_1"]).env_clear().envs(settings).output()).await.unwrap();
    let tokens = cache.nodes[0].tokens();
    assert!(!tokens.is_empty());
    assert!(tokens.iter().all(|token| token.fault.is_none()), "{tokens:?}");
    // The lookup succeeded: there is no such record.
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!format!("{output:?}").contains("X-Amz-Signature"));
}

/// As in an image without `ca-certificates`.
#[tokio::test]
async fn without_certificates_the_exit_code_is_2_and_the_reason_is_on_stderr() {
    let settings = [
        ("REDIS_URL", "redis://127.0.0.1:1"),
        ("REDIS_SECRET_ARN", harness::secrets::ARN),
        ("IDEMPOTENCY_NAMESPACE", "payments"),
        ("SSL_CERT_DIR", "/nonexistent"),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_records"));
    let output = soon(command.args(["inspect", "pay_1"]).env_clear().envs(settings).output()).await.unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("the AWS SDK: check that SSL_CERT_FILE or SSL_CERT_DIR"), "{stderr}");
}
