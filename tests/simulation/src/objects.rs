//! S3 as the function reaches it: it is slow and sometimes unavailable, some requests have no answer, and some payloads
//! may not be read for some time, or are deleted once their payment is made.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::{Rng, monotonic_us};
use idempotent_sqs::idempotency::{Location, ObjectError, ObjectStore};
use tokio::time::{Instant, sleep};

use crate::lock;
use crate::plan::Plan;
use crate::receiver::Receiver;
use crate::trace::event;

/// Payloads by bucket and name.
pub type Payloads = BTreeMap<(String, String), Payload>;

/// A payload that is not in its message.
pub struct Payload {
    pub bytes: Vec<u8>,
    /// The payment after which it is deleted.
    pub deleted_once_made: Option<u64>,
}

/// What S3 has, and what was read and written.
pub struct Objects {
    payloads: Payloads,
    /// Until when a payload may not be read.
    forbidden: BTreeMap<String, Instant>,
    receiver: Receiver,
    rng: Mutex<Rng>,
    /// For the faults of plans with choices for objects.
    faults: Option<Mutex<Rng>>,
    faults_ended: AtomicBool,
    log: Mutex<Log>,
}

/// Reads and writes, in the order in which they began.
#[derive(Clone, Default)]
pub struct Log {
    pub reads: Vec<Read>,
    pub writes: Vec<Write>,
}

/// A read of an object.
#[derive(Clone, Debug)]
pub struct Read {
    pub call: Call,
    pub max_bytes: usize,
    /// Number of reads of its process, with this one.
    pub running: usize,
    /// `None` if it had no answer.
    pub answer: Option<ReadAnswer>,
}

/// A write of an object.
#[derive(Clone)]
pub struct Write {
    pub call: Call,
    pub bytes: Vec<u8>,
    /// Whether the answer was that it is stored.
    pub is_acknowledged: bool,
    /// When it was stored, µs by the monotonic clock.
    pub stored_us: Option<u64>,
}

/// What reads and writes have in common. Times are µs by the monotonic clock.
#[derive(Clone, Debug)]
pub struct Call {
    /// The process, as in the history of its calls.
    pub process: String,
    pub bucket: String,
    pub name: String,
    pub began_us: u64,
    /// When it was answered or dropped.
    pub ended_us: Option<u64>,
}

/// How S3 answered a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAnswer {
    Payload,
    NotFound,
    TooLarge,
    /// It is unavailable, or the function may not read the object now.
    NotNow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Unavailable,
    /// A write is stored, and its reply is lost.
    NoReply,
    /// No answer.
    Hangs,
}

impl Objects {
    pub fn new(payloads: Payloads, rng: Rng, plan: &Plan, receiver: Receiver) -> Self {
        let mut faults = plan.objects.as_ref().map(|_| Rng::new(plan.seed ^ 0x0bfa));
        let mut forbidden = BTreeMap::new();
        for (_, name) in payloads.keys() {
            let Some(rng) = &mut faults else { break };
            if rng.happens(200) {
                let lasts_ms = u64::try_from(plan.lasts.as_millis()).unwrap_or(u64::MAX);
                forbidden.insert(name.clone(), Instant::now() + rng.ms(0..lasts_ms));
            }
        }
        Self {
            payloads,
            forbidden,
            receiver,
            rng: Mutex::new(rng),
            faults: faults.map(Mutex::new),
            faults_ended: AtomicBool::new(false),
            log: Mutex::default(),
        }
    }

    /// From now on S3 is available.
    pub fn end_faults(&self) {
        self.faults_ended.store(true, Ordering::Relaxed);
    }

    /// From now on S3 has faults again.
    pub fn begin_faults(&self) {
        self.faults_ended.store(false, Ordering::Relaxed);
    }

    pub fn log(&self) -> Log {
        lock(&self.log).clone()
    }

    /// The delay and the fault of a call.
    fn fault(&self) -> (Duration, Option<Fault>) {
        let ended = self.faults_ended.load(Ordering::Relaxed);
        let mut rng = lock(&self.rng);
        let (delay, fails) = (rng.ms(5..100), rng.happens(150) && !ended);
        let fault = fails.then_some(Fault::Unavailable);
        let Some(mut faults) = self.faults.as_ref().filter(|_| !ended).map(lock) else { return (delay, fault) };
        let slow = if faults.happens(100) { faults.ms(500..3000) } else { Duration::ZERO };
        let fault = match faults.draw(0..16) {
            0 | 1 => Some(Fault::Hangs),
            2 => Some(Fault::NoReply),
            _ => fault,
        };
        (delay + slow, fault)
    }

    /// What a read finds at this time.
    fn find(&self, location: &Location, max_bytes: usize) -> Result<Vec<u8>, ObjectError> {
        let is_forbidden = self.forbidden.get(&location.name).is_some_and(|until| Instant::now() < *until);
        if is_forbidden && !self.faults_ended.load(Ordering::Relaxed) {
            return Err(ObjectError::Rejected("AccessDenied".to_owned()));
        }
        match self.payload(location).or_else(|| self.result(location)) {
            Some(bytes) if bytes.len() > max_bytes => Err(ObjectError::TooLarge { max_bytes }),
            Some(bytes) => Ok(bytes),
            None => Err(ObjectError::NotFound),
        }
    }

    /// The payload at this location, unless it was deleted.
    fn payload(&self, location: &Location) -> Option<Vec<u8>> {
        let is_made = |payment: u64| self.receiver.effects().iter().any(|effect| effect.payment == payment);
        let payload = self.payloads.get(&(location.bucket.clone(), location.name.clone()))?;
        (!payload.deleted_once_made.is_some_and(is_made)).then(|| payload.bytes.clone())
    }

    /// The result at this location.
    fn result(&self, location: &Location) -> Option<Vec<u8>> {
        let is_at = |call: &Call| (&call.bucket, &call.name) == (&location.bucket, &location.name);
        let log = lock(&self.log);
        let stored = log.writes.iter().filter(|write| is_at(&write.call) && write.stored_us.is_some());
        stored.max_by_key(|write| write.stored_us).map(|write| write.bytes.clone())
    }
}

/// S3 as one process of the function reaches it.
pub struct Client {
    pub objects: Arc<Objects>,
    /// The process, as in the history of its calls.
    pub process: String,
}

impl Client {
    fn call(&self, location: &Location) -> Call {
        let Location { bucket, name } = location.clone();
        Call { process: self.process.clone(), bucket, name, began_us: monotonic_us(), ended_us: None }
    }

    fn begin_read(&self, location: &Location, max_bytes: usize) -> Ending<'_> {
        let mut log = lock(&self.objects.log);
        let is_running = |read: &&Read| read.call.process == self.process && read.call.ended_us.is_none();
        let running = log.reads.iter().filter(is_running).count() + 1;
        log.reads.push(Read { call: self.call(location), max_bytes, running, answer: None });
        Ending { log: &self.objects.log, number: log.reads.len() - 1, call: |log, at| &mut log.reads[at].call }
    }

    fn begin_write(&self, location: &Location, bytes: Vec<u8>) -> Ending<'_> {
        let mut log = lock(&self.objects.log);
        log.writes.push(Write { call: self.call(location), bytes, is_acknowledged: false, stored_us: None });
        Ending { log: &self.objects.log, number: log.writes.len() - 1, call: |log, at| &mut log.writes[at].call }
    }

    async fn read(&self, location: &Location, max_bytes: usize) -> Result<Vec<u8>, ObjectError> {
        let ending = self.begin_read(location, max_bytes);
        let (delay, fault) = self.objects.fault();
        sleep(delay).await;
        event(|| format!("S3: {}, fails: {fault:?}", location.name));
        let found = match fault {
            Some(Fault::Hangs) => pending().await,
            Some(Fault::Unavailable | Fault::NoReply) => Err(ObjectError::unavailable("S3 is overloaded")),
            None => self.objects.find(location, max_bytes),
        };
        lock(&self.objects.log).reads[ending.number].answer = Some(match found {
            Ok(_) => ReadAnswer::Payload,
            Err(ObjectError::NotFound) => ReadAnswer::NotFound,
            Err(ObjectError::TooLarge { .. }) => ReadAnswer::TooLarge,
            Err(_) => ReadAnswer::NotNow,
        });
        found
    }

    async fn write(&self, location: &Location, bytes: Vec<u8>) -> Result<(), ObjectError> {
        let ending = self.begin_write(location, bytes);
        let (delay, fault) = self.objects.fault();
        sleep(delay).await;
        event(|| format!("S3: writes {location}, fails: {fault:?}"));
        if fault != Some(Fault::Unavailable) {
            lock(&self.objects.log).writes[ending.number].stored_us = Some(monotonic_us());
        }
        match fault {
            Some(Fault::Hangs) => pending().await,
            Some(Fault::Unavailable) => return Err(ObjectError::Rejected("AccessDenied".to_owned())),
            Some(Fault::NoReply) => return Err(ObjectError::unavailable("no reply")),
            None => {}
        }
        lock(&self.objects.log).writes[ending.number].is_acknowledged = true;
        Ok(())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ObjectError>> + Send + 'a>>;

impl ObjectStore for Client {
    fn get<'a>(&'a self, location: &'a Location, max_bytes: usize) -> Answer<'a, Vec<u8>> {
        Box::pin(self.read(location, max_bytes))
    }

    fn put<'a>(&'a self, location: &'a Location, bytes: Vec<u8>) -> Answer<'a, ()> {
        Box::pin(self.write(location, bytes))
    }
}

/// Records when a call was answered or dropped.
struct Ending<'a> {
    log: &'a Mutex<Log>,
    number: usize,
    call: fn(&mut Log, usize) -> &mut Call,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        (self.call)(&mut lock(self.log), self.number).ended_us = Some(monotonic_us());
    }
}
