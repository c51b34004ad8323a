//! The function's binary as a child process, with a Lambda Runtime API on loopback.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::event::MARKER;
use super::http::{Answer, Request, Server, TOKEN};
use super::soon;

/// Part of the URL of every Redis.
pub const PASSWORD: &str = "SECRET-PASSWORD";

/// The name of the function.
pub const FUNCTION: &str = "payments";

/// The trace of every invocation, in hexadecimal digits.
pub const TRACE_ID: &str = "5bef4de7ad49b0e87f6ef6c87fc2e700";

/// Trace header of every invocation, as Lambda sends it without active X-Ray tracing.
const TRACE: &str = "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=0;Lineage=1:a87bd80c:0";

/// Default timeout of an invocation.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A process of the function. When it is dropped, its log is searched for secrets.
pub struct Function {
    process: Child,
    invocations: mpsc::UnboundedSender<Invocation>,
    snapshot: Arc<watch::Sender<Snapshot>>,
    log: Arc<watch::Sender<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    _api: Server,
}

/// State of a SnapStart snapshot.
#[derive(Clone, Copy, PartialEq)]
enum Snapshot {
    NotTaken,
    Taken,
    Restored,
}

/// Body of the response, or of the error.
type Answered = Result<Vec<u8>, Vec<u8>>;

struct Invocation {
    event: Vec<u8>,
    timeout: Duration,
    answer: oneshot::Sender<Reply>,
}

/// A response, or an error.
struct Reply {
    answered: Answered,
    /// Whether it came before the deadline.
    is_in_time: bool,
}

/// An invocation without a response so far.
pub struct Pending(oneshot::Receiver<Reply>);

impl Function {
    /// Starts a process of this binary with these environment variables and those that Lambda sets.
    pub async fn start(binary: &str, settings: &[(&str, &str)]) -> Self {
        let (invocations, waiting) = mpsc::unbounded_channel();
        let snapshot = Arc::new(watch::Sender::new(Snapshot::NotTaken));
        let api = runtime_api(waiting, Arc::clone(&snapshot)).await;
        let mut process = Command::new(binary)
            .env_clear()
            .envs([
                ("AWS_LAMBDA_RUNTIME_API", api.address().as_str()),
                ("AWS_LAMBDA_FUNCTION_NAME", FUNCTION),
                ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128"),
                ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
                ("AWS_LAMBDA_LOG_FORMAT", "JSON"),
                ("AWS_REGION", "eu-central-1"),
                ("AWS_ACCESS_KEY_ID", "test"),
                ("AWS_SECRET_ACCESS_KEY", "test"),
                ("AWS_EC2_METADATA_DISABLED", "true"),
            ])
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(watch::Sender::new(Vec::new()));
        let readers = vec![read(process.stdout.take().unwrap(), &log), read(process.stderr.take().unwrap(), &log)];
        Self { process, invocations, snapshot, log, readers, _api: api }
    }

    /// Starts an invocation whose deadline is after `timeout`.
    pub fn begin(&self, event: impl Into<Vec<u8>>, timeout: Duration) -> Pending {
        let (answer, answered) = oneshot::channel();
        assert!(self.invocations.send(Invocation { event: event.into(), timeout, answer }).is_ok());
        Pending(answered)
    }

    /// Invokes the function and returns the messageIds in its `batchItemFailures`.
    pub async fn invoke(&self, event: impl Into<Vec<u8>>) -> Vec<String> {
        self.begin(event, TIMEOUT).failures().await
    }

    /// Invokes the function and returns the body of its response.
    pub async fn answer(&self, event: impl Into<Vec<u8>>) -> String {
        self.begin(event, TIMEOUT).answer().await
    }

    /// Invokes the function, which must fail, and returns the error message.
    pub async fn error(&self, event: impl Into<Vec<u8>>) -> String {
        self.begin(event, TIMEOUT).error().await
    }

    /// The request ids in the log entries about this message.
    pub async fn request_ids(&self, message_id: &str) -> Vec<String> {
        let lines = self.logs(message_id).await.into_iter().map(|line| serde_json::from_str::<Value>(&line).unwrap());
        let about = lines.filter(|line| line["fields"]["message_id"] == message_id);
        let spans = about.flat_map(|line| line["spans"].as_array().cloned().unwrap_or_default());
        spans.filter_map(|span| span["requestId"].as_str().map(str::to_owned)).collect()
    }

    /// Waits for this number of log entries about messages, and returns their fields.
    pub async fn messages(&self, count: usize) -> Vec<Value> {
        let messages = |log: &Vec<String>| -> Vec<Value> {
            let lines = log.iter().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
            lines.map(|mut line| line["fields"].take()).filter(|fields| fields["message_id"].is_string()).collect()
        };
        let mut log = self.log.subscribe();
        messages(&soon(log.wait_for(|log| messages(log).len() >= count)).await.unwrap().clone())
    }

    /// Waits for this number of metric documents in the log, and returns their lines.
    pub async fn documents(&self, count: usize) -> Vec<String> {
        let documents = |log: &Vec<String>| -> Vec<String> {
            log.iter().filter(|line| line.starts_with(r#"{"_aws""#)).cloned().collect()
        };
        let mut log = self.log.subscribe();
        documents(&soon(log.wait_for(|log| documents(log).len() >= count)).await.unwrap().clone())
    }

    /// Waits for a line with this text, and returns the log.
    pub async fn logs(&self, text: &str) -> Vec<String> {
        let mut log = self.log.subscribe();
        soon(log.wait_for(|log| log.iter().any(|line| line.contains(text)))).await.unwrap().clone()
    }

    /// Waits until the process is ready for its snapshot.
    pub async fn is_ready_for_its_snapshot(&self) {
        soon(self.snapshot.subscribe().wait_for(|snapshot| *snapshot == Snapshot::Taken)).await.unwrap();
    }

    /// Continues the process as the restored snapshot.
    pub fn restore(&self) {
        self.snapshot.send_replace(Snapshot::Restored);
    }

    /// Kills the process, as Lambda may at any time.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Sends a signal: `-STOP` freezes the process, as Lambda does between invocations, and `-CONT` resumes it.
    pub fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        let log = self.log.borrow();
        if std::thread::panicking() {
            eprintln!("the function's log:\n{}", log.join("\n"));
        } else {
            log.iter().for_each(|line| assert_holds_no_secret(line));
        }
    }
}

impl Pending {
    /// The outcome. Never completes if the process dies first.
    pub async fn outcome(self) -> Answered {
        match self.0.await {
            Ok(reply) => reply.answered,
            Err(_dropped) => std::future::pending().await,
        }
    }

    async fn reply(self) -> Reply {
        soon(self.0).await.expect("the Runtime API lives as long as the function")
    }

    async fn answered(self) -> Answered {
        self.reply().await.answered
    }

    /// Whether the response came before the deadline, at which Lambda kills the process. Here it may respond later.
    pub async fn is_in_time(self) -> bool {
        let Reply { answered, is_in_time } = self.reply().await;
        answered.expect("the invocation succeeds");
        is_in_time
    }

    pub async fn answer(self) -> String {
        let answer = self.answered().await.map_err(|error| String::from_utf8_lossy(&error).into_owned());
        String::from_utf8(answer.expect("the invocation succeeds")).unwrap()
    }

    pub async fn failures(self) -> Vec<String> {
        let answer: Value = serde_json::from_str(&self.answer().await).unwrap();
        let failures = answer["batchItemFailures"].as_array().expect("batchItemFailures is a list").iter();
        failures.map(|failure| failure["itemIdentifier"].as_str().unwrap().to_owned()).collect()
    }

    pub async fn error(self) -> String {
        let answered = self.answered().await.map(|answer| String::from_utf8_lossy(&answer).into_owned());
        let error = String::from_utf8(answered.expect_err("the invocation fails")).unwrap();
        assert_holds_no_secret(&error);
        let error: Value = serde_json::from_str(&error).unwrap();
        error["errorMessage"].as_str().unwrap().to_owned()
    }
}

/// Checks that a text that leaves the function, such as a line of its log, holds no secret.
pub fn assert_holds_no_secret(text: &str) {
    for secret in [MARKER, PASSWORD, TOKEN, "X-Amz-Signature"] {
        assert!(!text.contains(secret), "{secret} appears in {text}");
    }
}

fn read(output: impl Read + Send + 'static, log: &Arc<watch::Sender<Vec<String>>>) -> JoinHandle<()> {
    let log = Arc::clone(log);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            log.send_modify(|log| log.push(line.unwrap()));
        }
    })
}

/// A time as the Runtime API writes it, ms since 1970.
fn milliseconds(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()
}

/// <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>
async fn runtime_api(waiting: mpsc::UnboundedReceiver<Invocation>, snapshot: Arc<watch::Sender<Snapshot>>) -> Server {
    const ROOT: &str = "/2018-06-01/runtime/";
    let waiting = Arc::new(tokio::sync::Mutex::new(waiting));
    let asked = Arc::new(Mutex::new(HashMap::new()));
    Server::start(move |request: Request| {
        let (waiting, asked, snapshot) = (Arc::clone(&waiting), Arc::clone(&asked), Arc::clone(&snapshot));
        async move {
            let path = request.path.strip_prefix(ROOT).expect("a path of the Runtime API");
            if path == "restore/next" {
                snapshot.send_replace(Snapshot::Taken);
                let restored = snapshot.subscribe().wait_for(|snapshot| *snapshot == Snapshot::Restored).await.is_ok();
                return if restored { Answer::status(200) } else { Answer::Held };
            }
            let path = path.strip_prefix("invocation/").expect("a path of the Runtime API");
            if path == "next" {
                let Some(Invocation { event, timeout, answer }) = waiting.lock().await.recv().await else {
                    return Answer::Held;
                };
                let deadline_ms = milliseconds(SystemTime::now() + timeout);
                let mut asked = asked.lock().unwrap();
                let id = format!("request-{}", asked.len());
                asked.insert(id.clone(), Some((answer, deadline_ms)));
                let headers = [
                    ("Lambda-Runtime-Aws-Request-Id", id.as_str()),
                    ("Lambda-Runtime-Deadline-Ms", &deadline_ms.to_string()),
                    (
                        "Lambda-Runtime-Invoked-Function-Arn",
                        "arn:aws:lambda:eu-central-1:123456789012:function:payments",
                    ),
                    ("Lambda-Runtime-Trace-Id", TRACE),
                    ("Content-Type", "application/json"),
                ];
                return Answer::with(200, &headers, &event);
            }
            let (id, verb) = path.split_once('/').unwrap();
            let (answer, deadline_ms) =
                asked.lock().unwrap().get_mut(id).and_then(Option::take).expect("each invocation has one response");
            let is_in_time = milliseconds(SystemTime::now()) < deadline_ms;
            let answered = match verb {
                "response" => Ok(request.body),
                "error" => Err(request.body),
                other => panic!("{other} is not part of the Runtime API"),
            };
            // A test may have stopped waiting.
            let _ = answer.send(Reply { answered, is_in_time });
            Answer::status(202)
        }
    })
    .await
}
