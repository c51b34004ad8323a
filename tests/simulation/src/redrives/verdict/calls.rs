//! What a command may send, delete and hide.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ptr;
use std::time::Duration;

use idempotent_sqs::Message;
use idempotent_sqs_testing::Queue;
use serde_json::Value;
use tokio::time::Instant;

use super::NEAR_MS;
use crate::redrives::command::{End, Run, Verb};
use crate::redrives::host::{HostCall, Reply};
use crate::redrives::queues::{ATTRIBUTES, Arrival, Letter, Queues};

/// After this many failed sends in a row, none is sent to the queue.
const MAX_FAILURES: usize = 5;

/// The sends and deletes of a run, by the messageIds of their letters.
pub(super) struct Calls<'a> {
    pub(super) sends: Vec<(&'a Letter, &'a HostCall)>,
    pub(super) deletes: Vec<(&'a Letter, &'a HostCall)>,
    /// Calls of no known letter.
    unknown: Vec<&'a HostCall>,
    /// The letters by their receipt handles.
    handles: HashMap<&'a str, &'a Letter>,
}

impl<'a> Calls<'a> {
    pub(super) fn of(run: &'a Run) -> Self {
        let received = run.calls.iter().filter(|call| call.action == "ReceiveMessage");
        let messages = received.filter_map(|call| call.effect.as_ref()?.1["Messages"].as_array()).flatten();
        let handles = messages.filter_map(|message| {
            Some((message["ReceiptHandle"].as_str()?, run.letter(message["MessageId"].as_str()?)?))
        });
        let (handles, mut unknown) = (handles.collect::<HashMap<_, _>>(), Vec::new());
        let mut of = |action: &str, letter: &dyn Fn(&'a HostCall) -> Option<&'a Letter>| {
            let mut found = Vec::new();
            for call in run.calls.iter().filter(|call| call.action == action) {
                match letter(call) {
                    Some(letter) => found.push((letter, call)),
                    None => unknown.push(call),
                }
            }
            found
        };
        let sent = |call: &'a HostCall| {
            let body = call.input["MessageBody"].as_str().unwrap_or_default();
            // A letter that comes again has the same body and trace.
            run.letters.iter().find(|letter| letter.is_of(body, trace(&call.input)))
        };
        let sends = of("SendMessage", &sent);
        let deletes = of("DeleteMessage", &|call| handles.get(call.input["ReceiptHandle"].as_str()?).copied());
        Self { sends, deletes, unknown, handles }
    }

    pub(super) fn sends_of(&self, letter: &Letter) -> Vec<&'a HostCall> {
        self.sends.iter().filter(|(sent, _)| sent.id == letter.id).map(|(_, call)| *call).collect()
    }

    pub(super) fn deletes_of(&self, letter: &Letter) -> Vec<&'a HostCall> {
        self.deletes.iter().filter(|(deleted, _)| deleted.id == letter.id).map(|(_, call)| *call).collect()
    }

    /// Whether the last five sends to the queue of this letter failed, after which none is sent.
    pub(super) fn have_failed(&self, run: &Run, queues: &Queues, letter: &Letter) -> bool {
        let url = queues.destination(letter, run.command.to_other).map(Queue::url);
        let to_queue = self.sends.iter().filter(|(_, call)| call.input["QueueUrl"].as_str() == url.as_deref());
        let last: Vec<_> = to_queue.rev().take(MAX_FAILURES).collect();
        last.len() == MAX_FAILURES && last.iter().all(|(_, call)| call.reply != Some(Reply::Accepted))
    }

    /// Whether an earlier letter of its group that matches, or came after the start, was not sent.
    pub(super) fn are_blocked(&self, run: &Run, queues: &Queues, letter: &Letter) -> bool {
        let before = run.letters.iter().take_while(|before| before.id != letter.id);
        let is_sent = |before: &Letter| self.sends_of(before).iter().any(|call| call.reply == Some(Reply::Accepted));
        let mut of_group = before.filter(|before| before.group == letter.group);
        let blocks = |before: &Letter| {
            let is_later = run.is_later(before, queues) != Some(false);
            !is_sent(before) && (run.matches(before, queues) != Some(false) || is_later)
        };
        queues.dead.settings().is_fifo() && of_group.any(blocks)
    }

    /// Until when the program has hidden this letter, by the effects of these calls until this time. `None` if it has not
    /// received it, or has released or deleted it.
    fn hidden_until<'c>(&self, id: &str, at: Instant, calls: impl Iterator<Item = &'c HostCall>) -> Option<Instant> {
        let mut effects: Vec<_> = calls.filter_map(|call| Some((call, call.effect.as_ref()?))).collect();
        effects.retain(|(_, (time, _))| *time <= at);
        effects.sort_by_key(|(_, (time, _))| *time);
        let mut until = None;
        for (call, (time, output)) in effects {
            let is_its = |entry: &Value| {
                let letter = entry["ReceiptHandle"].as_str().and_then(|handle| self.handles.get(handle));
                letter.is_some_and(|letter| letter.id == id)
            };
            let (received, changed) = (output["Messages"].as_array(), call.input["Entries"].as_array());
            let is_changed = |entry: &&Value| {
                let mut successful = output["Successful"].as_array().into_iter().flatten();
                is_its(entry) && successful.any(|success| success["Id"] == entry["Id"])
            };
            if received.into_iter().flatten().any(|message| message["MessageId"] == id) {
                until = Some(*time + seconds(&call.input["VisibilityTimeout"]));
            } else if let Some(entry) = changed.into_iter().flatten().find(is_changed) {
                let after = Some(seconds(&entry["VisibilityTimeout"])).filter(|after| !after.is_zero());
                until = after.map(|after| *time + after);
            } else if call.action == "DeleteMessage" && is_its(&call.input) {
                until = None;
            }
        }
        until
    }
}

fn seconds(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap_or_default())
}

pub(super) fn faults(run: &Run, queues: &Queues, calls: &Calls<'_>) -> Vec<String> {
    let mut wrong: Vec<_> = calls.unknown.iter().map(|call| format!("a call of no letter: {call:?}")).collect();
    if (run.command.dry_run || !run.command.changes()) && !(calls.sends.is_empty() && calls.deletes.is_empty()) {
        wrong.push(format!("it changes letters: {:?}, {:?}", calls.sends, calls.deletes));
    }
    if run.command.verb != Verb::Redrive && !calls.sends.is_empty() {
        wrong.push(format!("it sends letters: {:?}", calls.sends));
    }
    let mut sent = HashSet::new();
    for (letter, call) in &calls.sends {
        if !sent.insert(&letter.id) {
            wrong.push(format!("sent again: {call:?}"));
        }
        let before = run.calls.iter().take_while(|other| !ptr::eq(*other, *call));
        if calls.hidden_until(&letter.id, call.began, before).is_none_or(|until| until <= call.began) {
            wrong.push(format!("sent while another consumer could receive it: {letter:?}, {call:?}"));
        }
        wrong.extend(wrong_choice(run, queues, letter, "sent"));
        wrong.extend(wrong_message(run, queues, letter, &call.input));
    }
    for (letter, call) in &calls.deletes {
        let is_sent = |(sent, call): &(&Letter, &HostCall)| sent.id == letter.id && call.reply == Some(Reply::Accepted);
        if run.command.verb == Verb::Redrive && !calls.sends.iter().any(is_sent) {
            wrong.push(format!("deleted without a send: {letter:?}, {call:?}"));
        }
        wrong.extend(wrong_choice(run, queues, letter, "deleted"));
    }
    wrong.extend(wrong_order(run, queues, calls));
    wrong.extend(wrong_repeats(calls));
    wrong.extend(wrong_rate(run, calls));
    wrong.extend(wrong_after_interrupt(run, calls));
    let in_both = calls.sends.iter().filter(|(letter, call)| {
        let is_deleted = |(deleted, call): &(&Letter, &HostCall)| deleted.id == letter.id && call.effect.is_some();
        call.effect.is_some() && !calls.deletes.iter().any(is_deleted)
    });
    if matches!(run.end, End::Killed) && run.events.rates.faults == 0 && in_both.count() > 1 {
        wrong.push("more than one letter is in both queues".to_owned());
    }
    if run.events.other_consumer {
        // SQS has no faults: a letter that was received stays hidden until the program releases or deletes it.
        for (at, id) in &run.received_by_other {
            // Calls at that time may have come before it, or after it.
            let before = run.calls.iter().filter(|call| call.effect.as_ref().is_some_and(|(time, _)| time < at));
            let is_held = calls.hidden_until(id, *at, before).is_some();
            if is_held && calls.hidden_until(id, *at, run.calls.iter()).is_some() {
                wrong.push(format!("another consumer received a letter that the command holds: {id}"));
            }
        }
    }
    wrong
}

/// Whether the letter should stay.
fn wrong_choice(run: &Run, queues: &Queues, letter: &Letter, what: &str) -> Option<String> {
    let is_wrong = run.matches(letter, queues) == Some(false) || run.is_later(letter, queues) == Some(true);
    is_wrong.then(|| format!("{what}, although it does not match or is later: {letter:?}"))
}

/// Whether the message is another one than the letter should become.
fn wrong_message(run: &Run, queues: &Queues, letter: &Letter, input: &Value) -> Option<String> {
    let fault = |why: &str| Some(format!("{why}: {letter:?}, {input}"));
    let Some(queue) = queues.destination(letter, run.command.to_other) else { return fault("sent without a queue") };
    if input["QueueUrl"] != queue.url() {
        return fault("sent to another queue");
    }
    let deduplication_id = queue.settings().is_fifo().then_some(letter.id.as_str());
    let ids = [input["MessageGroupId"].as_str(), input["MessageDeduplicationId"].as_str(), trace(input)];
    if ids != [letter.group_in(queue), deduplication_id, letter.trace.as_deref()] {
        return fault("another group, deduplicationId or trace");
    }
    let attributes = attributes(input);
    let mut added = attributes.clone();
    added.retain(|name, value| letter.attributes.get(name) != Some(value));
    if !letter.attributes.keys().all(|name| attributes.contains_key(name)) || added.len() > 1 {
        return fault("other attributes");
    }
    let key = |attributes: &_| queues.keys.find(&letter.body, attributes, Some("a new id"));
    let is_needed = key(&letter.attributes) != letter.key;
    if !added.is_empty() && (run.command.as_is || !is_needed) {
        return fault("an attribute that is not needed");
    }
    if let Some((name, value)) = added.first_key_value() {
        let is_key = name == "Idempotency-Key" && Some(value) == letter.key.as_ref();
        let is_id = name == Message::ID_ATTRIBUTE && value == &letter.original_id;
        if !is_key && !is_id {
            return fault("another attribute");
        }
    }
    let can_keep = letter.shown_original_id().is_some() && !run.command.as_is && letter.attributes.len() < ATTRIBUTES;
    (can_keep && key(&attributes) != letter.key).then(|| format!("its key is lost: {letter:?}, {input}"))
}

/// The trace of a message that is sent.
fn trace(input: &Value) -> Option<&str> {
    input["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"].as_str()
}

/// The attributes of a message that is sent.
pub(super) fn attributes(input: &Value) -> BTreeMap<String, String> {
    let attributes = input["MessageAttributes"].as_object().into_iter().flatten();
    let text = |value: &Value| value["StringValue"].as_str().unwrap_or_default().to_owned();
    attributes.map(|(name, value)| (name.clone(), text(value))).collect()
}

/// Most letters that may be lost: those whose visibility timeouts could not be extended since they were last received.
pub(super) fn lost(run: &Run) -> u64 {
    let none = Value::Null;
    let (mut last, mut failed) = (HashMap::new(), HashSet::new());
    for call in &run.calls {
        let output = call.effect.as_ref().map_or(&none, |(_, output)| output);
        for message in output["Messages"].as_array().into_iter().flatten() {
            last.insert(message["MessageId"].as_str(), message["ReceiptHandle"].as_str());
        }
        let is_changed = |entry: &Value| {
            let mut successful = output["Successful"].as_array().into_iter().flatten();
            successful.any(|success| success["Id"] == entry["Id"])
        };
        let entries = call.input["Entries"].as_array().filter(|_| call.action == "ChangeMessageVisibilityBatch");
        let unchanged =
            entries.into_iter().flatten().filter(|entry| entry["VisibilityTimeout"] != 0 && !is_changed(entry));
        failed.extend(unchanged.map(|entry| entry["ReceiptHandle"].as_str()));
    }
    last.values().filter(|handle| failed.contains(*handle)).count() as u64
}

/// In a FIFO queue, the letters of a group are sent in their order, and none after one that was not accepted, or that came
/// again and stays.
fn wrong_order(run: &Run, queues: &Queues, calls: &Calls<'_>) -> Vec<String> {
    if !queues.dead.settings().is_fifo() {
        return Vec::new();
    }
    let place = |letter: &Letter| run.letters.iter().position(|other| other.id == letter.id);
    let comes_again =
        |before: &Letter, letter: &Letter| before.arrival == Arrival::Again && before.group == letter.group;
    let mut last: HashMap<_, (&Letter, &HostCall)> = HashMap::new();
    let mut wrong = Vec::new();
    for (letter, call) in &calls.sends {
        let mut before = run.letters.iter().take_while(|before| before.id != letter.id);
        if let Some(again) = before.find(|before| comes_again(before, letter)) {
            wrong.push(format!("sent after {again:?}, which stays: {letter:?}"));
        }
        if let Some((before, sent)) = last.insert(letter.group.as_deref(), (*letter, *call))
            && (place(before) >= place(letter) || sent.reply != Some(Reply::Accepted))
        {
            wrong.push(format!("sent after {before:?}, {sent:?}: {letter:?}"));
        }
    }
    wrong
}

/// After five failed sends in a row, no other one is sent to the queue.
fn wrong_repeats(calls: &Calls<'_>) -> Vec<String> {
    let mut failures: HashMap<_, usize> = HashMap::new();
    let mut wrong = Vec::new();
    for (_, call) in &calls.sends {
        let failed = failures.entry(call.input["QueueUrl"].as_str()).or_default();
        if *failed >= MAX_FAILURES {
            wrong.push(format!("sent after {failed} failures: {call:?}"));
        }
        *failed = if call.reply == Some(Reply::Accepted) { 0 } else { *failed + 1 };
    }
    wrong
}

fn wrong_rate(run: &Run, calls: &Calls<'_>) -> Option<String> {
    let shortest = (Duration::from_secs(1) / run.command.rate).saturating_sub(Duration::from_millis(1));
    let mut pairs = calls.sends.windows(2);
    let is_early = pairs.find(|pair| pair[1].1.began - pair[0].1.began < shortest);
    is_early.map(|pair| format!("faster than the rate: {pair:?}"))
}

/// After an interrupt, only what was begun is finished.
fn wrong_after_interrupt(run: &Run, calls: &Calls<'_>) -> Vec<String> {
    let Some(after) = run.events.interrupted_after else { return Vec::new() };
    let at = run.began + after + Duration::from_millis(NEAR_MS.unsigned_abs());
    let is_late = |(_, call): &&(&Letter, &HostCall)| call.began > at;
    let mut wrong: Vec<_> =
        calls.sends.iter().filter(is_late).map(|send| format!("sent after the interrupt: {send:?}")).collect();
    for delete in calls.deletes.iter().filter(is_late) {
        let was_sent = calls.sends.iter().any(|(sent, _)| sent.id == delete.0.id);
        let was_begun = calls.deletes.iter().any(|(deleted, call)| deleted.id == delete.0.id && call.began <= at);
        if !was_sent && !was_begun {
            wrong.push(format!("deleted after the interrupt: {delete:?}"));
        }
    }
    // A send of 15 s, its delete of 45 s, and 30 s at the end.
    let last = run.calls.iter().map(|call| call.began).max();
    if last.is_some_and(|last| last > at + Duration::from_secs(95)) {
        wrong.push(format!("a call long after the interrupt: {:?}", run.calls.last()));
    }
    wrong
}
