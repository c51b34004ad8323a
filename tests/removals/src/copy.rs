//! The copy of the project: each file of the library with its switches, without those that do not compile.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use serde_json::Value;

use crate::condition::{Condition, Removal};
use crate::conditions;
use crate::mutants::{self, Mutant};
use crate::switches::marks;

/// The files whose conditions are removed: the start of their paths, and how they name the library.
const SOURCES: [(&str, &str); 13] = [
    ("src/aws", "crate"),
    ("src/config", "crate"),
    ("src/connections.rs", "crate"),
    ("src/idempotency", "crate"),
    ("src/lambda", "crate"),
    ("src/metrics", "crate"),
    ("src/s3.rs", "crate"),
    ("src/sqs", "crate"),
    ("src/stores", "crate"),
    ("src/traces", "crate"),
    ("src/webhook", "crate"),
    ("crates/http/src", "idempotent_sqs"),
    ("crates/postgres/src", "idempotent_sqs"),
];

/// Files of these that only tests or the operator's tools use, or that are not compiled.
const NOT_REMOVED: [&str; 5] = [
    "src/stores/redis/connection/operator.rs",
    "src/stores/redis/connection/simulation.rs",
    "src/stores/redis/records",
    "src/traces/none.rs",
    "crates/postgres/src/main.rs",
];

/// Says whether a switch is on, by the variable `REMOVED`. Processes whose environment is cleared have that of their
/// parent. Each switch that is asked for is written to the file that `REACHED` names.
const SWITCH: &str = r#"
#[doc(hidden)]
#[must_use]
pub fn is_removed(number: u32) -> bool {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    static SET: std::sync::OnceLock<(u32, Option<String>)> = std::sync::OnceLock::new();
    static ASKED: [AtomicBool; 1 << 14] = [const { AtomicBool::new(false) }; 1 << 14];
    let (removed, reached) = SET.get_or_init(|| {
        let parent = format!("/proc/{}/environ", std::os::unix::process::parent_id());
        let parent = std::fs::read_to_string(parent).unwrap_or_default();
        let variable = |name: &str| {
            let of_parent = || parent.split('\0').find_map(|set| set.strip_prefix(name)?.strip_prefix('='));
            std::env::var(name).ok().or_else(|| of_parent().map(str::to_owned))
        };
        (variable("REMOVED").and_then(|number| number.parse().ok()).unwrap_or(0), variable("REACHED"))
    });
    if let Some(file) = reached
        && !ASKED[number as usize].swap(true, Ordering::Relaxed)
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(file)
    {
        let _written = file.write_all(format!("{number}\n").as_bytes());
    }
    *removed == number
}
"#;

pub(crate) struct Copy {
    /// Where the copy, its build and the results are.
    pub directory: PathBuf,
    /// What is measured instead of the conditions.
    mutants: Option<Vec<Mutant>>,
    pub conditions: Vec<Condition>,
}

impl Copy {
    /// Copies the project in the current directory to this one, unless its sources were copied before.
    pub(crate) fn make(directory: &str, mutants: Option<Vec<Mutant>>) -> Result<Self, Box<dyn Error>> {
        let sources = sources()?;
        let mut copy = Self { directory: env::current_dir()?.join(directory), mutants, conditions: Vec::new() };
        let is_copied = |(file, text): (&String, &Vec<u8>)| {
            // These are not measured.
            let is_page = Path::new(file).extension().is_some_and(|extension| extension == "md");
            is_page
                || file.starts_with("tests/removals/")
                || fs::read(copy.directory.join("sources").join(file)).is_ok_and(|copied| copied == *text)
        };
        if sources.iter().all(is_copied)
            && let Ok(made) = Self::made(directory)
        {
            return Ok(made);
        }
        for folder in ["sources", "project"].map(|folder| copy.directory.join(folder)) {
            let _absent = fs::remove_dir_all(&folder);
            for (file, text) in &sources {
                fs::create_dir_all(folder.join(file).parent().unwrap_or(&folder))?;
                fs::write(folder.join(file), text)?;
            }
        }
        // The results of another copy have other numbers.
        for entry in fs::read_dir(&copy.directory)?.flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "jsonl") {
                fs::remove_file(entry.path())?;
            }
        }
        copy.compile(&sources.into_keys().collect::<Vec<_>>())?;
        fs::write(copy.directory.join("conditions.json"), serde_json::to_vec_pretty(&copy.conditions)?)?;
        Ok(copy)
    }

    /// The copy that was made last.
    pub(crate) fn made(directory: &str) -> Result<Self, Box<dyn Error>> {
        let directory = env::current_dir()?.join(directory);
        let conditions = serde_json::from_slice(&fs::read(directory.join("conditions.json"))?)?;
        Ok(Self { directory, mutants: None, conditions })
    }

    /// A command of cargo on the copy.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.args(arguments).current_dir(self.directory.join("project"));
        cargo.env("CARGO_TARGET_DIR", self.directory.join("build")).env("CARGO_INCREMENTAL", "0");
        cargo
    }

    /// Writes the switches, again and again, without those that do not compile. The file `left-out` lists these, with
    /// the error of the compiler.
    fn compile(&mut self, files: &[String]) -> Result<(), Box<dyn Error>> {
        let mut left_out = BTreeMap::new();
        loop {
            self.write_switches(files, &left_out)?;
            println!("{} changes, {} left out", self.conditions.len(), left_out.len());
            let packages = ["idempotent-sqs", "idempotent-sqs-http", "idempotent-sqs-postgres"];
            let output = self
                .cargo(&["check", "--message-format=json", "--keep-going", "--lib", "--bins", "--all-features"])
                .args(packages.iter().flat_map(|package| ["--package", package]))
                .output()?;
            if output.status.success() {
                let mutants = self.mutants.iter().flatten().filter(|mutant| !mutant.has_switch());
                let mutants = mutants.map(|mutant| format!("- {}", mutant.name));
                let lines = left_out.iter().map(|(name, code)| format!("{code} {name}"));
                let lines: Vec<_> = lines.chain(mutants).collect();
                return Ok(fs::write(self.directory.join("left-out"), lines.join("\n"))?);
            }
            let number = left_out.len();
            for line in String::from_utf8(output.stdout)?.lines() {
                let message: Value = serde_json::from_str(line)?;
                let code = message["message"]["code"]["code"].as_str().unwrap_or_default();
                left_out.extend(self.at_fault(&message)?.map(|condition| (condition.name(), code.to_owned())));
            }
            if left_out.len() == number {
                return Err(String::from_utf8_lossy(&output.stderr).into());
            }
        }
    }

    fn write_switches(&mut self, files: &[String], left_out: &BTreeMap<String, String>) -> Result<(), Box<dyn Error>> {
        self.conditions.clear();
        let (sources, project) = (self.directory.join("sources"), self.directory.join("project"));
        for file in files.iter().filter(|file| Path::new(file).extension().is_some_and(|extension| extension == "rs")) {
            let library = SOURCES.iter().find(|(path, _)| file.starts_with(path)).map(|(_, library)| library);
            let Some(library) = library else { continue };
            let text = fs::read_to_string(sources.join(file))?;
            let first = self.conditions.last().map_or(1, |last| last.number + 1);
            let is_left_out = |condition: &Condition| left_out.contains_key(&condition.name());
            let switch = format!("{library}::is_removed");
            let (found, switched) = match &self.mutants {
                Some(mutants) => {
                    let of_file: Vec<_> = mutants.iter().filter(|mutant| mutant.file == *file).collect();
                    mutants::find(&text, &of_file, first, &switch, &is_left_out)?
                }
                None if NOT_REMOVED.iter().any(|path| file.starts_with(path)) => continue,
                None => conditions::find(file, &text, first, &switch, &is_left_out)?,
            };
            self.conditions.extend(found);
            fs::write(project.join(file), switched)?;
        }
        let library = fs::read_to_string(sources.join("src/lib.rs"))?;
        fs::write(project.join("src/lib.rs"), library + SWITCH)?;
        Ok(())
    }

    /// The condition whose switch causes this error: of those around it, the innermost one that may change a type, or
    /// else the innermost one. Around none, a statement or an arm between the places that the error names, or a condition
    /// around one of them.
    fn at_fault(&self, message: &Value) -> Result<Option<&Condition>, Box<dyn Error>> {
        let message = &message["message"];
        let spans = || message["spans"].as_array().into_iter().flatten();
        let notes = || message["children"].as_array().into_iter().flatten();
        let spans_of_notes = || notes().filter_map(|note| note["spans"].as_array()).flatten();
        let primary = spans().filter(|_| message["level"] == "error").find(|span| span["is_primary"] == true);
        let Some((file, at)) =
            primary.and_then(|span| Some((span["file_name"].as_str()?, span["byte_start"].as_u64()?)))
        else {
            return Ok(None);
        };
        let (text, at) = (fs::read_to_string(self.directory.join("project").join(file))?, usize::try_from(at)?);
        let of_file = || self.conditions.iter().filter(|condition| condition.file == file);
        let innermost = |at: usize| {
            let length = |condition: &Condition| {
                let [start, end] = marks(condition.number).map(|mark| text.find(&mark));
                let (start, end) = (start?, end?);
                (start..=end).contains(&at).then_some(end - start)
            };
            let around = of_file().filter_map(|condition| Some((length(condition)?, condition)));
            let innermost = around.min_by_key(|(length, condition)| (!condition.removal.may_change_type(), *length));
            innermost.map(|(_, condition)| condition)
        };
        let places = || spans().filter(|span| span["file_name"] == file);
        let named = || places().chain(spans_of_notes().filter(|span| span["file_name"] == file));
        let between = |lines: BTreeSet<u64>, removal: Removal| {
            let (first, last) = (lines.first().copied()?, lines.last().copied()?);
            let lines = first..=last + 1;
            of_file().find(|condition| condition.removal == removal && lines.contains(&(condition.line as u64)))
        };
        let line = |span: &Value| span["line_start"].as_u64();
        let statement = || between(places().filter_map(line).collect(), Removal::Statement);
        // A match without the arm is not exhaustive. The error names the match and its last arm.
        let arm = || between(named().filter_map(line).collect(), Removal::DeletedArm);
        let near = || named().find_map(|span| innermost(usize::try_from(span["byte_start"].as_u64()?).ok()?));
        Ok(innermost(at).or_else(statement).or_else(arm).or_else(near))
    }
}

/// The files of the project, by their paths.
fn sources() -> Result<BTreeMap<String, Vec<u8>>, Box<dyn Error>> {
    let listed = Command::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]).output()?;
    let files = String::from_utf8(listed.stdout)?;
    let files = files.lines().filter(|file| Path::new(file).is_file());
    Ok(files.map(|file| Ok((file.to_owned(), fs::read(file)?))).collect::<io::Result<_>>()?)
}
