//! Arguments, settings and confirmation.

use harness::sqs::ACCESS_DENIED;
use idempotent_sqs_testing::{Queue, QueueSettings};
use serde_json::json;

use super::Queues;

#[tokio::test]
async fn a_missing_queue_is_reported_with_what_to_do() {
    let mut queues = Queues::standard().await;
    let url = queues.api.queue_url(&queues.dead);
    queues.settings.retain(|(name, _)| *name != "DEAD_LETTER_QUEUE_URL");
    let output = queues.run(&["list"]).await;
    assert_eq!((output.code, output.stdout.as_str()), (2, ""));
    let error =
        "DEAD_LETTER_QUEUE_URL is missing: set it to the URL of the dead-letter queue, or pass it with --queue-url";
    assert!(output.stderr.contains(error), "{}", output.stderr);
    assert_eq!(queues.run(&["list", "--queue-url", &url]).await.code, 0);
    let absent = Queue::new(QueueSettings { name: "absent".into(), ..QueueSettings::default() }, 7);
    let output = queues.run(&["list", "--queue-url", &queues.api.queue_url(&absent)]).await;
    assert!(output.code == 2 && output.stderr.contains("QueueDoesNotExist"), "{}", output.stderr);
}

#[tokio::test]
async fn without_a_filter_all_is_required_and_without_a_terminal_yes() {
    let queues = Queues::standard().await;
    queues.add("1", &json!({}));
    for command in ["redrive", "delete"] {
        for (arguments, error) in [
            (&[command, "--yes"][..], "no filter: pass --all"),
            (&[command, "--yes", "--limit", "5"], "no filter: pass --all"),
            (&[command, "--yes", "--all", "--key", "pay_1"], "--all concerns every letter"),
            (&[command, "--all"], "stdin is not a terminal, so there is nobody to ask: pass --yes"),
            (&[command, "--key", "pay_1"], "pass --yes"),
        ] {
            let output = queues.run(arguments).await;
            assert!(output.code == 2 && output.stderr.contains(error), "{arguments:?}: {}", output.stderr);
            assert_eq!(output.stdout, "");
        }
    }
    assert!(queues.api.calls("ReceiveMessage").is_empty());
    assert_eq!(queues.dead.visible(), 1);
}

/// `script` has other arguments on other systems.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn on_a_terminal_letters_are_deleted_only_if_the_operator_agrees() {
    use std::process::Stdio;

    use tokio::io::AsyncWriteExt;
    use tokio::process::Command;

    let queues = Queues::standard().await;
    queues.add("1", &json!({}));
    for (answer, agrees) in [("n", false), ("", false), ("yeah", false), ("Y", true)] {
        // `script` runs the tool in a terminal and copies its output to stdout.
        let mut command = Command::new("script");
        command.args(["-qec", &format!("'{}' delete --all", env!("CARGO_BIN_EXE_letters")), "/dev/null"]);
        let path = ("PATH", std::env::var("PATH").unwrap());
        command.env_clear().envs(queues.settings.iter().cloned()).envs([path]);
        let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        run.stdin.take().unwrap().write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        let output = crate::Output::new(harness::soon(run.wait_with_output()).await.unwrap());
        assert_eq!((output.code == 0, queues.dead.is_empty()), (agrees, agrees), "{answer:?}: {}", output.stdout);
        let note = "not confirmed; nothing was changed";
        assert_eq!(output.stdout.contains(note), !agrees, "{answer:?}: {}", output.stdout);
    }
}

#[tokio::test]
async fn invalid_arguments_exit_with_2_and_name_the_error() {
    let queues = Queues::standard().await;
    let invalid: [&[&str]; 12] = [
        &[],
        &["show"],
        &["list", "--outcome", "BROKEN"],
        &["list", "--older-than", "30"],
        &["list", "--older-than", "h"],
        &["list", "--newer-than", "5m"],
        &["list", "--older-than", "99999999999999999999d"],
        &["redrive", "--all", "--rate", "0"],
        &["list", "--visibility-timeout", "4"],
        &["list", "--visibility-timeout", "26001"],
        &["list", "--queue-url", ""],
        &["list", "--records", "--namespace", ""],
    ];
    for arguments in invalid {
        let output = queues.run(arguments).await;
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{arguments:?}");
        let errors = ["Usage: ", "invalid value", "a value is required"];
        let names = errors.iter().any(|error| output.stderr.contains(error));
        assert!(names, "{arguments:?}: {}", output.stderr);
    }
    let help = queues.run(&["--help"]).await;
    assert!(help.code == 0 && help.stdout.contains("redrive") && help.stdout.contains("AWS_REGION"), "{}", help.stdout);
}

#[tokio::test]
async fn a_key_that_begins_with_a_hyphen_is_a_key() {
    let queues = Queues::standard().await;
    for key in ["-7f3a", "-h3k", "--all"] {
        queues.add(key, &json!({ "key": key }));
        assert_eq!(queues.listed(&["--key", key], "key").await, [key]);
        assert_eq!(queues.run(&["show", "--", key]).await.row("key"), key);
    }
    assert_eq!(queues.run(&["show", "-7f3a"]).await.row("key"), "-7f3a");
}

#[tokio::test]
async fn a_missing_permission_exits_with_2_and_names_the_call() {
    let queues = Queues::standard().await;
    queues.api.fail(|_| Some(ACCESS_DENIED));
    for arguments in [&["list"][..], &["show", "1"], &["redrive", "--all", "--yes"], &["delete", "--all", "--yes"]] {
        let output = queues.run(arguments).await;
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{arguments:?}");
        let error = "error: SQS GetQueueAttributes: AccessDeniedException: User: operator is not authorized";
        assert!(output.stderr.contains(error), "{}", output.stderr);
    }
}

/// As in an image without `ca-certificates`.
#[tokio::test]
async fn without_certificates_the_exit_code_is_2_and_the_reason_is_on_stderr() {
    let queues = Queues::standard().await.with("SSL_CERT_DIR", "/nonexistent");
    for arguments in [&["list"][..], &["redrive", "--all", "--yes"]] {
        let output = queues.run(arguments).await;
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{}", output.stderr);
        let error = "error: the AWS SDK panicked: check that SSL_CERT_FILE or SSL_CERT_DIR, if one is set, or else the \
                     system has certificates\n";
        assert!(output.stderr.ends_with(error), "{}", output.stderr);
    }
}

#[tokio::test]
async fn an_empty_filter_is_an_error_and_matches_no_letter() {
    let queues = Queues::standard().await;
    queues.add("1", &json!({}));
    queues.add("2", &json!({}));
    for command in [&["list"][..], &["redrive", "--yes"], &["delete", "--yes"]] {
        for filter in ["--reason", "--key", "--id"] {
            let output = queues.run(&[command, &[filter, ""]].concat()).await;
            assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{command:?} {filter}");
            assert!(output.stderr.contains(filter), "{}", output.stderr);
        }
    }
    assert!(queues.api.calls("ReceiveMessage").is_empty());
    assert_eq!(queues.dead.visible(), 2);
}

#[tokio::test]
async fn a_destination_that_is_no_url_is_an_error_that_says_what_to_pass() {
    let queues = Queues::standard().await;
    queues.add("1", &json!({}));
    for to in ["", " ", "payments"] {
        let output = queues.run(&["redrive", "--all", "--yes", "--to", to]).await;
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{to:?}");
        assert!(output.stderr.contains("--to <QUEUE_URL>") && output.stderr.contains("pass the URL of a queue"));
    }
    assert!(queues.api.calls("ReceiveMessage").is_empty());
}
