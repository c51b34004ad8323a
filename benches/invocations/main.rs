//! Lambda functions under a Runtime API on loopback and with a Redis server of the benchmark: this library, the floor
//! and other implementations. `cargo bench --package benches --bench invocations -- --help` lists the options.

mod delay;
mod events;
mod function;
mod interleave;
mod options;
mod parts;
mod payments;
mod peers;
mod plot;
mod postgres;
mod process;
mod proxy;
mod report;
mod runtime_api;
mod sample;
mod stack;
mod webhook;

use std::fs;
use std::process::ExitCode;

use benches::server::Server;
use benches::{Fallible, page};
use options::{HELP, Options};
use parts::PARTS;
use report::Report;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Fallible<()> {
    let Some(options) = Options::read(std::env::args().skip(1))? else {
        print!("{HELP}");
        return Ok(());
    };
    let functions = function::chosen(&options)?;
    let mut report = Report::default();
    for (name, part) in PARTS.iter().filter(|(name, _)| options.runs(name)) {
        if let Err(error) = part(&options, &functions, &mut report) {
            report.failure(name, &*error);
        }
    }
    let text = format!("{}.\n\n{}", environment(&options)?, report.text());
    println!("{text}");
    if options.write {
        page::write("invocations", &text)?;
        if let Some(plot) = report.plot {
            fs::write(page::project().join("docs/bench.svg"), plot)?;
        }
    }
    if report.failed { Err("some measurements failed".into()) } else { Ok(()) }
}

fn environment(options: &Options) -> Fallible<String> {
    let redis = Server::start(&[])?.version()?;
    let (python, node) = (page::first_line("python3", &["--version"]), page::first_line("node", &["--version"]));
    let versions = [page::environment(&redis), python, format!("Node.js {node}")];
    Ok(format!("{}; {} rounds of {} seconds", versions.join(", "), options.rounds, options.seconds))
}
