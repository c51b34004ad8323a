//! A process of a function: its invocations, processor time and memory.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::Fallible;
use serde_json::Value;
use tempfile::TempDir;

use crate::function::Function;
use crate::runtime_api::{Response, RuntimeApi};

/// Limit for a start, and for the responses to all events of one call.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Interval of the checks whether the process has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The unit of processor time in `/proc/PID/stat`, 1/100 s on every Linux (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

pub(crate) struct Process {
    pub(crate) name: String,
    child: Child,
    api: RuntimeApi,
    /// From the start of the process to its first request for an event.
    pub(crate) started_in: Duration,
    output: PathBuf,
    _directory: TempDir,
}

/// The figures of several invocations.
pub(crate) struct Invocations {
    /// The time of each, from the first byte of the event to the last byte of the response.
    pub(crate) times: Vec<Duration>,
    /// From the first event to the last response, with what the function does between invocations.
    pub(crate) wall: Duration,
    /// Processor time of the process. `None` without /proc.
    pub(crate) cpu: Option<Duration>,
}

impl Process {
    /// Starts a function and waits until it requests its first event.
    pub(crate) fn start(function: &Function, settings: &[(&str, &str)]) -> Fallible<Self> {
        let directory = tempfile::tempdir()?;
        let output = directory.path().join("output");
        let file = File::create(&output)?;
        let api = RuntimeApi::start()?;
        let mut command = Command::new(&function.command[0]);
        command
            .args(&function.command[1..])
            .env_clear()
            .envs([
                ("AWS_LAMBDA_RUNTIME_API", api.address().as_str()),
                ("AWS_LAMBDA_FUNCTION_NAME", "payments"),
                ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1769"),
                ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
                // Without log lines for successful messages.
                ("AWS_LAMBDA_LOG_LEVEL", "WARN"),
                ("AWS_REGION", "eu-central-1"),
            ])
            .envs(function.settings.iter().map(|(name, value)| (name, value)))
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        if let Some(folder) = &function.folder {
            command.current_dir(folder);
        }
        let start = Instant::now();
        let child = command.spawn().map_err(|error| format!("{}: {error}: {:?}", function.name, function.command))?;
        let name = function.name.clone();
        let mut process = Self { name, child, api, started_in: Duration::ZERO, output, _directory: directory };
        process.started_in = process.wait_for(|api| api.ready(CHECK_INTERVAL))? - start;
        Ok(process)
    }

    /// Sends these events to the function, one after another.
    ///
    /// # Errors
    /// A response that names a failed message, the end of the process, or a timeout.
    pub(crate) fn invoke(&mut self, events: &[Arc<[u8]>]) -> Fallible<Invocations> {
        let cpu = self.cpu();
        self.api.invoke(events);
        let responses = self.wait_for(|api| api.responses(events.len(), CHECK_INTERVAL))?;
        let cpu = self.cpu().zip(cpu).map(|(after, before)| after.saturating_sub(before));
        for Response { body, .. } in &responses {
            self.check(body)?;
        }
        let times: Vec<_> = responses.iter().map(|response| response.took).collect();
        let (first, last) = (&responses[0], &responses[responses.len() - 1]);
        Ok(Invocations { times, wall: last.at - first.at + first.took, cpu })
    }

    /// Peak resident memory in KiB. `None` without /proc.
    pub(crate) fn peak_memory(&self) -> Option<f64> {
        let status = self.proc("status")?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        peak.trim().strip_suffix(" kB")?.parse().ok()
    }

    /// User and system time of all threads. `None` without /proc.
    fn cpu(&self) -> Option<Duration> {
        let stat = self.proc("stat")?;
        // The second field is the program's name in parentheses, which may contain spaces.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
        let mut ticks = || fields.next()?.parse::<u32>().ok();
        Some(TICK * (ticks()? + ticks()?))
    }

    fn proc(&self, file: &str) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).ok()
    }

    /// Checks that the response names no failed message.
    fn check(&self, body: &Result<Vec<u8>, Vec<u8>>) -> Fallible<()> {
        let (Ok(text) | Err(text)) = body;
        let response =
            if body.is_ok() { serde_json::from_slice::<Value>(text).unwrap_or_default() } else { Value::Null };
        if response["batchItemFailures"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        // The response to a large batch may be long.
        let start = &text[..text.len().min(1000)];
        Err(self.error(&format!("unexpected response: {}", start.escape_ascii())).into())
    }

    /// Polls the Runtime API while the process runs, until there is a value.
    fn wait_for<T>(&mut self, poll: impl Fn(&RuntimeApi) -> Result<Option<T>, String>) -> Fallible<T> {
        let until = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = poll(&self.api).map_err(|error| self.error(&error))? {
                return Ok(found);
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(self.error(&format!("the process ended: {status}")).into());
            }
            if Instant::now() > until {
                return Err(self.error("timeout").into());
            }
        }
    }

    fn error(&self, what: &str) -> String {
        let output = fs::read(&self.output).unwrap_or_default();
        format!("{}: {what}\nIts output:\n{}", self.name, String::from_utf8_lossy(&output))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
