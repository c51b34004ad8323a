//! The programs of the endpoints. They are built before they are measured, so they are those of the sources.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use benches::{Fallible, page};

/// Builds the server of `benches/endpoint`. Returns its path.
pub(crate) fn own() -> Fallible<PathBuf> {
    build(&target()?, &["--package", "benches", "--example", "endpoint"], "examples/endpoint")
}

/// Builds the server of `benches/peers/rust`. Returns its path.
pub(crate) fn peers() -> Fallible<PathBuf> {
    let arguments = ["--locked", "--ignore-rust-version", "--manifest-path", "benches/peers/rust/Cargo.toml"];
    build(&target()?.join("peers"), &arguments, "endpoint")
}

/// The folder for everything that cargo builds.
fn target() -> Fallible<PathBuf> {
    // This program is in target/release/deps.
    Ok(env::current_exe()?.ancestors().nth(3).ok_or("no target folder")?.to_owned())
}

fn build(target: &Path, arguments: &[&str], program: &str) -> Fallible<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--target-dir"]).arg(target).args(arguments).current_dir(page::project());
    if !command.status()?.success() {
        return Err(format!("{program} could not be built").into());
    }
    Ok(target.join("release").join(program))
}
