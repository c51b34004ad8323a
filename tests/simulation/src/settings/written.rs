//! Variables, what must be read from them, and the errors that they must have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;

use history::Rng;
use idempotent_sqs::config::{ConfigError, Environment};

use super::Read;

/// Returns a value that was read.
type Reader = fn(&Read) -> String;

/// The variables of an environment.
pub(super) struct Written {
    pub(super) rng: Rng,
    /// How often a value is invalid, of 1000 times.
    invalid: u64,
    variables: BTreeMap<&'static str, String>,
    /// What must be read for each of these.
    expected: Vec<(&'static str, Reader, String)>,
    /// How each error begins.
    errors: BTreeSet<String>,
}

impl Written {
    pub(super) fn new(invalid: u64, rng: Rng) -> Self {
        Self { rng, invalid, variables: BTreeMap::new(), expected: Vec::new(), errors: BTreeSet::new() }
    }

    /// Sets a variable, with white space around its value, which is ignored.
    pub(super) fn set(&mut self, name: &'static str, value: &str) {
        let [before, after] = [(); 2].map(|()| *self.rng.pick(&["", "", " ", "\t", "\n"]));
        self.variables.insert(name, format!("{before}{value}{after}"));
    }

    /// Leaves a variable out, or sets it to nothing, which is the same.
    fn leave_out(&mut self, name: &'static str) {
        if self.rng.happens(300) {
            self.set(name, "");
        }
    }

    pub(super) fn expect(&mut self, name: &'static str, read: Reader, value: impl Display) {
        self.expected.push((name, read, value.to_string()));
    }

    /// Expects an error that begins so.
    pub(super) fn error(&mut self, text: impl Into<String>) {
        self.errors.insert(text.into());
    }

    /// Does not expect an error that begins so.
    pub(super) fn forgive(&mut self, text: &str) {
        self.errors.remove(text);
    }

    /// Whether the next value is invalid.
    pub(super) fn is_invalid(&mut self) -> bool {
        self.rng.happens(self.invalid)
    }

    /// A whole number of this range.
    pub(super) fn number(&mut self, name: &'static str, range: RangeInclusive<u64>, default: u64, read: Reader) -> u64 {
        let number = self.unread_number(name, range, default);
        self.expect(name, read, number);
        number
    }

    /// The same, if it is not known what is read.
    pub(super) fn unread_number(&mut self, name: &'static str, range: RangeInclusive<u64>, default: u64) -> u64 {
        let (min, max) = range.into_inner();
        if self.is_invalid() {
            let below = min.checked_sub(1).map_or_else(|| "-1".to_owned(), |number| number.to_string());
            let others = [&*below, &(max + 1).to_string(), "-1", "1.5", "1e3", "ten", "1 0", "99999999999999999999"];
            let value = self.rng.pick(&others.map(str::to_owned)).clone();
            self.set(name, &value);
            self.error(format!("{name} is {value:?}: set it to a whole number from {min} to {max}"));
            return default;
        }
        if self.rng.happens(500) {
            let value = *self.rng.pick(&[min, min, max, max, min.midpoint(max), default]);
            self.set(name, &value.to_string());
            value
        } else {
            self.leave_out(name);
            default
        }
    }

    /// One of two words, the first of which is the default. Returns whether it is the second.
    pub(super) fn choice(&mut self, name: &'static str, words: [&'static str; 2], read: Reader) -> bool {
        let is_second = self.unread_choice(name, words);
        self.expect(name, read, is_second);
        is_second
    }

    /// The same, if it is not known what is read.
    pub(super) fn unread_choice(&mut self, name: &'static str, words: [&'static str; 2]) -> bool {
        let other = *self.rng.pick(&["yes", "1", "TRUE", "Auto", "never"]);
        let error = format!("{name} is {other:?}: set it to ");
        self.text(name, &words, &[other], &error) == Some(words[1])
    }

    /// One of the valid texts, if it is set to one. With an invalid one, an error begins so.
    pub(super) fn text(
        &mut self,
        name: &'static str,
        valid: &[&'static str],
        invalid: &[&'static str],
        error: &str,
    ) -> Option<&'static str> {
        if self.is_invalid() {
            let value = *self.rng.pick(invalid);
            self.set(name, value);
            self.error(error);
            return None;
        }
        if self.rng.happens(500) {
            let value = *self.rng.pick(valid);
            self.set(name, value);
            return Some(value);
        }
        self.leave_out(name);
        None
    }

    /// As [`text`](Self::text), of a setting that must be set to a text like this example.
    pub(super) fn required(
        &mut self,
        name: &'static str,
        valid: &[&'static str],
        invalid: &[&'static str],
    ) -> Option<&'static str> {
        if self.is_invalid() {
            self.leave_out(name);
            self.error(format!("{name} is missing: set it to "));
            return None;
        }
        let is_invalid = self.is_invalid();
        let value = *self.rng.pick(if is_invalid { invalid } else { valid });
        self.set(name, value);
        if is_invalid {
            self.error(format!("{name} is invalid"));
        }
        (!is_invalid).then_some(value)
    }

    /// Whether this variable is set to something.
    pub(super) fn has(&self, name: &str) -> bool {
        self.variables.get(name).is_some_and(|value| !value.trim().is_empty())
    }

    pub(super) fn variables(&self) -> &BTreeMap<&'static str, String> {
        &self.variables
    }

    pub(super) fn environment(&self) -> Environment {
        let variables = self.variables.clone();
        Environment::new(move |name| variables.get(name).cloned())
    }

    /// What is wrong with what was read, or with the errors.
    pub(super) fn wrong_values(&self, read: &Result<Read, ConfigError>) -> Vec<String> {
        match read {
            Ok(_) if !self.errors.is_empty() => vec![format!("no error, instead of {:?}", self.errors)],
            Ok(read) => {
                let values = self.expected.iter().map(|(name, reader, value)| (name, reader(read), value));
                let wrong = values.filter(|(_, found, value)| found != *value);
                wrong.map(|(name, found, value)| format!("{name} is {found:?}, not {value:?}")).collect()
            }
            Err(error) => self.wrong_errors(error).into_iter().collect(),
        }
    }

    /// What is wrong with the errors.
    pub(super) fn wrong_errors(&self, error: &ConfigError) -> Option<String> {
        let text = error.to_string();
        let found: Vec<_> = text.split("\n  - ").skip(1).collect();
        let is_found = |error: &String| found.iter().any(|found| found.starts_with(error.as_str()));
        let is_right = found.len() == self.errors.len() && self.errors.iter().all(is_found);
        (!is_right).then(|| format!("the errors are {found:?}, not {:?}", self.errors))
    }
}
