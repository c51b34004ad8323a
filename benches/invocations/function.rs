//! What is measured: ours, the floor, the peers, and whatever else is named.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::Fallible;
use crate::options::Options;
use crate::webhook::Webhook;

/// A peer takes seconds for a batch beyond it, and says nothing new.
const LARGEST_BATCH_OF_A_PEER: usize = 1_000;

#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Where it runs, if that matters to it.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) largest_batch: usize,
}

impl Function {
    /// One of the examples of this package, as `cargo build --release --examples` leaves it.
    pub(crate) fn example(name: &str) -> Fallible<Self> {
        Self::built(name, &Path::new("examples").join(name))
    }

    /// The function itself, for this webhook.
    pub(crate) fn webhook(webhook: &Webhook) -> Fallible<Self> {
        let function = Self::built("idempotent-sqs", Path::new("idempotent-sqs"))?;
        Ok(function.with("TARGET_URL", &webhook.url()))
    }

    /// The function that books payments, in this database.
    pub(crate) fn ledger(database: &str) -> Fallible<Self> {
        Ok(Self::built("ledger", Path::new("ledger"))?.with("DATABASE_URL", database))
    }

    fn built(name: &str, path: &Path) -> Fallible<Self> {
        // This program is in target/release/deps.
        let program = std::env::current_exe()?.parent().and_then(Path::parent).ok_or("no target folder")?.join(path);
        if !program.exists() {
            return Err(format!("{name} is not built: cargo build --release --bins --examples, with --features postgres for ledger and by_hand").into());
        }
        let settings = [("IDEMPOTENCY_NAMESPACE", "orders"), ("VISIBILITY_BACKOFF", "false")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Self {
            name: name.to_owned(),
            command: vec![program.into()],
            folder: None,
            settings: settings.into(),
            largest_batch: usize::MAX,
        })
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Whether it is one of the functions in other languages.
    pub(crate) fn is_peer(&self) -> bool {
        PEERS.iter().any(|peer| peer.name == self.name)
    }

    fn other(name: &str, command: &str) -> Self {
        Self {
            name: name.to_owned(),
            command: command.split_whitespace().map(OsString::from).collect(),
            folder: None,
            settings: Vec::new(),
            largest_batch: usize::MAX,
        }
    }
}

/// The functions that the options name, the floor first: it is what the others are held against.
pub(crate) fn chosen(options: &Options) -> Fallible<Vec<Function>> {
    let mut functions = Vec::new();
    for name in ["floor", "noop"] {
        if options.wants(name) {
            functions.push(Function::example(name)?);
        }
    }
    for peer in PEERS.iter().filter(|peer| options.wants(peer.name)) {
        match peer.function() {
            Ok(function) => functions.push(function),
            Err(missing) => println!("{} is left out: {missing}", peer.name),
        }
    }
    functions.extend(options.others.iter().map(|(name, command)| Function::other(name, command)));
    for function in &mut functions {
        function.settings.extend_from_slice(&options.env);
    }
    Ok(functions)
}

/// A function in another language.
struct Peer {
    name: &'static str,
    /// Under `benches/peers`.
    folder: &'static str,
    /// Under `.tools`, or on the PATH.
    runner: &'static str,
    arguments: &'static [&'static str],
    /// Under `.tools`: there once the peer is installed.
    installed: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

const PEERS: [Peer; 3] = [
    Peer {
        name: "powertools-python",
        folder: "python",
        runner: "bench/python/bin/python",
        arguments: &["-m", "awslambdaric", "powertools.handler"],
        installed: "bench/python/installed.txt",
        settings: &[
            ("POWERTOOLS_SERVICE_NAME", "payments"),
            ("POWERTOOLS_TRACE_DISABLED", "true"),
            ("POWERTOOLS_METRICS_DISABLED", "true"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
        ],
    },
    Peer {
        name: "powertools-typescript",
        folder: "node",
        runner: "node",
        arguments: &["bootstrap.cjs", "./powertools.cjs"],
        installed: "bench/node/installed.txt",
        settings: &[
            ("POWERTOOLS_SERVICE_NAME", "payments"),
            ("POWERTOOLS_TRACE_ENABLED", "false"),
            ("POWERTOOLS_METRICS_DISABLED", "true"),
        ],
    },
    Peer {
        name: "acquire-set",
        folder: "node",
        runner: "node",
        arguments: &["bootstrap.cjs", "./acquire-set.cjs"],
        installed: "bench/node/installed.txt",
        settings: &[],
    },
];

impl Peer {
    fn function(&self) -> Result<Function, String> {
        let project = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tools = project.join(".tools");
        if !tools.join(self.installed).exists() {
            return Err("scripts/tools.py bench did not install it".to_owned());
        }
        let runner = if self.runner.contains('/') { tools.join(self.runner) } else { on_path(self.runner)? };
        let arguments = self.arguments.iter().map(OsString::from);
        // Node.js looks for packages beside the program, and these are elsewhere.
        let packages = ("NODE_PATH", tools.join("bench/node/node_modules").display().to_string());
        let settings = self.settings.iter().map(|(name, value)| (*name, (*value).to_owned())).chain([packages]);
        Ok(Function {
            name: self.name.to_owned(),
            command: std::iter::once(runner.into_os_string()).chain(arguments).collect(),
            folder: Some(project.join("benches/peers").join(self.folder)),
            settings: settings.map(|(name, value)| (name.to_owned(), value)).collect(),
            largest_batch: LARGEST_BATCH_OF_A_PEER,
        })
    }
}

fn on_path(program: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|program| program.exists());
    found.ok_or_else(|| format!("there is no {program} here"))
}
