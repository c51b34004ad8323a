//! The sections of `docs/bench.md` that hold measured figures.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io, thread};

/// Replaces a section of the page by this text.
pub fn write(section: &str, text: &str) -> io::Result<()> {
    let path = project().join("docs/bench.md");
    let page = fs::read_to_string(&path)?;
    let (begin, end) = (format!("<!-- {section}: written by `make bench` -->\n"), format!("<!-- {section}: end -->"));
    let parts = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = parts.ok_or_else(|| io::Error::other(format!("docs/bench.md has no section {section}")))?;
    fs::write(path, format!("{before}{begin}\n{}\n\n{end}{after}", text.trim()))
}

/// The folder of the workspace.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The processors and the versions of the kernel, Redis and Rust, which affect all figures.
pub fn environment(redis: &str) -> String {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let kernel = first_line("uname", &["-sr"]);
    // Major and minor version only; the rest identifies the build.
    let kernel: Vec<_> = kernel.splitn(3, '.').take(2).collect();
    format!("{processors} processors, {}, {redis}, {}", kernel.join("."), first_line("rustc", &["--version"]))
}

/// The first line that a program prints. Empty if it cannot be run.
pub fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}
