//! A running function: its invocations, its processor time and its memory.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::Fallible;
use crate::function::Function;
use crate::runtime_api::{Answer, RuntimeApi};

/// For a start, and for all answers of one call: what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks at whether the process is still there.
const LOOK: Duration = Duration::from_millis(100);

/// Processor time in `/proc/PID/stat` is counted in hundredths of a second on every Linux
/// (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

pub(crate) struct Process {
    name: String,
    child: Child,
    api: RuntimeApi,
    /// From the start of the process to its first request for an event.
    pub(crate) started_in: Duration,
    output: PathBuf,
    _directory: TempDir,
}

/// What became of several invocations.
pub(crate) struct Invocations {
    /// How long each took, from the event's first byte to the answer's last.
    pub(crate) times: Vec<Duration>,
    /// How long all took together, with what the function does between two.
    pub(crate) wall: Duration,
    /// Processor time of the process; `None` where there is no /proc.
    pub(crate) cpu: Option<Duration>,
}

impl Process {
    /// Start a function, and wait until it asks for its first event.
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
                // Nobody logs a message that goes well.
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
        process.started_in = process.insist(|api| api.ready(LOOK))? - start;
        Ok(process)
    }

    /// Hand these events to the function, one after another. Every message of each must succeed.
    pub(crate) fn invoke(&mut self, events: &[Arc<[u8]>]) -> Fallible<Invocations> {
        let cpu = self.cpu();
        self.api.invoke(events);
        let answers = self.insist(|api| api.answers(events.len(), LOOK))?;
        let cpu = self.cpu().zip(cpu).map(|(after, before)| after.saturating_sub(before));
        for Answer { body, .. } in &answers {
            self.check(body)?;
        }
        let times: Vec<_> = answers.iter().map(|answer| answer.took).collect();
        let (first, last) = (&answers[0], &answers[answers.len() - 1]);
        Ok(Invocations { times, wall: last.at - first.at + first.took, cpu })
    }

    /// Largest memory that was resident, in KiB; `None` where there is no /proc.
    pub(crate) fn peak_memory(&self) -> Option<f64> {
        let status = self.proc("status")?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        peak.trim().strip_suffix(" kB")?.parse().ok()
    }

    /// Time on processors of all threads, as program and in the kernel.
    fn cpu(&self) -> Option<Duration> {
        let stat = self.proc("stat")?;
        // The second field is the program's name in parentheses, and may hold spaces.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
        let mut ticks = || fields.next()?.parse::<u32>().ok();
        Some(TICK * (ticks()? + ticks()?))
    }

    fn proc(&self, file: &str) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).ok()
    }

    /// A function that answers nothing useful must not look fast.
    fn check(&self, body: &Result<Vec<u8>, Vec<u8>>) -> Fallible<()> {
        let (Ok(text) | Err(text)) = body;
        let answer = if body.is_ok() { serde_json::from_slice::<Value>(text).unwrap_or_default() } else { Value::Null };
        if answer["batchItemFailures"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        // An event of many messages names as many failures.
        let start = &text[..text.len().min(1000)];
        Err(self.fault(&format!("it should have done every message, and answered {}", start.escape_ascii())).into())
    }

    /// Ask the Runtime API again and again, as long as the process lives.
    fn insist<T>(&mut self, ask: impl Fn(&RuntimeApi) -> Result<Option<T>, String>) -> Fallible<T> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = ask(&self.api).map_err(|error| self.fault(&error))? {
                return Ok(found);
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(self.fault(&format!("it ended: {status}")).into());
            }
            if Instant::now() > until {
                return Err(self.fault("it hangs").into());
            }
        }
    }

    fn fault(&self, what: &str) -> String {
        let output = fs::read(&self.output).unwrap_or_default();
        format!("{}: {what}\nIts output:\n{}", self.name, String::from_utf8_lossy(&output))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
