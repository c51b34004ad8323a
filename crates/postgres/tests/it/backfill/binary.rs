//! The binary, as a command and as a function.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::*;
use harness::lambda::{Function, PASSWORD};
use harness::postgres::{Postgres, migration};
use harness::secrets::{ARN, Secrets};

fn command(redis: &Redis, base: &Base, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backfill"));
    command.env_clear().args(arguments).envs([
        ("REDIS_URL", redis.url()),
        ("DATABASE_URL", base.url()),
        ("IDEMPOTENCY_NAMESPACE", "payments".to_owned()),
    ]);
    command
}

async fn output(mut command: Command) -> (Output, String, String) {
    let output = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    (output, out, error)
}

#[tokio::test]
async fn the_command_prints_progress_to_stderr_and_the_summary_to_stdout() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 1_500).await;
    let (status, out, error) = output(command(&redis, &base, &[])).await;
    assert!(status.status.success(), "{error}");
    assert!(
        out.starts_with("done; 1500 copied, 0 already completed, 0 skipped, 0 not records, 0 remaining; "),
        "{out}"
    );
    assert!(out.contains("rows/s") && out.lines().count() == 1, "{out}");
    assert!(
        error.lines().any(|line| line.starts_with("1000 copied, ") && line.contains(" 500 remaining; ")),
        "{error}"
    );

    let (_, out, _) = output(command(&redis, &base, &["--from-start", "--json"])).await;
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&summary["end"], &summary["copied"], &summary["alreadyCompleted"]),
        (&"done".into(), &0.into(), &1500.into())
    );
}

#[tokio::test]
async fn the_errors_of_the_command_say_what_to_do() {
    let (base, redis) = (base().await, Redis::start().await);
    let (status, _, error) = output(command(&redis, &base, &["--all"])).await;
    assert!(!status.status.success() && error.contains("unknown option \"--all\""), "{error}");

    // The name of the function is not used as the namespace.
    let mut nameless = command(&redis, &base, &[]);
    nameless
        .env_remove("IDEMPOTENCY_NAMESPACE")
        .env("AWS_LAMBDA_FUNCTION_NAME", "backfill")
        .env("BACKFILL_ROWS_PER_SECOND", "0");
    let (status, _, error) = output(nameless).await;
    assert!(!status.status.success());
    assert!(
        error.contains("IDEMPOTENCY_NAMESPACE is missing") && error.contains("BACKFILL_ROWS_PER_SECOND is"),
        "{error}"
    );

    let mut down = command(&redis, &base, &[]);
    down.env("REDIS_URL", format!("redis://127.0.0.1:{}", harness::redis::closed_port()));
    let (status, _, error) = output(down).await;
    assert!(!status.status.success() && error.contains("store is unavailable: "), "{error}");

    let (status, out, _) = output(command(&redis, &base, &["--help"])).await;
    assert!(status.status.success() && out.contains("--from-start"));
}

#[tokio::test]
async fn the_command_exits_with_1_if_another_run_has_superseded_it() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 50).await;
    let mut slow = command(&redis, &base, &["--json"]);
    slow.env("BACKFILL_ROWS_PER_SECOND", "5");
    let run = tokio::spawn(output(slow));
    until_count(&base, "SELECT count(*) FROM idempotency_backfill", 1).await;
    base.client.batch_execute("UPDATE idempotency_backfill SET loss_probe = 'of another run'").await.unwrap();
    let (status, out, error) = run.await.unwrap();
    assert_eq!((status.status.code(), out.contains("\"superseded\"")), (Some(1), true), "{out}");
    assert!(error.contains("another run has started over"), "{error}");
}

/// An output to which nothing can be written: it has no reader.
fn closed() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

#[tokio::test]
async fn the_command_copies_every_row_also_if_its_output_has_no_reader() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 1_500).await;
    let mut silent = command(&redis, &base, &[]);
    silent.stderr(closed());
    let (status, out, _) = output(silent).await;
    assert!(status.status.success() && out.starts_with("done; 1500 copied, "), "{}: {out}", status.status);
    let mut unread = command(&redis, &base, &["--from-start"]);
    unread.stdout(closed());
    let (status, _, error) = output(unread).await;
    assert!(status.status.success(), "{error}");
}

#[tokio::test]
async fn an_error_of_the_command_that_cannot_be_written_exits_with_1_too() {
    let (base, redis) = (base().await, Redis::start().await);
    let mut silent = command(&redis, &base, &["--all"]);
    silent.stderr(closed());
    assert_eq!(output(silent).await.0.status.code(), Some(1));

    let mut bytes = command(&redis, &base, &[]);
    bytes.arg(OsStr::from_bytes(b"--\xff"));
    let (status, _, error) = output(bytes).await;
    assert!(status.status.code() == Some(1) && error.contains("unknown option"), "{}: {error}", status.status);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_summary_or_a_help_that_cannot_be_written_exits_with_1() {
    let (base, redis) = (base().await, Redis::start().await);
    for arguments in [&[][..], &["--json"], &["--help"]] {
        let mut full = command(&redis, &base, arguments);
        full.stdout(std::fs::File::create("/dev/full").unwrap());
        let (status, _, error) = output(full).await;
        let said = error.contains("cannot write to stdout: ");
        assert!(status.status.code() == Some(1) && said, "{arguments:?}: {}: {error}", status.status);
    }
}

/// The template gives the function 256 MB.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_largest_results_that_the_settings_permit_are_copied_in_the_memory_of_the_template() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 300).await;
    let large = "UPDATE idempotency_inbox SET result = convert_to(repeat('x', 1 << 20), 'UTF8')";
    base.client.batch_execute(large).await.unwrap();
    let mut limited = Command::new("prlimit");
    let backfill = command(&redis, &base, &[]);
    limited.arg(format!("--data={}", 256 << 20)).arg(backfill.get_program()).env_clear();
    limited.envs(backfill.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.env("PATH", std::env::var_os("PATH").unwrap()).env("IDEMPOTENCY_RESULT_MAX_BYTES", (1 << 20).to_string());
    let (status, out, error) = output(limited).await;
    assert!(status.status.success() && out.starts_with("done; 300 copied, "), "{}: {error}", status.status);
}

#[tokio::test]
async fn as_a_function_it_stops_before_its_deadline_and_the_next_invocation_continues() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 1_000).await;
    let (redis_url, base_url) = (redis.url(), base.url());
    let function = Function::start(
        env!("CARGO_BIN_EXE_backfill"),
        &[
            ("REDIS_URL", &redis_url),
            ("DATABASE_URL", &base_url),
            ("IDEMPOTENCY_NAMESPACE", "payments"),
            ("BACKFILL_ROWS_PER_SECOND", "200"),
        ],
    )
    .await;
    let event = r#"{"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}"#;
    let mut copied = 0;
    let mut ends = Vec::new();
    while ends.last().is_none_or(|end| end != "done") {
        let answer = function.begin(event, 3 * SECOND).answer().await;
        let summary: Value = serde_json::from_str(&answer).unwrap();
        copied += summary["copied"].as_u64().unwrap();
        if summary["end"] == "out of time" {
            assert_eq!(summary["remaining"].as_u64().unwrap(), 1_000 - copied, "{summary}");
        }
        ends.push(summary["end"].as_str().unwrap().to_owned());
    }
    assert_eq!(copied, 1_000);
    assert_eq!(ends[0], "out of time");
    function.logs("copied").await;
}

#[tokio::test]
async fn as_a_function_it_signs_in_to_the_database_with_a_secret() {
    let mut server = Postgres::start();
    server.put("pg_hba.conf", b"host all payer 127.0.0.1/32 scram-sha-256\nhost all app 127.0.0.1/32 trust\n");
    server.restart_with(&[]);
    let base = Base::on(&server).await;
    base.client.batch_execute(&migration()).await.unwrap();
    let user =
        format!("CREATE ROLE payer LOGIN PASSWORD '{PASSWORD}'; GRANT ALL ON ALL TABLES IN SCHEMA public TO payer");
    base.client.batch_execute(&user).await.unwrap();
    seed(&base, 20).await;
    let secret = serde_json::json!({ "engine": "postgres", "username": "payer", "password": PASSWORD }).to_string();
    let (redis, secrets) = (Redis::start().await, Secrets::start(&secret).await);
    let function = Function::start(
        env!("CARGO_BIN_EXE_backfill"),
        &[
            ("REDIS_URL", &redis.url()),
            ("DATABASE_URL", &base.url()),
            // The first handshake of a debug build is slow.
            ("DATABASE_TIMEOUT_MS", "5000"),
            ("DATABASE_SECRET_ARN", ARN),
            ("AWS_ENDPOINT_URL_SECRETS_MANAGER", &secrets.url()),
            ("IDEMPOTENCY_NAMESPACE", "payments"),
        ],
    )
    .await;
    for known in [0, 20] {
        let answer = function.answer("{}").await;
        assert!(answer.contains(&format!("\"alreadyCompleted\":{known}")), "{answer}");
    }
    assert_eq!(secrets.reads(), 1);
}
