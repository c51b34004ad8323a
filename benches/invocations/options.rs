//! The command line.

use std::str::FromStr;

use benches::Fallible;

pub(crate) const HELP: &str = "\
Measures Lambda functions under a Runtime API on loopback, with a Redis server of its own.
docs/bench.md has the commands that build them; scripts/tools.py bench installs the peers.

    cargo bench --package benches --bench invocations -- [OPTION]...

  --functions NAME,...      of noop, floor, powertools-python, powertools-typescript, acquire-set [all]
  --function NAME=COMMAND   measure this function too
  --env NAME=VALUE          a setting of all these functions, besides REDIS_URL and BATCH_CONCURRENCY
  --sizes N,...             messages in a batch [10,100,1000,10000]
  --body BYTES              size of a message's body [200]
  --rounds N                rounds of interleaved measurements [5]
  --seconds S               measured time of a function in a round, once with new messages and once
                            with duplicates [0.5]
  --only PART,...           of cluster, batches, starts, memory, round-trips, webhook, slow-work,
                            bodies, inbox [all]
  --write                   write the figures into docs/bench.md and the plot into docs/bench.svg
  --help

  noop against the floor at one size, quickly:
    cargo bench --package benches --bench invocations -- --only batches --functions noop,floor --sizes 100 --rounds 3
";

pub(crate) struct Options {
    /// Names of the functions to measure; empty for all.
    functions: Vec<String>,
    /// Other functions by name and command.
    pub(crate) others: Vec<(String, String)>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) sizes: Vec<usize>,
    /// Bytes.
    pub(crate) body: usize,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    /// Parts to run; empty for all.
    only: Vec<String>,
    pub(crate) write: bool,
}

impl Options {
    /// Parses the command line. `None` for `--help`.
    pub(crate) fn read(words: impl IntoIterator<Item = String>) -> Fallible<Option<Self>> {
        let mut options = Self {
            functions: Vec::new(),
            others: Vec::new(),
            env: Vec::new(),
            sizes: vec![10, 100, 1_000, 10_000],
            body: 200,
            rounds: 5,
            seconds: 0.5,
            only: Vec::new(),
            write: false,
        };
        let mut words = words.into_iter();
        while let Some(option) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{option} needs a value"));
            match option.as_str() {
                "--help" | "-h" => return Ok(None),
                "--functions" => options.functions = list(&value()?)?,
                "--function" => options.others.push(pair(&value()?)?),
                "--env" => options.env.push(pair(&value()?)?),
                "--sizes" => options.sizes = list(&value()?)?,
                "--body" => options.body = one(&value()?)?,
                "--rounds" => options.rounds = one(&value()?)?,
                "--seconds" => options.seconds = one(&value()?)?,
                "--only" => options.only = list(&value()?)?,
                "--write" => options.write = true,
                // cargo passes it to every benchmark.
                "--bench" => {}
                _ => return Err(format!("unknown option {option}; --help lists them").into()),
            }
        }
        Ok(Some(options))
    }

    pub(crate) fn wants(&self, function: &str) -> bool {
        self.functions.is_empty() || self.functions.iter().any(|wanted| wanted == function)
    }

    pub(crate) fn runs(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == part)
    }
}

fn one<T: FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("invalid value {text:?}"))
}

fn list<T: FromStr>(text: &str) -> Result<Vec<T>, String> {
    text.split(',').map(one).collect()
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} has no ="))?;
    Ok((name.to_owned(), value.to_owned()))
}
