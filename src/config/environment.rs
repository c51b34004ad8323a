//! Reads settings one by one and collects their errors.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::env::{self, VarError};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Reads settings from environment variables and collects their errors, so that all are reported together. Your own
/// settings can be read in the same way:
///
/// ```
/// use idempotent_sqs::config::{Config, Environment};
///
/// # fn main() {
/// let mut environment = Environment::new(|name| match name {
///     "REDIS_URL" => Some("redis://127.0.0.1:6379".into()),
///     "IDEMPOTENCY_NAMESPACE" => Some("invoices".into()),
///     _ => None,
/// });
/// let config = Config::read(&mut environment);
/// let sender = environment.required("SENDER", "the address that invoices are sent from");
/// let error = environment.finish(config.zip(sender)).unwrap_err();
/// assert!(error.to_string().contains("SENDER is missing: set it to the address that invoices are sent from"));
/// # }
/// ```
pub struct Environment {
    lookup: Box<Lookup>,
    errors: Vec<String>,
    /// Settings that were read, and whose values are not Unicode.
    not_unicode: RefCell<BTreeSet<String>>,
}

/// Returns the value of the setting of this name.
type Lookup = dyn Fn(&str) -> Result<Option<String>, NotUnicode>;

/// The value of a setting is not Unicode.
#[derive(Clone, Copy)]
struct NotUnicode;

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("errors", &self.errors).finish_non_exhaustive()
    }
}

/// The settings that are missing or invalid, with what to set each to.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    errors: Vec<String>,
}

impl ConfigError {
    /// An error with this one message.
    pub(super) fn new(error: String) -> Self {
        Self { errors: vec![error] }
    }
}

/// As `Display`, because a `main` that returns an error prints it with `Debug`.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the settings have {} error(s):", self.errors.len())?;
        self.errors.iter().try_for_each(|error| write!(f, "\n  - {error}"))
    }
}

impl Environment {
    /// The environment of this process.
    #[must_use]
    pub fn from_process() -> Self {
        Self::from_lookup(|name| match env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(NotUnicode),
        })
    }

    /// The settings that `lookup` returns.
    pub fn new(lookup: impl Fn(&str) -> Option<String> + 'static) -> Self {
        Self::from_lookup(move |name| Ok(lookup(name)))
    }

    fn from_lookup(lookup: impl Fn(&str) -> Result<Option<String>, NotUnicode> + 'static) -> Self {
        Self { lookup: Box::new(lookup), errors: Vec::new(), not_unicode: RefCell::default() }
    }

    /// Replaces the setting `name` for all later reads. `None` removes it.
    #[must_use]
    pub fn with(self, name: &'static str, value: Option<String>) -> Self {
        let lookup = self.lookup;
        let lookup = move |asked: &str| if asked == name { Ok(value.clone()) } else { lookup(asked) };
        Self { lookup: Box::new(lookup), ..self }
    }

    /// The value of this setting, without white space around it. An empty value counts as not set, because templates
    /// set empty values by default. A value that is not Unicode adds an error and returns `None`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        let value = self.value(name)?;
        Some(value.trim()).filter(|value| !value.is_empty()).map(str::to_owned)
    }

    /// The value of this setting as it is.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        (self.lookup)(name).unwrap_or_else(|NotUnicode| {
            self.not_unicode.borrow_mut().insert(name.to_owned());
            None
        })
    }

    /// The value of this setting, which must be set. `example` completes the error message "set it to …".
    pub fn required(&mut self, name: &str, example: &str) -> Option<String> {
        let value = self.get(name);
        if value.is_none() && !self.not_unicode.borrow().contains(name) {
            self.error(&format!("{name} is missing: set it to {example}"));
        }
        value
    }

    /// Parses this setting. Returns `None` if it is not set. An invalid value adds an error and returns `None`.
    /// `example` completes the error message "set it to …".
    pub fn parsed<T: FromStr<Err: fmt::Display>>(&mut self, name: &str, example: &str) -> Option<T> {
        match self.get(name)?.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.error(&format!("{name} is invalid ({error}): set it to {example}"));
                None
            }
        }
    }

    /// A whole number in this range, or `default` if it is not set. An invalid value adds an error and returns
    /// `default`.
    pub fn number<T>(&mut self, name: &str, range: RangeInclusive<T>, default: T) -> T
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        self.number_if_set(name, range).unwrap_or(default)
    }

    /// A whole number in this range. `None` if it is not set, or if it is invalid, which adds an error.
    fn number_if_set<T>(&mut self, name: &str, range: RangeInclusive<T>) -> Option<T>
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        let value = self.get(name)?;
        let number = value.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            let (min, max) = range.into_inner();
            self.error(&format!("{name} is {value:?}: set it to a whole number from {min} to {max}"));
        }
        number
    }

    /// A number of whole seconds, from 1 second to ten years, or `default` if it is not set. An invalid value adds an
    /// error and returns `default`.
    pub fn seconds(&mut self, name: &str, default: Duration) -> Duration {
        self.number_if_set(name, 1..=MAX_SECONDS).map_or(default, Duration::from_secs)
    }

    /// A number of whole milliseconds, from `min` ms to 15 minutes, or `default` if it is not set. An invalid value
    /// adds an error and returns `default`.
    pub fn milliseconds(&mut self, name: &str, min: u64, default: Duration) -> Duration {
        self.number_if_set(name, min..=MAX_MS).map_or(default, Duration::from_millis)
    }

    /// The value of one of these words, or `default` if it is not set. An invalid value adds an error and returns
    /// `default`.
    pub fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)], default: T) -> T {
        let Some(value) = self.get(name) else { return default };
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == value) {
            return *choice;
        }
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        self.error(&format!("{name} is {value:?}: set it to {}", words.join(" or ")));
        default
    }

    /// `true` or `false`, or `default` if it is not set. An invalid value adds an error and returns `default`.
    pub fn flag(&mut self, name: &str, default: bool) -> bool {
        self.choice(name, &[("true", true), ("false", false)], default)
    }

    /// Adds an error, unless there is an equal one.
    pub fn error(&mut self, error: &str) {
        if !self.errors.iter().any(|known| known == error) {
            self.errors.push(error.to_owned());
        }
    }

    /// Returns `settings` if there were no errors.
    ///
    /// # Errors
    /// [`ConfigError`] with all errors.
    pub fn finish<T>(mut self, settings: Option<T>) -> Result<T, ConfigError> {
        for name in self.not_unicode.take() {
            self.error(&format!("{name} is not Unicode: set it to text in UTF-8"));
        }
        match settings {
            Some(settings) if self.errors.is_empty() => Ok(settings),
            Some(_) | None => Err(ConfigError { errors: self.errors }),
        }
    }
}

/// The longest time that a Lambda function can run, except on Managed Instances, ms. No timeout can be longer.
const MAX_MS: u64 = 900_000;

/// Ten years, in seconds. Far below the largest time that Redis can represent.
const MAX_SECONDS: u64 = 315_360_000;
