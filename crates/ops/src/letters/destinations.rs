//! The queues to which letters are sent back.

use std::collections::HashMap;

use super::letter::Letter;
use super::queue::DeadLetterQueue;

/// Sends to a queue stop after this many failures in a row. The next ones would fail too.
const MAX_FAILURES: u32 = 5;

/// Where letters are sent.
pub(crate) struct Destinations<'a> {
    queue: &'a DeadLetterQueue,
    /// The URL of `--to`.
    to: Option<String>,
    /// URLs by ARN, or why there is none.
    urls: HashMap<String, Result<String, String>>,
    /// Number of failed sends in a row, by URL.
    failures: HashMap<String, u32>,
}

impl<'a> Destinations<'a> {
    pub(crate) fn new(queue: &'a DeadLetterQueue, to: Option<String>) -> Self {
        Self { queue, to, urls: HashMap::new(), failures: HashMap::new() }
    }

    /// The URL of the queue to send the letter to, or why it cannot be sent.
    pub(crate) async fn of(&mut self, letter: &Letter) -> Result<String, String> {
        let url = match (&self.to, letter.source_queue_arn()) {
            (Some(to), _) => to.clone(),
            (None, Some(arn)) => self.resolve(arn).await?,
            (None, None) => return Err("its source queue is not known: pass --to QUEUE_URL".to_owned()),
        };
        if is_same_queue(&url, &self.queue.url) {
            return Err("its destination is the dead-letter queue itself: pass --to QUEUE_URL".to_owned());
        }
        match self.failures.get(&url) {
            Some(&MAX_FAILURES) => Err(format!("the {MAX_FAILURES} sends before it to its queue failed")),
            Some(_) | None => Ok(url),
        }
    }

    async fn resolve(&mut self, arn: &str) -> Result<String, String> {
        if let Some(known) = self.urls.get(arn) {
            return known.clone();
        }
        let url = self.queue.url_of(arn).await;
        self.urls.insert(arn.to_owned(), url.clone());
        url
    }

    pub(crate) fn accepted(&mut self, url: &str) {
        self.failures.remove(url);
    }

    pub(crate) fn failed(&mut self, url: &str) {
        *self.failures.entry(url.to_owned()).or_default() += 1;
    }
}

/// Whether both URLs end in the same account and name. The hosts of a queue's URLs differ between protocols and endpoints.
fn is_same_queue(one: &str, other: &str) -> bool {
    let queue = |url: &str| url.rsplitn(3, '/').take(2).map(str::to_owned).collect::<Vec<_>>();
    queue(one) == queue(other)
}
