//! Formats an error with its causes.

use std::error::Error;
use std::iter;

use super::panics::catch;

/// Largest number of causes that are shown. The causes of an error that is its own cause have no end.
const MAX_CAUSES: usize = 64;

/// The error and up to 64 of its causes, in one line. A cause whose text is already in the line is not repeated.
///
/// The text of an error may be code of the work. A panic in it is caught, because it must not affect other deliveries.
pub fn error_chain(error: &dyn Error) -> String {
    catch(|| chain(error)).unwrap_or_else(|| "an error that panics when it is formatted".to_owned())
}

fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    for cause in iter::successors(error.source(), |cause| (*cause).source()).take(MAX_CAUSES) {
        let text = cause.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct OwnCause;

    impl fmt::Display for OwnCause {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the card was declined")
        }
    }

    impl Error for OwnCause {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }

    #[test]
    fn the_causes_of_an_error_that_is_its_own_cause_have_an_end() {
        assert_eq!(error_chain(&OwnCause), "the card was declined");
    }
}
