//! Requests and answers made by hand, of which one thing is changed: the verdict refuses them.

use std::collections::BTreeSet;
use std::time::Duration;

use history::{Answer as StoreAnswer, History};
use http::HeaderMap;
use idempotent_sqs::Deadline;
use idempotent_sqs_http::{RequestOutcome, StoreOutage};
use tokio::time::Instant;

use crate::answer::{Answer, NOT_KEPT};
use crate::clients::{Answered, Sent};
use crate::handler::{Ending, Plan};
use crate::kind::{KIND, KINDS};
use crate::reported::{Reported, in_logs};
use crate::request::{Identity, VARIANTS};
use crate::response::Form;
use crate::runs::{Run, UnprotectedRun};
use crate::service::Reply;
use crate::store::{Asked, Told};
use crate::verdict::Seen;
use history::hand_made::{KEY, acquire, acquired, calls, complete, fence};

const MS: Duration = Duration::from_millis(1);

const CONFLICT: Told = Told::Conflict { lease_remains: MS };

/// A change of what was seen.
type Change = fn(&mut Seen);

fn problem(status: u16, kind: &str) -> Answer {
    Answer::Problem { status, kind: kind.to_owned(), retry_after: None }
}

fn answered(answer: Answer) -> Answered {
    Answered { answer, key: None, after: 50 * MS }
}

fn asked(seen: &Seen, from: Duration, to: Duration, told: Told) -> Asked {
    let Sent { at, kind, .. } = &seen.sent[0];
    Asked { request: 0, keeping: kind.keeping(), from: *at + from, to: *at + to, told }
}

/// A request that the service with this kind answered with a problem, as the store said.
fn not_run(told: Told, problem_kind: &str, outcome: RequestOutcome) -> Seen {
    let identity = Identity { principal: "alice", key: KEY.to_owned(), variant: VARIANTS[0][0] };
    let (at, answer) = (Instant::now(), problem(409, problem_kind));
    let sent = Sent {
        identity,
        flaw: None,
        key: Some(KEY.parse().unwrap()),
        at,
        deadline: None,
        kind: KIND,
        left_at: None,
        answered: Some(answered(answer)),
    };
    let report = Reported {
        request: 0,
        outcome,
        status: Some(409),
        method: "POST".to_owned(),
        client_key: Some(KEY.to_owned()),
        fence: None,
        attempts: None,
        is_recovery: false,
        duration: 40 * MS,
    };
    let mut seen = Seen {
        sent: vec![sent],
        runs: Vec::new(),
        unprotected: Vec::new(),
        reports: vec![report],
        lines: Vec::new(),
        asked: Vec::new(),
        read: BTreeSet::new(),
        late: Duration::ZERO,
        is_finished: true,
    };
    seen.asked = vec![asked(&seen, MS, 10 * MS, told)];
    seen
}

fn in_flight() -> Seen {
    not_run(CONFLICT, "in-flight", RequestOutcome::InFlight)
}

fn done() -> Told {
    Told::Duplicate { fence: fence(1), attempts: 1, is_object: true }
}

/// A request that ran, and whose completion was recorded.
fn completed() -> Seen {
    let mut seen =
        not_run(Told::Acquired { fence: fence(1), attempt: 1, is_recovery: false }, "", RequestOutcome::Completed);
    let reply = Reply {
        status: 201,
        headers: HeaderMap::new(),
        body: "".into(),
        trailers: None,
        is_sized: true,
        head_at: seen.sent[0].at,
    };
    let plan = Plan {
        request: 0,
        before: 10 * MS,
        has_effect: true,
        after: 10 * MS,
        ending: Ending::Answer(201),
        form: Form::Small,
    };
    seen.sent[0].answered =
        Some(answered(Answer::Receipt { request: 0, is_replayed: false, is_omitted: false, reply }));
    seen.runs = vec![Run {
        plan,
        kind: KIND,
        key: KEY.to_owned(),
        fence: fence(1),
        attempt: 1,
        is_recovery: false,
        ended: Some(plan.ending),
        is_late: false,
        over_at: Some(seen.sent[0].at + 30 * MS),
        faults: Vec::new(),
    }];
    let report = &mut seen.reports[0];
    (report.status, report.fence, report.attempts) = (Some(201), Some(fence(1)), Some(1));
    seen
}

fn history() -> History {
    let begun = calls().answered(0, 2, acquire(1), acquired(1, 1, false));
    begun.answered(20, 22, complete(1, 1), StoreAnswer::Recorded).history()
}

fn unsettled() -> History {
    calls().answered(0, 2, acquire(1), acquired(1, 1, false)).history()
}

/// What is wrong, apart from the answer of the run and the log.
fn wrong(seen: &Seen, history: &History) -> Vec<String> {
    let (sent, own) = (&seen.sent[0], seen.runs.first());
    let wrong = [seen.wrong_by_store(0, sent, own), seen.wrong_acquires(0, sent), seen.wrong_times(0, sent, own)];
    let wrong = wrong.into_iter().flatten().map(str::to_owned);
    wrong.chain(seen.wrong_reports(history)).chain(seen.wrong_waits()).collect()
}

fn assert_refused(seen: fn() -> Seen, changes: &[Change]) {
    assert_eq!(wrong(&seen(), &history()), Vec::<String>::new());
    for (number, change) in changes.iter().enumerate() {
        let mut seen = seen();
        change(&mut seen);
        assert!(!wrong(&seen, &history()).is_empty(), "change {number}: {seen:?}");
    }
}

#[test]
fn a_report_that_differs_from_its_request_is_refused() {
    assert_refused(
        completed,
        &[
            |seen| seen.reports.clear(),
            |seen| seen.reports.push(seen.reports[0].clone()),
            |seen| seen.reports[0].outcome = RequestOutcome::NotRecorded,
            |seen| seen.reports[0].status = Some(200),
            |seen| seen.reports[0].method = "PATCH".to_owned(),
            |seen| seen.reports[0].client_key = None,
            |seen| seen.reports[0].fence = Some(1),
            |seen| seen.reports[0].attempts = Some(2),
            |seen| seen.reports[0].is_recovery = true,
            |seen| seen.reports[0].duration = 19 * MS,
            |seen| seen.reports[0].duration = 51 * MS,
        ],
    );
    assert!(!wrong(&completed(), &unsettled()).is_empty(), "a completion that was not recorded");
}

#[test]
fn an_answer_that_the_store_did_not_give_is_refused() {
    assert_refused(
        in_flight,
        &[
            |seen| seen.asked[0].told = Told::Mismatch,
            |seen| seen.asked[0].keeping.max_attempts = 200,
            |seen| seen.reports[0].outcome = RequestOutcome::Mismatch,
            |seen| seen.sent[0].answered = Some(answered(problem(422, "mismatch"))),
            |seen| seen.sent[0].answered = Some(answered(problem(503, "not-started"))),
        ],
    );
    let not_kept = || {
        let mut seen = not_run(done(), NOT_KEPT, RequestOutcome::ResponseNotKept);
        (seen.reports[0].fence, seen.reports[0].attempts) = (Some(fence(1)), Some(1));
        seen
    };
    assert_refused(
        not_kept,
        &[
            |seen| seen.asked[0].told = CONFLICT,
            |seen| seen.asked.push(asked(seen, 11 * MS, 12 * MS, done())),
            |seen| (seen.sent[0].kind.has_objects, seen.read) = (true, BTreeSet::from([0])),
            |seen| seen.reports[0].fence = None,
        ],
    );
}

#[test]
fn a_store_out_of_reach_is_awaited_as_long_as_the_service_says() {
    let outage = || {
        let mut seen = not_run(Told::Unavailable, "store-unavailable", RequestOutcome::StoreUnavailable);
        seen.sent[0].answered = Some(answered(problem(409, "store-unavailable")));
        seen
    };
    assert_refused(
        outage,
        &[
            |seen| seen.asked.clear(),
            |seen| seen.sent[0].kind.store_outage = StoreOutage::RunUnprotected,
            |seen| {
                seen.asked.push(asked(seen, 11 * MS, 12 * MS, Told::Mismatch));
                seen.sent[0].answered.as_mut().unwrap().after = 200 * MS;
            },
        ],
    );
}

#[test]
fn a_run_that_goes_on_without_its_client_is_refused() {
    let goes_on = |seen: &mut Seen| {
        (seen.sent[0].kind.spawns, seen.sent[0].answered) = (false, None);
        seen.sent[0].left_at = Some(seen.sent[0].at);
        seen.runs[0].over_at = Some(seen.sent[0].at + 150 * MS);
    };
    assert_refused(completed, &[goes_on]);
}

#[test]
fn a_request_that_ran_without_the_store_had_to() {
    let unprotected = || {
        let mut seen = not_run(Told::Unavailable, "failed", RequestOutcome::Unprotected);
        let (request, from) = (0, seen.sent[0].at + 20 * MS);
        seen.unprotected = vec![UnprotectedRun { request, from, ended: Some(Ending::Panic) }];
        seen.sent[0].kind.store_outage = StoreOutage::RunUnprotected;
        seen.sent[0].answered =
            Some(Answered { answer: problem(500, "failed"), key: seen.sent[0].key.clone(), after: 50 * MS });
        seen.reports[0].status = Some(500);
        seen
    };
    assert_refused(
        unprotected,
        &[|seen| seen.asked[0].told = Told::OtherValue, |seen| seen.reports[0].outcome = RequestOutcome::Uncertain],
    );
    let changes: [Change; 3] = [
        |seen| seen.unprotected[0].ended = None,
        |seen| seen.unprotected[0].ended = Some(Ending::Answer(201)),
        |seen| {
            seen.sent[0].deadline = Some(Deadline::within(Duration::ZERO));
            seen.unprotected[0].from += 50 * MS;
        },
    ];
    let answer = |seen: &Seen| seen.wrong_answer(0, &seen.sent[0], None, &history());
    assert_eq!(answer(&unprotected()), None);
    for change in changes {
        let mut seen = unprotected();
        change(&mut seen);
        assert!(answer(&seen).is_some(), "{seen:?}");
    }
}

#[test]
fn a_wait_that_lasts_too_long_or_spins_is_refused() {
    let spins = |seen: &mut Seen| seen.asked = vec![seen.asked[0].clone(); 6];
    assert_refused(in_flight, &[spins]);
    let waiting = |last: Duration| {
        let mut seen = in_flight();
        seen.sent[0].kind = KINDS[2];
        seen.asked.push(asked(&seen, MS + last, MS + last, CONFLICT));
        for number in 1..4 {
            seen.sent.push(seen.sent[0].clone());
            let again = seen.asked[..2].iter().map(|asked| Asked { request: number, ..asked.clone() });
            seen.asked.extend(again.collect::<Vec<_>>());
        }
        seen.wrong_waits()
    };
    assert_eq!(waiting(KINDS[2].wait), None);
    assert!(waiting(KINDS[2].wait + 20 * MS).is_some());
}

#[test]
fn the_names_of_outcomes_are_those_of_the_documentation() {
    assert_eq!(in_logs(RequestOutcome::InFlight), "IN_FLIGHT");
}
