//! The receiver of the work: a service that counts its effects.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use history::{Rng, monotonic_us};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::time::sleep;

use crate::network::{self, Accepted};
use crate::plan::Plan;
use crate::trace::event;

pub const NAME: &str = "receiver";

/// An effect, with the payload of its request.
#[derive(Clone, Debug)]
pub struct Counted {
    pub effect: history::Effect,
    pub body: String,
}

/// A service that sometimes fails. Clones share it.
#[derive(Clone)]
pub struct Receiver(Arc<Mutex<State>>);

struct State {
    rng: Rng,
    seed: u64,
    work_ms: u64,
    failures: u64,
    /// Whether it replies to every request.
    replies: bool,
    faults_ended: bool,
    effects: Vec<Counted>,
}

/// What it does with a request.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Done,
    /// The work is done, and the stream ends without a reply.
    DoneWithoutReply,
    /// The stream ends, and the work is not done.
    NoReply,
    Unavailable,
    Busy,
    Failed,
    Permanent,
}

/// Whether the work of this payload can never succeed.
pub fn is_poison(seed: u64, body: &str) -> bool {
    let mut hash = DefaultHasher::new();
    (seed, body).hash(&mut hash);
    hash.finish().is_multiple_of(25)
}

impl Receiver {
    pub fn new(seed: u64, rng: Rng, plan: &Plan) -> Self {
        let Plan { work_ms, failures, is_quiet: replies, .. } = *plan;
        let (faults_ended, effects) = (false, Vec::new());
        Self(Arc::new(Mutex::new(State { rng, seed, work_ms, failures, replies, faults_ended, effects })))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the receiver does all work that can succeed.
    pub fn end_faults(&self) {
        self.lock().faults_ended = true;
    }

    pub fn effects(&self) -> Vec<Counted> {
        self.lock().effects.clone()
    }

    /// Accepts requests until the receiver is stopped.
    pub fn listen(&self) {
        let (receiver, mut streams) = (self.clone(), network::listen(NAME));
        tokio::spawn(async move {
            while let Some(Accepted { mut stream, .. }) = streams.recv().await {
                let receiver = receiver.clone();
                tokio::spawn(async move {
                    let mut request = String::new();
                    let read = BufReader::new(&mut stream).read_line(&mut request).await;
                    let Some(reply) = (if read.is_ok() { receiver.answer(&request).await } else { None }) else {
                        return;
                    };
                    let _sent = stream.write_all(reply).await;
                });
            }
        });
    }

    async fn answer(&self, request: &str) -> Option<&'static [u8]> {
        let [key, fence, recovery, body] = request.trim_end().splitn(4, ' ').collect::<Vec<_>>().try_into().ok()?;
        let (answer, before, after) = {
            let mut state = self.lock();
            let work_ms = if state.faults_ended { 20 } else { state.work_ms };
            let answer = state.choose(body);
            (answer, state.rng.ms(0..work_ms), state.rng.ms(0..work_ms))
        };
        sleep(before).await;
        event(|| format!("{NAME}: {answer:?} for {request:?}"));
        if let Answer::Done | Answer::DoneWithoutReply = answer {
            let (fence, is_recovery) = (fence.parse().ok()?, recovery == "recovery");
            let effect = history::Effect { key: key.to_owned(), fence, is_recovery, at_us: monotonic_us() };
            self.lock().effects.push(Counted { effect, body: body.to_owned() });
        }
        sleep(after).await;
        Some(match answer {
            Answer::Done => b"done",
            Answer::DoneWithoutReply | Answer::NoReply => return None,
            Answer::Unavailable => b"unavailable",
            Answer::Busy => b"busy",
            Answer::Failed => b"failed",
            Answer::Permanent => b"permanent",
        })
    }
}

impl State {
    fn choose(&mut self, body: &str) -> Answer {
        let is_done = !self.rng.happens(self.failures);
        let choice = self.rng.draw(0..6);
        match choice {
            _ if is_poison(self.seed, body) => Answer::Permanent,
            _ if self.faults_ended || is_done => Answer::Done,
            0 if !self.replies => Answer::DoneWithoutReply,
            1 if !self.replies => Answer::NoReply,
            2 => Answer::Unavailable,
            3 => Answer::Busy,
            _ => Answer::Failed,
        }
    }
}
