//! Formats an error with its causes.

use std::error::Error;

use super::panics::catch;

/// The error and its causes in one line. A cause whose text is already in the line is not repeated.
///
/// The text of an error may be code of the work. A panic in it is caught, because it must not affect other deliveries.
pub fn error_chain(error: &dyn Error) -> String {
    catch(|| chain(error)).unwrap_or_else(|| "an error that panics when it is formatted".to_owned())
}

fn chain(error: &dyn Error) -> String {
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
