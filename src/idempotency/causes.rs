//! Formats an error with its causes.

use std::error::Error;

/// The error and its causes in one line. A cause whose text is already in the line is not repeated.
pub fn error_chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        cause = error.source();
    }
    line
}
