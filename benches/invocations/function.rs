//! The functions that are measured: how to start them and their settings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use benches::Fallible;

use crate::options::Options;
use crate::peers::PEERS;
use crate::webhook::Webhook;

#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Its working directory, if it needs one.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) max_batch: usize,
}

impl Function {
    /// This library with work that does nothing, or that takes `WORK_MS`.
    pub(crate) fn noop() -> Fallible<Self> {
        Self::built("noop", "examples/library")
    }

    pub(crate) fn floor() -> Fallible<Self> {
        Self::built("floor", "examples/floor")
    }

    /// The floor that also parses each body as JSON and hashes it.
    pub(crate) fn hashing_floor() -> Fallible<Self> {
        Ok(Self::built("floor-hash", "examples/floor")?.with("FLOOR", "hash"))
    }

    /// The floor that reads only the messageIds.
    pub(crate) fn lean_floor() -> Fallible<Self> {
        Ok(Self::built("floor-ids", "examples/floor")?.with("FLOOR", "ids"))
    }

    /// The floor in scripts.
    pub(crate) fn scripted_floor() -> Fallible<Self> {
        Self::built("floor-script", "examples/floor_script")
    }

    pub(crate) fn bare() -> Fallible<Self> {
        Self::built("bare", "examples/bare")
    }

    /// The binary `idempotent-sqs` with this webhook.
    pub(crate) fn webhook(webhook: &Webhook) -> Fallible<Self> {
        Ok(Self::built("idempotent-sqs", "idempotent-sqs")?.with("TARGET_URL", &webhook.url()))
    }

    /// The example `ledger` on this database.
    pub(crate) fn ledger(database: &str) -> Fallible<Self> {
        Ok(Self::built("ledger", "ledger")?.with("DATABASE_URL", database))
    }

    /// The transactions of the ledger written by hand, on this database.
    pub(crate) fn by_hand(database: &str) -> Fallible<Self> {
        Ok(Self::built("by_hand", "examples/by_hand")?.with("DATABASE_URL", database))
    }

    /// A binary of the workspace, built with the profile of this program.
    fn built(name: &str, path: &str) -> Fallible<Self> {
        // This program is in target/release/deps.
        let program = std::env::current_exe()?.parent().and_then(Path::parent).ok_or("no target folder")?.join(path);
        if !program.exists() {
            return Err(format!("{} is not built; docs/bench.md has the commands", program.display()).into());
        }
        let settings = [("IDEMPOTENCY_NAMESPACE", "orders"), ("VISIBILITY_BACKOFF", "false")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Self {
            name: name.to_owned(),
            command: vec![program.into()],
            folder: None,
            settings: settings.into(),
            max_batch: usize::MAX,
        })
    }

    /// Any program that implements the client of the Runtime API.
    fn other(name: &str, command: &str) -> Self {
        Self {
            name: name.to_owned(),
            command: command.split_whitespace().map(OsString::from).collect(),
            folder: None,
            settings: Vec::new(),
            max_batch: usize::MAX,
        }
    }

    /// With this setting too.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Whether it is an implementation in another language.
    pub(crate) fn is_peer(&self) -> bool {
        PEERS.iter().any(|peer| peer.name == self.name)
    }
}

/// The functions that the options select. The floor is the first, as the others are compared with it.
pub(crate) fn chosen(options: &Options) -> Fallible<Vec<Function>> {
    let mut functions = Vec::new();
    if options.wants("floor") {
        functions.push(Function::floor()?);
    }
    if options.wants("noop") {
        functions.push(Function::noop()?);
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
