//! The parts of `docs/bench.md` that are measured.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io, thread};

/// Put this text into the page in place of what was measured before.
pub(crate) fn write(section: &str, text: &str) -> io::Result<()> {
    let path = docs().join("bench.md");
    let page = fs::read_to_string(&path)?;
    let (begin, end) = (format!("<!-- {section}: written by `make bench` -->\n"), format!("<!-- {section}: end -->"));
    let parts = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = parts.ok_or_else(|| io::Error::other(format!("the page has no place for {section}")))?;
    fs::write(path, format!("{before}{begin}\n{}\n\n{end}{after}", text.trim()))
}

pub(crate) fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// What figures depend on, beside the code.
pub(crate) fn circumstances(redis: &str) -> String {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let kernel = said("uname", &["-sr"]);
    // Of a kernel's version what comes after the second number names its build.
    let kernel: Vec<_> = kernel.splitn(3, '.').take(2).collect();
    format!("{processors} processors, {}, {redis}, {}", kernel.join("."), said("rustc", &["--version"]))
}

/// The first line of what a program says, or nothing.
pub(crate) fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}
