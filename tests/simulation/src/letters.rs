//! Dead letters whose reasons and sizes are written from their parts: docs/failures.md. There is no queue.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::Rng;
use idempotent_sqs::sqs::{
    Batch, BatchSettings, DeadLetter, DeadLetterMessage, DeadLetterOutcome, DeadLetterQueue, Message, MessageAttribute,
};
use idempotent_sqs::{Claim, Deadline, Idempotency, MemoryStore, Policy, WorkError, work_fn};

use crate::lock;
use crate::producers::{MAX_MESSAGE_BYTES, size};

/// Number of letters of a seed.
const LETTERS: usize = 12;

/// Longest reason, bytes.
const LONGEST_REASON: usize = 1024;

/// Number of attributes that SQS accepts.
const ATTRIBUTES: u64 = 10;

/// What precedes the error of the work.
const KIND: &str = "failed permanently: ";

/// A time may be written with or without so many bytes of milliseconds.
const TIME: usize = 4;

/// With more room, some of the reason is left, bytes.
const SHORT: usize = 200;

/// What is wrong with the letters of this seed.
pub async fn write_letters(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x1e77);
    let mut wrong = Vec::new();
    for number in 0..LETTERS {
        let (error, reason) = error(rng);
        let mut message = Message::new(format!("m{number}"), "a payment");
        let attributes = *rng.pick(&[0, 3, ATTRIBUTES - 1, ATTRIBUTES]);
        for attribute in 0..attributes {
            message.attributes.insert(format!("A{attribute}"), MessageAttribute::from("value"));
        }
        if attributes < ATTRIBUTES && rng.happens(300) {
            // SQS has moved an earlier letter of the message back to its queue.
            message.attributes.insert(DeadLetter::ATTRIBUTE.to_owned(), MessageAttribute::from("an earlier letter"));
        }
        let whole = send(&message, &error).await;
        wrong.extend(wrong_letter(&whole, &message, &reason));
        // The same letter, with so little room in the message.
        let Some(text) = letter_text(&whole) else { continue };
        let used = size(&whole.attributes) - text.len();
        let room = usize::try_from(rng.draw(0..1500)).unwrap_or_default();
        message.body = Some("x".repeat(MAX_MESSAGE_BYTES - used - room));
        let short = send(&message, &error).await;
        wrong.extend(wrong_room(&short, &text, room));
    }
    wrong
}

/// An error of the work, and the reason that its letter has: without addresses, and cut off if it is too long.
fn error(rng: &mut Rng) -> (String, String) {
    const WORDS: [&str; 8] = ["a", "refused", "(code", "7)", "ä€", "\"quoted\"", "\u{ffff}", "://"];
    const BEFORE: [&str; 3] = ["", "(", "see:"];
    const ADDRESSES: [&str; 4] = ["https://user:secret@host/?a=b)", "git+ssh://host", "x-y.z://h", "redis://:pass@h"];
    let (mut error, mut reason) = (String::new(), KIND.to_owned());
    for _ in 0..*rng.pick(&[1, 5, 20, 300]) {
        let space = *rng.pick(&[" ", " ", "\n", "  "]);
        if rng.happens(300) {
            let before = *rng.pick(&BEFORE);
            error.extend([before, *rng.pick(&ADDRESSES), space]);
            reason.extend([before, "<address>", space]);
        } else {
            let word = *rng.pick(&WORDS);
            error.extend([word, space]);
            reason.extend([if word == "://" { "<address>" } else { word }, space]);
        }
    }
    if rng.happens(300) {
        error.truncate(error.trim_end().len());
        reason.truncate(reason.trim_end().len());
    }
    if reason.len() > LONGEST_REASON {
        let end = (0..=LONGEST_REASON - "…".len()).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or_default();
        reason = format!("{}…", &reason[..end]);
    }
    (error, reason)
}

/// The letter of a message whose work fails with this error.
async fn send(message: &Message, error: &str) -> DeadLetterMessage {
    let sent = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&sent);
    let mut settings = BatchSettings::default();
    settings.dead_letter_queue = Some(DeadLetterQueue::with_replacement("https://sqs/1/letters", move |letter| {
        *lock(&noted) = Some(letter);
        Ok(())
    }));
    let work = work_fn(|_: &Claim, _: &Message| async { Err::<Vec<u8>, _>(WorkError::permanent(error)) });
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), work, settings);
    let deadline = Deadline::within(Duration::from_secs(10));
    batch.run(std::slice::from_ref(message), deadline).await.expect("the store is in memory");
    let letter = lock(&sent).take();
    letter.expect("its letter was sent")
}

/// The text of the attribute of a letter.
fn letter_text(letter: &DeadLetterMessage) -> Option<String> {
    letter.attributes.get(DeadLetter::ATTRIBUTE)?.text().map(str::to_owned)
}

fn wrong_letter(letter: &DeadLetterMessage, message: &Message, reason: &str) -> Option<String> {
    let Some(text) = letter_text(letter) else {
        let is_full = message.attributes.len() as u64 == ATTRIBUTES;
        return (!is_full).then(|| format!("has no reason: {letter:?}"));
    };
    let read: DeadLetter = serde_json::from_str(&text).expect("it is JSON");
    // SQS does not accept these characters.
    let is_accepted = !text.contains(['\u{fffe}', '\u{ffff}']);
    let is_right = read.reason == reason && read.outcome == DeadLetterOutcome::FailedPermanently;
    (!is_right || !is_accepted).then(|| format!("its reason is not {reason:?}: {text:?}"))
}

/// What is wrong with a letter that has this room for its text, if all of its text is this one.
fn wrong_room(letter: &DeadLetterMessage, whole: &str, room: usize) -> Option<String> {
    let bytes = letter.body.len() + size(&letter.attributes);
    let mut least: DeadLetter = serde_json::from_str(whole).expect("it is JSON");
    least.reason = String::new();
    let least = serde_json::to_string(&least).expect("it has no keys that are no text").len();
    let text = letter_text(letter);
    let is_right = match text.as_deref() {
        None => room < least + TIME,
        Some(text) if room < whole.len() => {
            let [short, whole] =
                [text, whole].map(|text| serde_json::from_str::<DeadLetter>(text).expect("it is JSON"));
            let is_start = whole.reason.starts_with(&short.reason) && short.reason.len() < whole.reason.len();
            is_start && text.len() <= room && (room < least + SHORT || !short.reason.is_empty())
        }
        Some(text) => room < whole.len() + TIME || text.len().abs_diff(whole.len()) <= TIME,
    };
    (!is_right || bytes > MAX_MESSAGE_BYTES)
        .then(|| format!("{bytes} bytes, with room for {room}: {text:?} of {whole:?}"))
}
