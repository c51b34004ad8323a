//! Implementations of the same job in other languages, which are in `benches/peers`.

use std::ffi::OsString;
use std::path::PathBuf;

use benches::page;

use crate::function::Function;

/// Larger batches take a peer seconds and give the same figures per message.
const MAX_BATCH: usize = 1_000;

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// Under `benches/peers`.
    folder: &'static str,
    /// Under `.tools`, or a program on the PATH.
    runner: &'static str,
    arguments: &'static [&'static str],
    /// Under `.tools`: a file that exists once the peer is installed.
    installed: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

pub(crate) const PEERS: [Peer; 3] = [
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
    /// The function, or why it cannot be started.
    pub(crate) fn function(&self) -> Result<Function, String> {
        let tools = page::project().join(".tools");
        if !tools.join(self.installed).exists() {
            return Err("scripts/tools.py bench did not install it".to_owned());
        }
        let runner = if self.runner.contains('/') { tools.join(self.runner) } else { on_path(self.runner)? };
        let arguments = self.arguments.iter().map(OsString::from);
        // Node.js looks for packages next to the program by default.
        let packages = ("NODE_PATH", tools.join("bench/node/node_modules").display().to_string());
        let settings = self.settings.iter().map(|(name, value)| (*name, (*value).to_owned())).chain([packages]);
        Ok(Function {
            name: self.name.to_owned(),
            command: std::iter::once(runner.into_os_string()).chain(arguments).collect(),
            folder: Some(page::project().join("benches/peers").join(self.folder)),
            settings: settings.map(|(name, value)| (name.to_owned(), value)).collect(),
            max_batch: MAX_BATCH,
        })
    }
}

fn on_path(program: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|program| program.exists());
    found.ok_or_else(|| format!("{program} is not on the PATH"))
}
