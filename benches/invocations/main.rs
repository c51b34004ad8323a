//! Functions through a Lambda Runtime API on loopback, on a Redis of their own: ours, the floor,
//! the peers. `cargo bench --bench invocations -- --help` explains how to run a part of it.

mod cluster;
mod delay;
mod events;
#[path = "../figures.rs"]
mod figures;
mod function;
mod measure;
mod options;
#[path = "../page.rs"]
mod page;
mod parts;
mod payments;
mod plot;
mod postgres;
#[path = "../precise.rs"]
mod precise;
mod process;
mod relay;
mod report;
mod runtime_api;
mod server;
#[path = "../table.rs"]
mod table;
mod turn;
mod webhook;

use std::fs;
use std::process::ExitCode;

use options::{HELP, Options};
use parts::PARTS;
use report::Report;
use server::Server;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

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
    let text = format!("{}.\n\n{}", circumstances(&options)?, report.text());
    println!("{text}");
    if options.write {
        page::write("invocations", &text)?;
        if let Some(plot) = report.plot {
            fs::write(page::docs().join("bench.svg"), plot)?;
        }
    }
    if report.failed { Err("something could not be measured".into()) } else { Ok(()) }
}

fn circumstances(options: &Options) -> Fallible<String> {
    let redis = Server::start(&[])?.version()?;
    let (python, node) = (page::said("python3", &["--version"]), page::said("node", &["--version"]));
    let here = [page::circumstances(&redis), python, format!("Node.js {node}")];
    Ok(format!("{}; {} rounds of {} seconds", here.join(", "), options.rounds, options.seconds))
}
