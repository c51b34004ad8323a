//! Asks before letters are changed.

use std::error::Error;
use std::io::{self, IsTerminal, Write};

use super::queue::Counts;
use crate::format;

/// Returns if the operator agrees. Without a terminal nobody can be asked, and `--yes` is required.
pub(crate) fn confirm(verb: &str, url: &str, counts: Counts, all: bool) -> Result<(), Box<dyn Error>> {
    if !io::stdin().is_terminal() {
        return Err("stdin is not a terminal, so there is nobody to ask: pass --yes".into());
    }
    let which = if all { "all letters" } else { "the letters that match" };
    let number = format::count(counts.visible);
    let question = format!("{verb} {which} in {}, which has about {number}? [y/N] ", format::text(url));
    let mut terminal = io::stderr();
    let asked = terminal.write_all(question.as_bytes()).and_then(|()| terminal.flush());
    asked.map_err(|error| format!("stderr cannot be written, so no question can be asked: pass --yes ({error})"))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err("not confirmed; nothing was changed".into()),
    }
}
