//! A command, and how it ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::Rng;
use idempotent_sqs::config::Environment;
use idempotent_sqs_ops::letters::{self, Arguments, CommandOutput, Interrupt, Parser};
use tokio::time::{Instant, sleep, sleep_until};

use super::events::Events;
use super::host::{Host, HostCall};
use super::queues::{Letter, Queues};
use crate::lock;
use crate::trace::event;

/// A command ends within this time: a call without a reply is tried for 45 seconds, and a letter needs few of them.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

#[derive(Clone, Debug)]
pub struct Command {
    pub verb: Verb,
    pub filter: Filter,
    pub dry_run: bool,
    pub limit: Option<usize>,
    /// `--to` the other queue.
    pub to_other: bool,
    pub as_is: bool,
    pub rate: u32,
    pub visibility_timeout: Duration,
    /// What `show` shows.
    pub wanted: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    List,
    Show,
    Redrive,
    Delete,
}

/// The filters of a command. Without any, it has `--all`.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub outcomes: Vec<&'static str>,
    pub key: Option<String>,
    pub reason: Option<&'static str>,
    pub older_than_s: Option<i64>,
    pub newer_than_s: Option<i64>,
    pub ids: Vec<String>,
}

pub enum End {
    Output(CommandOutput),
    Failed(String),
    Killed,
    Hung,
}

/// A command that has ended.
pub struct Run {
    pub command: Command,
    pub events: Events,
    pub letters: Vec<Letter>,
    pub calls: Vec<HostCall>,
    /// The receives of the other consumer.
    pub received_by_other: Vec<(Instant, String)>,
    pub began: Instant,
    pub end: End,
    /// Letters that are hidden at the end.
    pub in_flight: usize,
}

impl Command {
    pub fn draw(letters: &[Letter], queues: &Queues, events: Events, rng: &mut Rng) -> Self {
        // Only a slow redrive extends visibility timeouts.
        let is_slow = events.other_consumer || events.rates.failed_entries > 0;
        let verbs = [Verb::List, Verb::Show, Verb::Delete, Verb::Redrive, Verb::Redrive, Verb::Redrive];
        let verb = if is_slow { Verb::Redrive } else { *rng.pick(&verbs) };
        let any = |rng: &mut Rng| (!letters.is_empty()).then(|| rng.pick(letters));
        let mut filter = Filter::default();
        match (rng.draw(if is_slow { 5..14 } else { 0..14 }), any(rng)) {
            (0 | 1, Some(letter)) => filter.outcomes = vec![letter.outcome, "MISMATCH"],
            (2, Some(letter)) => filter.key = letter.shown_key(queues.keys),
            (3, Some(letter)) => filter.reason = Some(&letter.reason[1..4]),
            (4, _) => filter.older_than_s = Some(i64::try_from(rng.draw(0..40)).unwrap_or_default()),
            (5, _) => filter.newer_than_s = Some(i64::try_from(rng.draw(0..40)).unwrap_or_default()),
            (6, Some(letter)) => {
                filter.ids = letters.iter().take(2).map(|letter| letter.id.clone()).collect();
                filter.ids.push(letter.original_id.clone());
            }
            _ => {}
        }
        let wanted = match any(rng) {
            Some(letter) => match rng.draw(0..4) {
                0 => letter.original_id.clone(),
                1 => letter.key.clone().unwrap_or_default() + "x",
                2 => letter.shown_key(queues.keys).unwrap_or_else(|| letter.id.clone()),
                _ => letter.id.clone(),
            },
            None => "absent".to_owned(),
        };
        Self {
            verb,
            filter,
            dry_run: !is_slow && rng.happens(150),
            limit: (!is_slow && rng.happens(200)).then(|| usize::try_from(rng.draw(0..8)).unwrap_or_default()),
            to_other: rng.happens(250),
            as_is: rng.happens(150),
            rate: if is_slow { 1 } else { *rng.pick(&[1, 10, 1000]) },
            visibility_timeout: Duration::from_secs(if is_slow { 5 } else { *rng.pick(&[5, 30, 300]) }),
            wanted,
        }
    }

    /// Whether it sends letters or deletes them.
    pub fn changes(&self) -> bool {
        matches!(self.verb, Verb::Redrive | Verb::Delete)
    }

    /// Whether it concerns every letter.
    pub fn has_all(&self) -> bool {
        self.verb != Verb::Show && self.limit.is_none() && self.filter.matches_all()
    }

    fn arguments(&self, queues: &Queues) -> Vec<String> {
        let mut arguments = vec!["letters".to_owned()];
        let mut add = |texts: &[&str]| arguments.extend(texts.iter().map(|text| (*text).to_owned()));
        add(&["--json", "--queue-url", &queues.dead.url()]);
        add(&["--visibility-timeout", &self.visibility_timeout.as_secs().to_string()]);
        match self.verb {
            Verb::List => add(&["list"]),
            Verb::Show => {
                add(&["show", "--", &self.wanted]);
                return arguments;
            }
            Verb::Redrive => add(&["redrive", "--yes", "--rate", &self.rate.to_string()]),
            Verb::Delete => add(&["delete", "--yes"]),
        }
        for (name, value) in self.filter.options() {
            add(&[name, &value]);
        }
        if let Some(limit) = self.limit {
            add(&["--limit", &limit.to_string()]);
        }
        if self.changes() && self.filter.matches_all() {
            add(&["--all"]);
        }
        if self.changes() && self.dry_run {
            add(&["--dry-run"]);
        }
        if self.verb == Verb::Redrive {
            if self.to_other {
                add(&["--to", &queues.other.url()]);
            }
            if self.as_is {
                add(&["--as-is"]);
            }
        }
        arguments
    }

    /// Runs the command on these letters.
    pub async fn run(self, queues: &Arc<Queues>, letters: Vec<Letter>, events: Events, rng: &mut Rng) -> Run {
        let host = Host::new(queues.all(), events.rates, rng.fork());
        let letters = Arc::new(Mutex::new(letters));
        let received_by_other = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = events.start(queues, &letters, &received_by_other, rng);
        let arguments = self.arguments(queues);
        event(|| format!("letters: {arguments:?}, {events:?}"));
        let arguments = Arguments::try_parse_from(&arguments).expect("these arguments are valid");
        let keys = queues.keys.setting();
        let environment = Environment::new(move |name| keys.filter(|_| name == "IDEMPOTENCY_KEY").map(str::to_owned));
        let began = Instant::now();
        let at = |after: Option<Duration>| began + after.unwrap_or(LONGEST * 2);
        let interrupt = || Interrupt::at(sleep_until(at(events.interrupted_after)));
        let command = letters::run(arguments, environment, async { host.config() }, interrupt);
        let end = tokio::select! {
            biased;
            output = Box::pin(command) => match output {
                Ok(output) => End::Output(output),
                Err(error) => End::Failed(error.to_string()),
            },
            () = sleep_until(at(events.killed_after)) => End::Killed,
            () = sleep(LONGEST) => End::Hung,
        };
        tasks.shutdown().await;
        let in_flight = queues.dead.in_flight();
        let (letters, received_by_other) = (lock(&letters).clone(), lock(&received_by_other).clone());
        Run { command: self, events, letters, calls: host.calls(), received_by_other, began, end, in_flight }
    }
}

impl Filter {
    pub fn matches_all(&self) -> bool {
        self.options().is_empty()
    }

    /// The names and values of its options.
    fn options(&self) -> Vec<(&'static str, String)> {
        let Self { outcomes, key, reason, older_than_s, newer_than_s, ids } = self;
        let mut options: Vec<_> = outcomes.iter().map(|outcome| ("--outcome", (*outcome).to_owned())).collect();
        options.extend(key.clone().map(|key| ("--key", key)));
        options.extend(reason.map(|reason| ("--reason", reason.to_owned())));
        options.extend(older_than_s.map(|age| ("--older-than", format!("{age}s"))));
        options.extend(newer_than_s.map(|age| ("--newer-than", format!("{age}s"))));
        options.extend(ids.iter().map(|id| ("--id", id.clone())));
        options
    }
}
