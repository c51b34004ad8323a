//! `list`: a table of the letters, and their number by outcome.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::SystemTime;

use futures_util::future::try_join_all;
use idempotent_sqs::idempotency::Key;
use idempotent_sqs::stores::redis::records::{Inspected, Records, RecordsError};
use serde_json::{Map, Value, json};

use super::Session;
use super::error::CallError;
use super::filter::Filter;
use super::letter::Letter;
use super::scan::{Scan, Stop};
use crate::format;
use crate::output::{self, CommandOutput};
use crate::progress::ProgressLine;

/// Longest reason and key in the table, in characters.
const MAX_CELL: usize = 60;

/// Records that are read concurrently.
const CONCURRENT_READS: usize = 100;

pub(crate) async fn run(
    session: &Session,
    filter: &Filter,
    limit: usize,
    records: Option<&Records>,
) -> Result<CommandOutput, Box<dyn Error>> {
    let mut scan = session.scan();
    let letters = matching(&mut scan, filter, session.started, limit).await;
    let stop = match &letters {
        Ok(letters) if letters.len() < limit => Stop::ScanEnded,
        Ok(_) => Stop::Limit,
        Err(_) => Stop::Failure,
    };
    let end = scan.end(stop).await;
    let mut letters = letters.map_err(|error| end.explain(error))?;
    letters.sort_by_key(Letter::sent);
    // Without Redis, the letters are shown nevertheless.
    let (states, unread) = match records {
        Some(records) => match states(records, &letters).await {
            Ok(states) => (Some(states), None),
            Err(error) => (Some(vec![None; letters.len()]), Some(error)),
        },
        None => (None, None),
    };
    let mut json = json!({
        "queue_url": session.queue.url,
        "letters": letters.iter().enumerate().map(|(index, letter)| {
            let mut json = super::fields::json(letter, session.started);
            if let Some(states) = &states {
                json["record"] = states[index].clone().into();
            }
            json
        }).collect::<Vec<_>>(),
        "totals": totals(&letters).into_iter().map(|(word, number)| (word.to_owned(), number.into())).collect::<Map<_, Value>>(),
    });
    end.add_to(&mut json);
    let text = table(&letters, session, states.as_deref()) + &summary(&letters) + &end.note();
    Ok(CommandOutput::new(end.is_success(), text, json).with_error(unread))
}

async fn matching(
    scan: &mut Scan<'_>,
    filter: &Filter,
    now: SystemTime,
    limit: usize,
) -> Result<Vec<Letter>, CallError> {
    let (mut letters, mut line) = (Vec::new(), ProgressLine::new());
    while letters.len() < limit
        && let Some(letter) = scan.next().await?
    {
        line.show(&format!("received {} letters", format::count(scan.seen() as u64)));
        if filter.matches(&letter, now) {
            letters.push(letter);
        }
    }
    Ok(letters)
}

/// The state of the record of each letter.
async fn states(records: &Records, letters: &[Letter]) -> Result<Vec<Option<String>>, RecordsError> {
    let mut states = Vec::new();
    for letters in letters.chunks(CONCURRENT_READS) {
        states.extend(try_join_all(letters.iter().map(|letter| state(records, letter))).await?);
    }
    Ok(states)
}

/// `None` if the key is not known.
async fn state(records: &Records, letter: &Letter) -> Result<Option<String>, RecordsError> {
    let key = letter.key.as_deref().map(Key::new);
    let Some(Ok(key)) = key else { return Ok(None) };
    Ok(Some(match records.inspect(&key).await? {
        Inspected::Record { view, .. } => output::state(view.seen().state).to_owned(),
        Inspected::Absent => "ABSENT".to_owned(),
        Inspected::NotARecord | _ => "NOT_A_RECORD".to_owned(),
    }))
}

fn table(letters: &[Letter], session: &Session, states: Option<&[Option<String>]>) -> String {
    if letters.is_empty() {
        return String::new();
    }
    let has_groups = letters.iter().any(|letter| letter.group().is_some());
    let mut lines = vec![row(
        ["AGE", "OUTCOME", "KEY", "ATTEMPTS", "REASON", "MESSAGE ID"].map(str::to_owned),
        has_groups.then(|| "GROUP".to_owned()),
        states.map(|_| "RECORD".to_owned()),
    )];
    for (index, letter) in letters.iter().enumerate() {
        let attempts = letter.described().and_then(|described| described.attempts);
        let cells = [
            letter.age(session.started).map_or("-".to_owned(), format::duration),
            letter.outcome().to_owned(),
            letter.key.as_deref().map_or("-".to_owned(), |key| cut(&format::text(key))),
            attempts.map_or("-".to_owned(), |attempts| attempts.to_string()),
            cut(&format::text(letter.reason())),
            format::text(letter.id()),
        ];
        let group = has_groups.then(|| letter.group().map_or("-".to_owned(), format::text));
        let state = states.map(|states| states[index].clone().unwrap_or("-".to_owned()));
        lines.push(row(cells, group, state));
    }
    format::columns(&lines)
}

/// The cells of one line, with empty ones for absent columns.
fn row(
    [age, outcome, key, attempts, reason, id]: [String; 6],
    group: Option<String>,
    state: Option<String>,
) -> [String; 8] {
    let (group, state) = (group.unwrap_or_default(), state.unwrap_or_default());
    [age, outcome, key, attempts, state, reason, id, group]
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_CELL) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn totals(letters: &[Letter]) -> BTreeMap<&'static str, u64> {
    let mut totals = BTreeMap::new();
    for letter in letters {
        *totals.entry(letter.outcome()).or_default() += 1;
    }
    totals
}

fn summary(letters: &[Letter]) -> String {
    let totals = totals(letters).into_iter().map(|(word, number)| format!("{} {word}", format::count(number)));
    let totals: Vec<_> = totals.collect();
    match letters.len() {
        0 => "no letters\n".to_owned(),
        1 => format!("1 letter: {}\n", totals.join(", ")),
        number => format!("{} letters: {}\n", format::count(number as u64), totals.join(", ")),
    }
}
