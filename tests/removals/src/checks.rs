//! The checks of each kind of evidence: programs that fail if something is wrong.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::copy::Copy;

/// A run of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Check {
    pub name: String,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    directory: PathBuf,
    /// The conditions that it reaches.
    pub reached: BTreeSet<u32>,
    pub lasts: Duration,
}

/// A kind of evidence.
pub(crate) struct Kind {
    pub checks: Vec<Check>,
    /// How many checks run at once.
    pub workers: usize,
    /// How often a check has to fail. Histories of real processes depend on the load of the machine.
    pub failures: usize,
}

/// Tests that run at once for each core. They wait most of the time.
const TESTS_PER_CORE: usize = 2;

/// Longest time of a check, in addition to four times its usual time. One that waits for ever has found something.
const LIMIT: Duration = Duration::from_secs(40);

/// Longest time of the run that finds what a check reaches.
const TRACE_LIMIT: Duration = Duration::from_secs(300);

/// Seeds of the simulation.
const SEEDS: u64 = 60;

/// Runs of histories, of two seeds each.
const RUNS: u64 = 3;

impl Kind {
    /// The checks of the kind with this name. Each ran once, to find what it reaches.
    pub(crate) fn named(copy: &Copy, name: &str) -> Result<Self, Box<dyn Error>> {
        let file = copy.directory.join(format!("checks-{name}.jsonl"));
        let cores = thread::available_parallelism()?.get();
        let (workers, failures) = match name {
            "tests" => (TESTS_PER_CORE * cores, 1),
            "simulation" => (cores, 1),
            _ => (1, 2),
        };
        let checks = if let Ok(lines) = fs::read_to_string(&file) {
            lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?
        } else {
            let checks = trace(copy, &build(copy, name)?, workers);
            if checks.is_empty() {
                return Err("no check passes without a removal".into());
            }
            let lines = checks.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
            fs::write(&file, lines.join("\n"))?;
            checks
        };
        Ok(Self { checks, workers, failures })
    }
}

fn build(copy: &Copy, name: &str) -> Result<Vec<Check>, Box<dyn Error>> {
    match name {
        "simulation" => {
            let arguments = ["build", "--config=profile.dev.opt-level=2", "--package=simulation", "--bin=simulate"];
            let built = executables(copy, &arguments)?;
            let simulate = built.first().ok_or("no simulation was built")?;
            Ok((1..=SEEDS).map(|seed| simulate.check(format!("seed {seed}"), vec![seed.to_string()])).collect())
        }
        "torture" | "http" | "inbox" => {
            // The history of the HTTP layer has a package of its own.
            let (package, tests) =
                if name == "http" { ("http-history", "") } else { ("history", &*format!("{name}::")) };
            let built = executables(copy, &["test", "--no-run", &format!("--package={package}"), "--test=it"])?;
            let histories = built.iter().find(|program| program.is_test).ok_or("no histories were built")?;
            let check = |run: u64| {
                let first = (2 * run + 1).to_string();
                let check = histories.check(format!("{name} from seed {first}"), vec![tests.to_owned()]);
                Check { environment: vec![("TORTURE_FIRST_SEED".to_owned(), first)], ..check }
            };
            Ok((0..RUNS).map(check).collect())
        }
        "tests" => {
            let others = ["benches", "history", "http-history", "removals", "simulation"];
            let others = others.map(|package| format!("--exclude={package}"));
            let others: Vec<_> = others.iter().map(String::as_str).collect();
            let arguments = [&["test", "--no-run", "--workspace", "--all-features"][..], &others].concat();
            let mut checks = Vec::new();
            for program in executables(copy, &arguments)?.iter().filter(|program| program.is_test) {
                let output = Command::new(&program.path)
                    .args(["--list", "--format=terse"])
                    .current_dir(&program.directory)
                    .output()?;
                let list = String::from_utf8(output.stdout)?;
                for test in list.lines().filter_map(|line| line.strip_suffix(": test")) {
                    let name = format!("{} {test}", program.name);
                    checks.push(program.check(name, vec!["--exact".to_owned(), test.to_owned()]));
                }
            }
            Ok(checks)
        }
        _ => Err(format!("there is no kind {name:?}").into()),
    }
}

/// A program that cargo built.
struct Executable {
    name: String,
    path: PathBuf,
    directory: PathBuf,
    is_test: bool,
}

impl Executable {
    fn check(&self, name: String, arguments: Vec<String>) -> Check {
        let (program, directory) = (self.path.clone(), self.directory.clone());
        Check {
            name,
            program,
            arguments,
            environment: Vec::new(),
            directory,
            reached: BTreeSet::new(),
            lasts: Duration::ZERO,
        }
    }
}

fn executables(copy: &Copy, arguments: &[&str]) -> Result<Vec<Executable>, Box<dyn Error>> {
    let output = copy.cargo(arguments).arg("--message-format=json").stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("cargo {arguments:?} failed").into());
    }
    let mut executables = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let artifact: Value = serde_json::from_str(line)?;
        let (Some(path), Some(manifest)) = (artifact["executable"].as_str(), artifact["manifest_path"].as_str()) else {
            continue;
        };
        let directory = Path::new(manifest).parent().unwrap_or(Path::new("")).to_owned();
        let package = directory.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{package} {}", artifact["target"]["name"].as_str().unwrap_or_default());
        executables.push(Executable {
            name,
            path: path.into(),
            directory,
            is_test: artifact["profile"]["test"] == true,
        });
    }
    Ok(executables)
}

/// Passes each item to `work` once, from this many threads, with the number of the thread.
pub(crate) fn for_each_item<T: Sync>(items: &[T], workers: usize, work: impl Fn(usize, &T) + Sync) {
    let next = AtomicUsize::new(0);
    let (next, work) = (&next, &work);
    let run = |worker| {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(worker, item);
        }
    };
    thread::scope(|scope| (0..workers).for_each(|worker| drop(scope.spawn(move || run(worker)))));
}

/// The checks that pass, with what they reach.
fn trace(copy: &Copy, checks: &[Check], workers: usize) -> Vec<Check> {
    let traced = Mutex::new(Vec::new());
    for_each_item(checks, workers, |worker, check| {
        let file = copy.directory.join(format!("reached-{worker}"));
        let _absent = fs::remove_file(&file);
        let began = Instant::now();
        if check.fails("REACHED", &file.to_string_lossy(), TRACE_LIMIT) {
            println!("fails without a removal: {}", check.name);
            return;
        }
        let reached = fs::read_to_string(&file).unwrap_or_default();
        let reached = reached.lines().filter_map(|number| number.parse().ok()).collect();
        let check = Check { reached, lasts: began.elapsed(), ..check.clone() };
        traced.lock().expect("no worker panics").push(check);
    });
    traced.into_inner().expect("no worker panics")
}

impl Check {
    /// Whether it fails without this condition, or does not end.
    pub(crate) fn finds(&self, removed: &str) -> bool {
        self.fails("REMOVED", removed, LIMIT + 4 * self.lasts)
    }

    /// Whether it fails with this variable, or does not end in this time.
    fn fails(&self, variable: &str, value: &str, limit: Duration) -> bool {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().cloned()).env(variable, value);
        command.current_dir(&self.directory).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let Ok(mut child) = command.spawn() else { return true };
        let ends = Instant::now() + limit;
        while Instant::now() < ends {
            match child.try_wait() {
                Ok(Some(status)) => return !status.success(),
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Err(_) => return true,
            }
        }
        // Also the processes that it started.
        let _ended = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
        let _waited = child.wait();
        true
    }
}
