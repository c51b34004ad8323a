//! What a command may say.

use std::collections::BTreeSet;

use idempotent_sqs_ops::letters::CommandOutput;
use serde_json::{Value, json};

use super::calls::{Calls, attributes, lost};
use crate::redrives::command::{Run, Verb};
use crate::redrives::events::Events;
use crate::redrives::host::{HostCall, Reply};
use crate::redrives::queues::{Arrival, Letter, Queues};

pub(super) fn faults(run: &Run, queues: &Queues, calls: &Calls<'_>, output: &CommandOutput) -> Vec<String> {
    let mut wrong = match run.command.verb {
        Verb::List => wrong_list(run, queues, output),
        Verb::Show => wrong_show(run, queues, output),
        Verb::Redrive | Verb::Delete => wrong_report(run, queues, calls, output),
    };
    wrong.extend(wrong_end(run, queues, output));
    wrong.extend(wrong_lost(run, output));
    wrong.extend(wrong_remainder(run, output));
    wrong
}

/// The letters that are not hidden at the end, and what it says of the others.
fn wrong_end(run: &Run, queues: &Queues, output: &CommandOutput) -> Option<String> {
    let json = &output.json;
    let says_hidden = json["still_hidden"] != 0 || json["receive_repeated"] == true || json["lost"] != 0;
    let may_be_hidden = says_hidden || run.events.other_consumer || run.events.copies;
    if run.in_flight > 0 && !may_be_hidden {
        return Some(format!("{} letters are hidden, and it says {json}", run.in_flight));
    }
    if !run.events.are_harmless() {
        return None;
    }
    if output.error.is_some() || says_hidden || run.in_flight > 0 {
        return Some(format!("{} letters are hidden, and it says {json}, {:?}", run.in_flight, output.error));
    }
    let is_fifo = queues.dead.settings().is_fifo();
    let is_limited = run.command.limit.is_some() || run.command.verb == Verb::Show;
    let is_complete = is_fifo || is_limited || json["complete"] == true;
    (!is_complete).then(|| format!("it does not say that it has all letters: {json}"))
}

/// Whether it says that more letters are lost than those that could not be kept hidden and were not received again.
fn wrong_lost(run: &Run, output: &CommandOutput) -> Option<String> {
    let Events { rates, interrupted_after, .. } = run.events;
    // Otherwise calls may have taken effect too late, or without their replies.
    let is_known = rates.faults == 0 && interrupted_after.is_none();
    let (most, json) = (lost(run), &output.json);
    (is_known && json["lost"].as_u64() > Some(most)).then(|| format!("at most {most} letters are lost: {json}"))
}

/// Whether there are fewer letters in its lines and its notes than there were in the queue.
fn wrong_remainder(run: &Run, output: &CommandOutput) -> Option<String> {
    let Events { rates, other_consumer, copies, interrupted_after, .. } = run.events;
    let is_known =
        rates.faults == 0 && !other_consumer && !copies && interrupted_after.is_none() && run.command.has_all();
    let json = &output.json;
    let numbers = [&json["blocked"], &json["lost"], &json["arrived_during_run"]];
    let noted: u64 = numbers.into_iter().filter_map(Value::as_u64).sum();
    let lines = json["letters"].as_array().map_or(0, Vec::len) as u64;
    let letters = run.letters.iter().filter(|letter| letter.arrival == Arrival::BeforeRun).count() as u64;
    (is_known && lines + noted < letters).then(|| format!("{letters} letters were there: {json}"))
}

fn wrong_list(run: &Run, queues: &Queues, output: &CommandOutput) -> Vec<String> {
    let listed = output.json["letters"].as_array().cloned().unwrap_or_default();
    let mut wrong = Vec::new();
    let mut sent = Vec::new();
    for line in &listed {
        let Some(letter) = line["message_id"].as_str().and_then(|id| run.letter(id)) else {
            wrong.push(format!("no letter: {line}"));
            continue;
        };
        sent.push(letter.sent_ms);
        if run.matches(letter, queues) == Some(false) {
            wrong.push(format!("listed without a match: {letter:?}"));
        }
        wrong.extend(wrong_fields(run, queues, letter, line));
    }
    if !sent.is_sorted() {
        wrong.push(format!("not in the order of age: {listed:?}"));
    }
    let outcomes = listed.iter().filter_map(|line| line["outcome"].as_str()).collect::<BTreeSet<_>>();
    let number = |outcome: &str| listed.iter().filter(|line| line["outcome"] == outcome).count();
    let totals: serde_json::Map<_, _> =
        outcomes.into_iter().map(|outcome| (outcome.to_owned(), json!(number(outcome)))).collect();
    if output.json["totals"] != Value::Object(totals) {
        wrong.push(format!("other totals: {}", output.json));
    }
    wrong.extend(wrong_number(run, queues, listed.len(), output.json["complete"] == true, |letter| {
        listed.iter().any(|line| line["message_id"] == letter.id)
    }));
    wrong
}

fn wrong_fields(run: &Run, queues: &Queues, letter: &Letter, line: &Value) -> Option<String> {
    let expected = json!({
        "message_id": letter.id,
        "original_message_id": letter.shown_original_id(),
        "outcome": letter.outcome,
        "reason": letter.reason,
        "key": letter.shown_key(queues.keys),
        "source_queue_arn": queues.source_arn(letter),
        "group": letter.group,
        "body_bytes": letter.body.len(),
    });
    let is_same = expected.as_object().into_iter().flatten().all(|(name, value)| line[name] == *value);
    let age_ms = (queues.ms(run.began) - letter.sent_ms).max(0);
    let is_age = run.events.rates.faults > 0
        || line["age_ms"].as_i64().is_some_and(|age| (age - age_ms).abs() <= super::NEAR_MS);
    (!is_same || !is_age).then(|| format!("{line} is not {expected}, {age_ms} ms old"))
}

fn wrong_show(run: &Run, queues: &Queues, output: &CommandOutput) -> Vec<String> {
    let wanted = &run.command.wanted;
    let is_wanted = |letter: &Letter| letter.has_id(wanted) || letter.shown_key(queues.keys).as_ref() == Some(wanted);
    let shown = output.json["message_id"].as_str();
    let mut wrong = Vec::new();
    match shown.and_then(|id| run.letter(id)) {
        Some(letter) if !is_wanted(letter) => wrong.push(format!("not {wanted}: {letter:?}")),
        Some(letter) => wrong.extend(wrong_fields(run, queues, letter, &output.json)),
        None if output.success => wrong.push(format!("{wanted} is not shown: {}", output.json)),
        None => {
            let is_there = run.letters.iter().any(is_wanted);
            if run.events.are_harmless() && is_there && !queues.dead.settings().is_fifo() {
                wrong.push(format!("{wanted} is not found: {}", output.json));
            }
        }
    }
    wrong
}

/// What `redrive` and `delete` did with each letter.
fn wrong_report(run: &Run, queues: &Queues, calls: &Calls<'_>, output: &CommandOutput) -> Vec<String> {
    let lines = output.json["letters"].as_array().cloned().unwrap_or_default();
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for line in &lines {
        let Some(letter) = line["message_id"].as_str().and_then(|id| run.letter(id)) else {
            wrong.push(format!("no letter: {line}"));
            continue;
        };
        if !seen.insert(&letter.id) {
            wrong.push(format!("a second line of {letter:?}"));
        }
        if line["key"] != json!(letter.shown_key(queues.keys)) {
            wrong.push(format!("another key: {line}, {letter:?}"));
        }
        if run.matches(letter, queues) == Some(false) || run.is_later(letter, queues) == Some(true) {
            wrong.push(format!("a line of a letter that does not match or is later: {line}, {letter:?}"));
        }
        if !is_right(run, queues, letter, calls, line) {
            wrong.push(format!(
                "{line} is not what happened: {letter:?}, {:?}, {:?}",
                calls.sends_of(letter),
                calls.deletes_of(letter)
            ));
        }
    }
    let changed = calls.sends.iter().chain(&calls.deletes).map(|(letter, _)| &letter.id);
    for id in changed.filter(|id| !seen.contains(id)) {
        wrong.push(format!("{id} was changed, and has no line"));
    }
    let is_failed = |line: &Value| {
        !matches!(line["result"].as_str(), Some("REDRIVEN" | "DELETED" | "WOULD_REDRIVE" | "WOULD_DELETE"))
    };
    if output.success && lines.iter().any(is_failed) {
        wrong.push(format!("a success with failures: {}", output.json));
    }
    if run.events.are_harmless() && !output.success && !lines.iter().any(is_failed) {
        wrong.push(format!("a failure without one: {}", output.json));
    }
    if run.command.verb == Verb::Redrive {
        let accepted = calls.sends.iter().filter(|(_, call)| call.reply == Some(Reply::Accepted));
        let is_new = |(letter, call): &&(&Letter, &HostCall)| {
            queues.keys.find(&letter.body, &attributes(&call.input), Some("a new id")) != letter.key
        };
        let new = accepted.filter(is_new).count();
        if !run.command.dry_run && output.json["new_keys"] != new {
            wrong.push(format!("{new} new keys: {}", output.json));
        }
    }
    let later = run.letters.iter().filter(|letter| run.is_later(letter, queues) != Some(false)).count();
    if output.json["arrived_during_run"].as_u64().is_none_or(|number| number > later as u64) {
        wrong.push(format!("{later} letters are later: {}", output.json));
    }
    wrong.extend(wrong_number(run, queues, lines.len(), output.json["complete"] == true, |letter| {
        seen.contains(&letter.id)
    }));
    wrong
}

/// Whether the line of a letter says what happened to it.
fn is_right(run: &Run, queues: &Queues, letter: &Letter, calls: &Calls<'_>, line: &Value) -> bool {
    let (sends, deletes) = (calls.sends_of(letter), calls.deletes_of(letter));
    let is_accepted = |calls: &[&HostCall]| calls.iter().any(|call| call.reply == Some(Reply::Accepted));
    let has_effect = |calls: &[&HostCall]| calls.iter().any(|call| call.effect.is_some());
    let is_sent = run.command.verb == Verb::Delete || is_accepted(&sends);
    let can_be_sent = queues.destination(letter, run.command.to_other).is_some();
    match line["result"].as_str() {
        Some("REDRIVEN") => run.command.verb == Verb::Redrive && is_sent && has_effect(&deletes),
        Some("DELETED") => run.command.verb == Verb::Delete && has_effect(&deletes),
        Some("WOULD_REDRIVE") => run.command.verb == Verb::Redrive && run.command.dry_run && can_be_sent,
        Some("WOULD_DELETE") => run.command.verb == Verb::Delete && run.command.dry_run,
        Some("NOT_SENT") => {
            let is_explained = !can_be_sent || !sends.is_empty() || !run.events.are_harmless();
            let is_explained =
                is_explained || calls.have_failed(run, queues, letter) || calls.are_blocked(run, queues, letter);
            run.command.verb == Verb::Redrive && !has_effect(&sends) && deletes.is_empty() && is_explained
        }
        Some("MAYBE_SENT") => !sends.is_empty() && !is_accepted(&sends) && deletes.is_empty(),
        // Copies may have been deleted before.
        Some("NOT_DELETED") => {
            let is_kept = run.events.copies || !has_effect(&deletes);
            is_sent && is_kept && !run.events.are_harmless()
        }
        Some("MAYBE_DELETED") => is_sent && !run.events.are_harmless(),
        _ => false,
    }
}

/// Whether letters are missing, or there are more than asked for. `is_complete`: whether it says that it has all of them.
/// `has`: whether a letter has a line.
fn wrong_number(
    run: &Run,
    queues: &Queues,
    lines: usize,
    is_complete: bool,
    has: impl Fn(&Letter) -> bool,
) -> Option<String> {
    let limit = run.command.limit.unwrap_or(usize::MAX);
    if lines > limit {
        return Some(format!("{lines} letters, and the limit is {limit}"));
    }
    // In a FIFO queue, others of its group may be in the way.
    let is_complete = is_complete || run.events.are_harmless() && !queues.dead.settings().is_fifo();
    // Another consumer may have received letters after the start.
    if !is_complete || run.events.copies || run.events.other_consumer || lines == limit {
        return None;
    }
    let is_later = |letter: &Letter| run.command.changes() && run.is_later(letter, queues) != Some(false);
    let is_expected = |letter: &&Letter| {
        let was_there = letter.arrival == Arrival::BeforeRun;
        was_there && run.matches(letter, queues) == Some(true) && !is_later(letter)
    };
    let missing = run.letters.iter().filter(is_expected).find(|letter| !has(letter));
    missing.map(|letter| format!("it has no line: {letter:?}"))
}
