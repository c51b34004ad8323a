//! The queues to which letters are sent back.

use std::collections::HashMap;

use super::error::LookupError;
use super::letter::Letter;
use super::queue::{DeadLetterQueue, Destination};

/// Sends to a queue and lookups of it stop after this many failures in a row. The next ones would fail too.
const MAX_FAILURES: u32 = 5;

/// Where letters are sent.
pub(crate) struct Destinations<'a> {
    queue: &'a DeadLetterQueue,
    /// The queue of `--to`.
    to: Option<Destination>,
    /// Queues by ARN, or why there is none, now and later.
    sources: HashMap<String, Result<Destination, String>>,
    /// Number of failed sends in a row by URL, and of failed lookups by ARN.
    failures: HashMap<String, u32>,
}

impl<'a> Destinations<'a> {
    pub(crate) fn new(queue: &'a DeadLetterQueue, to: Option<String>) -> Self {
        let to = to.map(|url| queue.at_url(&url));
        Self { queue, to, sources: HashMap::new(), failures: HashMap::new() }
    }

    /// The queue to send the letter to, or why it cannot be sent.
    pub(crate) async fn of(&mut self, letter: &Letter) -> Result<Destination, String> {
        let to = match (&self.to, letter.source_queue_arn()) {
            (Some(to), _) => to.clone(),
            (None, Some(arn)) => self.resolve(arn).await?,
            (None, None) => return Err("its source queue is not known: pass --to QUEUE_URL".to_owned()),
        };
        if self.queue.is(&to) {
            return Err("its destination is the dead-letter queue itself: pass --to QUEUE_URL".to_owned());
        }
        match self.failures.get(&to.url) {
            Some(&MAX_FAILURES) => Err(format!("the {MAX_FAILURES} sends before it to its queue failed")),
            Some(_) | None => Ok(to),
        }
    }

    async fn resolve(&mut self, arn: &str) -> Result<Destination, String> {
        if let Some(known) = self.sources.get(arn) {
            return known.clone();
        }
        if self.failures.get(arn) == Some(&MAX_FAILURES) {
            return Err(format!("the {MAX_FAILURES} lookups before it of its queue failed"));
        }
        let source = match self.queue.with_arn(arn).await {
            Err(LookupError { reason, is_lasting: false }) => {
                self.count_failure(arn);
                return Err(reason);
            }
            found => found.map_err(|error| error.reason),
        };
        self.sources.insert(arn.to_owned(), source.clone());
        source
    }

    pub(crate) fn accepted(&mut self, to: &Destination) {
        self.failures.remove(&to.url);
    }

    pub(crate) fn failed(&mut self, to: &Destination) {
        self.count_failure(&to.url);
    }

    fn count_failure(&mut self, queue: &str) {
        *self.failures.entry(queue.to_owned()).or_default() += 1;
    }
}
