//! Queue, attempts, wire and store: everything that can happen, one step at a time.

use harness::with;
use stateright::Property;

use super::scripts::{Answer, Asker, Claim, Failure, Guard, Record, Scripts, State};

pub(super) const ATTEMPTS: usize = 4;
const MESSAGES: usize = 2;

/// Ids of one message: its first, and the one it has after a redrive.
const IDS: u8 = 2;

const CLEAN: Failure = Failure { uncertain: false, permanent: false };
const UNCERTAIN: Failure = Failure { uncertain: true, permanent: false };
const PERMANENT: Failure = Failure { uncertain: false, permanent: true };
const PARKED: Failure = Failure { uncertain: true, permanent: true };

/// What is checked, and within which bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protocol {
    pub(super) scripts: Scripts,
    /// Faults in one trace, of whatever kinds.
    pub(super) faults: u8,
    pub(super) max_receives: u8,
    /// Attempts in one trace, by both messages together.
    pub(super) attempts: usize,
    /// A recovery runs nothing.
    pub(super) park: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    record: Option<Record>,
    /// The record before the newest write, and before the one before: what a replica may have.
    behind: [Option<Record>; 2],
    clock: u8,
    /// By fence: leases that have ended by the store's clock.
    ended: u16,
    messages: [Message; MESSAGES],
    attempts: [Attempt; ATTEMPTS],
    faults_left: u8,
    seen: Seen,
}

/// What nobody in the protocol knows, but a judge does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    /// By payload.
    effects: [u8; MESSAGES],
    /// Claims taken over while their owner went on, because their lease had ended early.
    early: u8,
    /// Losses of state that a later acquire met.
    lost: u8,
    /// Attempts that ended, or could not tell, between their effect and its record.
    cut_off: u8,
    /// A loss of state that no acquire has met, and no owner has healed.
    loss_pending: bool,
    any_loss: bool,
    jumped_back: bool,
    highest_fence: u8,
    last_owner: Option<u8>,
    broken: Broken,
}

/// Promises about single steps.
#[derive(Clone, Copy, Debug)]
pub(super) enum Promise {
    CompletedStays,
    FenceGrows,
    StaleOwnerChangesNothing,
    ConflictIsWithSomebodyElse,
    ConflictsDeadLetterNothing,
    RunAfterAnEffectIsARecovery,
    FailedForGoodStaysFailed,
    ReleasedIsNotCounted,
}

/// Of the promises those that were broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Broken(u16);

impl Broken {
    fn if_so(&mut self, broken: bool, promise: Promise) {
        self.0 |= u16::from(broken) << promise as u8;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Message {
    payload: u8,
    id: u8,
    receives: u8,
    place: Place,
    wait: Wait,
    /// The attempt that its latest receive started: the only one whose receipt handle is current.
    latest: Option<u8>,
    /// Conflicts, as long as no receive under this id ended otherwise.
    conflicts: Option<u8>,
    /// By fence: the leases met.
    met: u16,
    twice: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Queue,
    DeadLetterQueue,
    Deleted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wait {
    No,
    /// The queue's visibility timeout, which is longer than the function's.
    Timeout,
    /// The end of this lease of this owner.
    Lease(u8, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    phase: Phase,
    message: u8,
    id: u8,
    payload: u8,
    claim: Option<Claim>,
    failure: Failure,
    on_the_wire: [bool; 4],
    paused: bool,
    /// Another has claimed since, and the cause of that is counted.
    superseded: bool,
    /// Its effect took place and is not recorded.
    unrecorded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Unborn,
    Acquiring(Option<Answer>),
    Working,
    Effected,
    Completing(Option<Answer>),
    Failing(Option<Answer>),
    /// Nothing ran: the claim, or the acquire whose reply is missing, is given back.
    Releasing(Option<Answer>),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Acquire,
    Complete,
    Fail,
    Release,
}

const CALLS: [Call; 4] = [Call::Acquire, Call::Complete, Call::Fail, Call::Release];

/// Numbers are those of attempts, messages and fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Deliver(u8),
    DeadLetter(u8),
    Redrive(u8),
    Execute(u8, Call),
    Hear(u8),
    TakeEffect(u8),
    ReportDone(u8),
    LeaseEnds(u8),
    Fault(Fault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// While it is in flight, or after it was deleted.
    DeliverAgain(u8),
    /// The script runs, and the request is still there to run later.
    ExecuteTwice(u8, Call),
    /// And so it is asked again.
    ExecuteAndLoseTheReply(u8, Call),
    /// No answer until there was no time left; the request may be on its way still.
    GiveUp(u8),
    WorkFails(u8, Failure),
    /// What the work needs is out of reach, or there is no time left to start it.
    NothingRuns(u8),
    Crash(u8),
    /// It goes on beyond its deadline.
    Pause(u8),
    ClockJumpsForward,
    ClockJumpsBack,
    Evict,
    /// The replica takes over that lacks the newest write, or the two newest.
    FailOver(u8),
}

impl stateright::Model for Protocol {
    type State = World;
    type Action = Action;

    /// Two messages with one key: a producer's second send of the same, or another payload.
    fn init_states(&self) -> Vec<World> {
        [0, 1].map(|other_payload| World::new([0, other_payload], self.faults)).into()
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        // Nothing can come between an attempt and its claim that could not come right after: a crash,
        // a pause, the lease's end. So these replies are heard first, which spares a sixth of the states.
        let heard_first = (0..).zip(&world.attempts).find(|(_, attempt)| attempt.hears_of_its_claim());
        if let Some((at, _)) = heard_first {
            actions.push(Action::Hear(at));
            return;
        }
        world.deliveries(self, actions);
        for at in 0..ATTEMPTS {
            world.moves_of(at, self, actions);
        }
        actions.extend(world.ending_leases().map(Action::LeaseEnds));
        if world.faults_left > 0 {
            let mut faults = Vec::new();
            world.faults_of_the_store(&mut faults);
            for at in 0..ATTEMPTS {
                world.faults_of(at, self, &mut faults);
            }
            world.repeated_deliveries(self, &mut faults);
            actions.extend(faults.into_iter().map(Action::Fault));
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut world = *world;
        match action {
            Action::Deliver(message) => world.deliver(message, self),
            Action::DeadLetter(message) => world.dead_letter(message, self),
            Action::Redrive(message) => world.redrive(message),
            Action::Execute(at, call) => world.execute(at, call, true, false, self),
            Action::Hear(at) => world.hear(at, self),
            Action::TakeEffect(at) => world.take_effect(at),
            Action::ReportDone(at) => world.report_done(at),
            Action::LeaseEnds(fence) => world.lease_ends(fence),
            Action::Fault(fault) => {
                world.faults_left -= 1;
                world.suffer(fault, self);
            }
        }
        world.forget_what_no_longer_matters();
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        super::properties(self)
    }
}

impl World {
    fn new(payloads: [u8; MESSAGES], faults: u8) -> Self {
        let message = |at: u8| Message {
            payload: payloads[usize::from(at)],
            id: at * IDS,
            receives: 0,
            place: Place::Queue,
            wait: Wait::No,
            latest: None,
            conflicts: Some(0),
            met: 0,
            twice: false,
        };
        Self {
            record: None,
            behind: [None; 2],
            clock: 0,
            ended: 0,
            messages: [message(0), message(1)],
            attempts: [Attempt::new(Phase::Unborn); ATTEMPTS],
            faults_left: faults,
            seen: Seen::default(),
        }
    }

    // What may happen next.

    fn deliveries(&self, protocol: &Protocol, actions: &mut Vec<Action>) {
        let may_start = self.unborn(protocol).is_some();
        for (number, message) in (0..).zip(&self.messages) {
            match message.place {
                // The two messages are alike until one is delivered, so let it be the first.
                Place::Queue if number > 0 && self.messages[0].receives == 0 && self.messages[0].id == 0 => {}
                Place::Queue if !self.is_visible(number) => {}
                Place::Queue if message.receives >= protocol.max_receives => actions.push(Action::DeadLetter(number)),
                Place::Queue if may_start => actions.push(Action::Deliver(number)),
                Place::DeadLetterQueue if may_start && message.id % IDS + 1 < IDS => {
                    actions.push(Action::Redrive(number));
                }
                Place::Queue | Place::DeadLetterQueue | Place::Deleted => {}
            }
        }
    }

    fn is_visible(&self, message: u8) -> bool {
        match self.messages[usize::from(message)].wait {
            Wait::No => true,
            Wait::Timeout => self.attempts.iter().all(|attempt| attempt.message != message || attempt.lets_time_pass()),
            Wait::Lease(..) => false,
        }
    }

    fn moves_of(&self, at: usize, protocol: &Protocol, actions: &mut Vec<Action>) {
        let (attempt, number) = (&self.attempts[at], u8::try_from(at).unwrap());
        for call in CALLS {
            if attempt.on_the_wire[call as usize] {
                actions.push(Action::Execute(number, call));
            }
        }
        match attempt.phase {
            Phase::Acquiring(Some(_))
            | Phase::Completing(Some(_))
            | Phase::Failing(Some(_))
            | Phase::Releasing(Some(_)) => actions.push(Action::Hear(number)),
            Phase::Working if protocol.park && attempt.is_recovery() => {}
            Phase::Working => actions.push(Action::TakeEffect(number)),
            Phase::Effected => actions.push(Action::ReportDone(number)),
            Phase::Acquiring(None)
            | Phase::Completing(None)
            | Phase::Failing(None)
            | Phase::Releasing(None)
            | Phase::Unborn
            | Phase::Over => {}
        }
    }

    fn ending_leases(&self) -> impl Iterator<Item = u8> + '_ {
        let live = self.leases().filter(|(fence, _)| !self.has_ended(*fence));
        live.filter(|(_, owner)| self.attempts[usize::from(*owner)].lets_time_pass()).map(|(fence, _)| fence)
    }

    /// Fence and owner of each lease that may still matter to somebody.
    fn leases(&self) -> impl Iterator<Item = (u8, u8)> + '_ {
        let records = [self.record, self.behind[0], self.behind[1]].into_iter().flatten();
        let held =
            records.filter(|record| record.state == State::Processing).map(|record| (record.fence, record.owner));
        held.chain(self.messages.iter().filter_map(|message| match message.wait {
            Wait::Lease(fence, owner) => Some((fence, owner)),
            Wait::No | Wait::Timeout => None,
        }))
    }

    fn faults_of_the_store(&self, faults: &mut Vec<Fault>) {
        if self.record.is_some() {
            faults.push(Fault::Evict);
        }
        for (replica, behind) in (0..).zip(self.behind) {
            if behind != self.record && (replica == 0 || behind != self.behind[0]) {
                faults.push(Fault::FailOver(replica));
            }
        }
        if self.leases().any(|(fence, _)| !self.has_ended(fence)) {
            faults.push(Fault::ClockJumpsForward);
        }
        if self.clock > 0 && !self.seen.jumped_back {
            faults.push(Fault::ClockJumpsBack);
        }
    }

    fn faults_of(&self, at: usize, protocol: &Protocol, faults: &mut Vec<Fault>) {
        let (attempt, number) = (&self.attempts[at], u8::try_from(at).unwrap());
        for call in CALLS {
            if attempt.on_the_wire[call as usize] {
                faults.push(Fault::ExecuteTwice(number, call));
                if attempt.waits_for(call) {
                    faults.push(Fault::ExecuteAndLoseTheReply(number, call));
                }
            }
        }
        match attempt.phase {
            Phase::Unborn | Phase::Over => return,
            Phase::Acquiring(None) | Phase::Completing(None) | Phase::Failing(None) | Phase::Releasing(None) => {
                faults.push(Fault::GiveUp(number));
            }
            Phase::Working if protocol.park && attempt.is_recovery() => {
                // No time was left to start it; else it is parked.
                faults.push(Fault::NothingRuns(number));
                faults.push(Fault::WorkFails(number, PARKED));
            }
            Phase::Working => {
                faults.extend([CLEAN, UNCERTAIN, PERMANENT].map(|failure| Fault::WorkFails(number, failure)));
                faults.push(Fault::NothingRuns(number));
            }
            Phase::Effected => faults.push(Fault::WorkFails(number, UNCERTAIN)),
            Phase::Acquiring(Some(_))
            | Phase::Completing(Some(_))
            | Phase::Failing(Some(_))
            | Phase::Releasing(Some(_)) => {}
        }
        faults.push(Fault::Crash(number));
        if !attempt.paused {
            faults.push(Fault::Pause(number));
        }
    }

    fn repeated_deliveries(&self, protocol: &Protocol, faults: &mut Vec<Fault>) {
        if self.unborn(protocol).is_none() {
            return;
        }
        for (number, message) in (0..).zip(&self.messages) {
            if message.receives > 0 && message.place != Place::DeadLetterQueue {
                faults.push(Fault::DeliverAgain(number));
            }
        }
    }

    fn unborn(&self, protocol: &Protocol) -> Option<usize> {
        self.attempts[..protocol.attempts].iter().position(|attempt| attempt.phase == Phase::Unborn)
    }

    fn has_ended(&self, fence: u8) -> bool {
        self.ended & 1 << fence != 0
    }

    // What then happens: the queue.

    fn deliver(&mut self, number: u8, protocol: &Protocol) {
        let at = self.unborn(protocol).unwrap();
        let in_flight = self.attempts.iter().any(|attempt| attempt.message == number && attempt.is_alive());
        self.messages[usize::from(number)].twice |= in_flight;
        let message = &mut self.messages[usize::from(number)];
        message.receives += 1;
        message.latest = Some(u8::try_from(at).unwrap());
        message.wait = Wait::Timeout;
        self.attempts[at] = with!(
            Attempt::new(Phase::Acquiring(None)),
            message = number,
            id = message.id,
            payload = message.payload,
            on_the_wire = [true, false, false, false]
        );
    }

    fn dead_letter(&mut self, number: u8, protocol: &Protocol) {
        let message = &mut self.messages[usize::from(number)];
        message.place = Place::DeadLetterQueue;
        // As many conflicts as receives, and fewer leases met: it was sent on to the same lease again.
        let by_conflicts = message.conflicts == Some(protocol.max_receives);
        let met = u8::try_from(message.met.count_ones()).unwrap();
        let excused = message.twice || self.seen.jumped_back;
        let to_the_same_lease = by_conflicts && met < protocol.max_receives && !excused;
        self.seen.broken.if_so(to_the_same_lease, Promise::ConflictsDeadLetterNothing);
    }

    fn redrive(&mut self, number: u8) {
        let message = &mut self.messages[usize::from(number)];
        let Message { payload, id, .. } = *message;
        *message = with!(Self::new([payload; MESSAGES], 0).messages[0], id = id + 1);
    }

    /// What the attempt tells the queue. A message that has another id by now hears nothing.
    fn tell(&mut self, at: usize, told: Told) {
        let Attempt { message, id, .. } = self.attempts[at];
        self.attempts[at].phase = Phase::Over;
        let message = &mut self.messages[usize::from(message)];
        if message.id != id || message.place != Place::Queue {
            return;
        }
        let is_latest = message.latest == u8::try_from(at).ok();
        match told {
            Told::Done => message.place = Place::Deleted,
            Told::Conflict(fence, owner) => {
                message.conflicts = message.conflicts.map(|conflicts| conflicts + 1);
                message.met |= 1 << fence;
                if is_latest {
                    message.wait = Wait::Lease(fence, owner);
                }
            }
            Told::Again => {
                message.conflicts = None;
                if is_latest {
                    message.wait = Wait::No;
                }
            }
            Told::Nothing => message.conflicts = None,
        }
    }

    // The wire and the store.

    fn execute(&mut self, at: u8, call: Call, heard: bool, stays: bool, protocol: &Protocol) {
        let at = usize::from(at);
        let attempt = self.attempts[at];
        let asker = Asker { owner: u8::try_from(at).unwrap(), payload: attempt.payload, message: attempt.id };
        let (before, scripts) = (self.record, protocol.scripts);
        let now = self.clock + 1;
        let (answer, written) = match call {
            Call::Acquire => scripts.acquire(before, asker, now, |fence| self.has_ended(fence)),
            Call::Complete => scripts.complete(before, asker, attempt.claim.unwrap()),
            Call::Fail => scripts.fail(before, asker, attempt.claim.unwrap(), attempt.failure),
            Call::Release => scripts.release(before, asker, attempt.claim),
        };
        self.judge(at, call, answer, written);
        if written.is_some() {
            self.write(written);
        }
        let attempt = &mut self.attempts[at];
        attempt.on_the_wire[call as usize] = stays;
        if heard && attempt.waits_for(call) {
            attempt.phase = match call {
                Call::Acquire => Phase::Acquiring(Some(answer)),
                Call::Complete => Phase::Completing(Some(answer)),
                Call::Fail => Phase::Failing(Some(answer)),
                Call::Release => Phase::Releasing(Some(answer)),
            };
        }
    }

    fn write(&mut self, record: Option<Record>) {
        self.behind = [self.record, self.behind[0]];
        self.record = record;
    }

    /// Holds one run of a script against what is promised, before its write.
    fn judge(&mut self, at: usize, call: Call, answer: Answer, written: Option<Record>) {
        let owner = u8::try_from(at).unwrap();
        let changes = written.is_some() && written != self.record;
        if let Some(before) = self.record {
            let same_completion =
                written.is_none_or(|after| after.state == State::Completed && after.owner == before.owner);
            let uncompleted = before.state == State::Completed && !same_completion;
            self.seen.broken.if_so(uncompleted, Promise::CompletedStays);
            let stale = match call {
                Call::Acquire => before.state == State::Failed && before.owner == owner,
                Call::Complete | Call::Fail | Call::Release => {
                    before.owner != owner || before.state != State::Processing
                }
            };
            // What is done replaces a failure of the same payload, and a late doubt marks it.
            let gives_way = before.state == State::Failed
                && before.payload == self.attempts[at].payload
                && match call {
                    Call::Complete => true,
                    Call::Fail | Call::Release => written == Some(Record { uncertain: true, ..before }),
                    Call::Acquire => false,
                };
            let stale = stale && !gives_way;
            self.seen.broken.if_so(stale && changes, Promise::StaleOwnerChangesNothing);
            let with_itself = matches!(answer, Answer::Conflict(_)) && before.owner == owner;
            self.seen.broken.if_so(with_itself, Promise::ConflictIsWithSomebodyElse);
        }
        match call {
            Call::Acquire => {
                if let (Answer::Acquired(claim), Some(_)) = (answer, written) {
                    self.judge_claim(owner, claim);
                }
            }
            Call::Release => {
                let counted = self.record.is_some_and(|before| {
                    before.owner == owner
                        && before.state == State::Processing
                        && written.is_some_and(|after| after.attempts >= before.attempts)
                });
                self.seen.broken.if_so(counted, Promise::ReleasedIsNotCounted);
                // The doubt is not lost with the record, as after a failure of the same owner.
                if self.record.is_none() && written.is_some() && self.seen.last_owner == Some(owner) {
                    self.seen.loss_pending = false;
                }
            }
            Call::Complete | Call::Fail => {
                let alone = self.record.is_none_or(|record| record.owner == owner);
                if alone && (call == Call::Complete || self.seen.last_owner == Some(owner)) {
                    self.seen.loss_pending = false;
                }
                if call == Call::Complete && matches!(answer, Answer::Recorded) {
                    self.attempts[at].unrecorded = false;
                }
            }
        }
    }

    fn judge_claim(&mut self, owner: u8, claim: Claim) {
        let asks = self.attempts[usize::from(owner)];
        let seen = &mut self.seen;
        let excused = seen.jumped_back && seen.any_loss;
        seen.broken.if_so(claim.fence <= seen.highest_fence && !excused, Promise::FenceGrows);
        seen.highest_fence = seen.highest_fence.max(claim.fence);
        self.clock += 1;

        let nothing_happened = seen.effects == [0; MESSAGES] || seen.lost > 0 || seen.loss_pending;
        seen.broken.if_so(!claim.recovery && !nothing_happened, Promise::RunAfterAnEffectIsARecovery);

        if let Some(record) = self.record {
            let for_good = record.state == State::Failed && record.permanent;
            seen.broken.if_so(for_good && record.message == asks.id, Promise::FailedForGoodStaysFailed);
        }

        let previous = seen.last_owner.replace(owner).map(usize::from);
        let goes_on = previous.filter(|at| *at != usize::from(owner) && self.attempts[*at].is_at_it());
        let took_over =
            self.record.filter(|record| record.state == State::Processing && self.ended & 1 << record.fence != 0);
        let early = goes_on.is_some() && took_over.map(|record| usize::from(record.owner)) == goes_on;
        if early {
            seen.early += 1;
        } else if seen.loss_pending {
            seen.lost += 1;
            seen.loss_pending = false;
        } else {
            return;
        }
        if let Some(at) = goes_on {
            self.attempts[at].superseded = true;
        }
    }

    // The attempts.

    fn hear(&mut self, at: u8, protocol: &Protocol) {
        let at = usize::from(at);
        let has = |guard| protocol.scripts.has(guard);
        let told = match self.attempts[at].phase {
            Phase::Acquiring(Some(Answer::Acquired(claim))) => {
                self.attempts[at].claim = Some(claim);
                self.attempts[at].phase = Phase::Working;
                return;
            }
            Phase::Acquiring(Some(Answer::Conflict(fence))) if has(Guard::ConflictWaits) => {
                Told::Conflict(fence, self.owner_of(fence, at))
            }
            Phase::Acquiring(Some(Answer::Conflict(fence))) => {
                self.tell(at, Told::Conflict(fence, 0));
                self.messages[usize::from(self.attempts[at].message)].wait = Wait::No;
                return;
            }
            Phase::Failing(Some(Answer::Lost(Some(State::Completed)))) if has(Guard::LostAfterFailure) => Told::Again,
            Phase::Acquiring(Some(Answer::Duplicate))
            | Phase::Completing(Some(Answer::Recorded | Answer::Lost(Some(State::Completed))))
            | Phase::Failing(Some(Answer::Lost(Some(State::Completed)))) => Told::Done,
            Phase::Acquiring(Some(_)) | Phase::Failing(Some(Answer::Recorded)) | Phase::Releasing(Some(_)) => {
                Told::Again
            }
            Phase::Completing(_) | Phase::Failing(_) if !has(Guard::LostIsNoSuccess) => Told::Done,
            _ => Told::Nothing,
        };
        self.tell(at, told);
    }

    /// The owner of a lease that was met a moment ago; whoever, where it is known no more.
    fn owner_of(&self, fence: u8, otherwise: usize) -> u8 {
        let owner = self.leases().find(|(known, _)| *known == fence).map(|(_, owner)| owner);
        owner.unwrap_or_else(|| u8::try_from(otherwise).unwrap())
    }

    fn take_effect(&mut self, at: u8) {
        let attempt = &mut self.attempts[usize::from(at)];
        attempt.phase = Phase::Effected;
        attempt.unrecorded = true;
        self.seen.effects[usize::from(attempt.payload)] += 1;
    }

    fn report_done(&mut self, at: u8) {
        let attempt = &mut self.attempts[usize::from(at)];
        attempt.phase = Phase::Completing(None);
        attempt.on_the_wire[Call::Complete as usize] = true;
    }

    fn work_fails(&mut self, at: u8, failure: Failure, protocol: &Protocol) {
        let at = usize::from(at);
        self.cut_off(at);
        let attempt = &mut self.attempts[at];
        let claim = attempt.claim.unwrap();
        let was_last = claim.number >= protocol.scripts.max_attempts;
        let stays = claim.recovery && protocol.scripts.has(Guard::RecoveryStays);
        attempt.failure = Failure { uncertain: failure.uncertain || stays, permanent: failure.permanent || was_last };
        attempt.phase = Phase::Failing(None);
        attempt.on_the_wire[Call::Fail as usize] = true;
    }

    fn release(&mut self, at: usize) {
        let attempt = &mut self.attempts[at];
        attempt.phase = Phase::Releasing(None);
        attempt.on_the_wire[Call::Release as usize] = true;
    }

    /// It will not record its effect any more, or does not know of it.
    fn cut_off(&mut self, at: usize) {
        let attempt = &mut self.attempts[at];
        if attempt.unrecorded && !attempt.superseded {
            self.seen.cut_off += 1;
        }
        attempt.unrecorded = false;
    }

    // Time and faults.

    fn lease_ends(&mut self, fence: u8) {
        self.ended |= 1 << fence;
        for message in &mut self.messages {
            if matches!(message.wait, Wait::Lease(waited_for, _) if waited_for == fence) {
                message.wait = Wait::No;
            }
        }
    }

    fn suffer(&mut self, fault: Fault, protocol: &Protocol) {
        match fault {
            Fault::DeliverAgain(message) => {
                self.messages[usize::from(message)].twice = true;
                self.deliver(message, protocol);
            }
            Fault::ExecuteTwice(at, call) => self.execute(at, call, true, true, protocol),
            Fault::ExecuteAndLoseTheReply(at, call) => self.execute(at, call, false, true, protocol),
            Fault::GiveUp(at) => {
                let at = usize::from(at);
                if matches!(self.attempts[at].phase, Phase::Acquiring(_)) {
                    // Executed or not: it is given back.
                    return self.release(at);
                }
                let nothing_ran = matches!(self.attempts[at].phase, Phase::Releasing(_));
                self.cut_off(at);
                let unknown = nothing_ran || protocol.scripts.has(Guard::UnknownIsNoSuccess);
                self.tell(at, if unknown { Told::Nothing } else { Told::Done });
            }
            Fault::NothingRuns(at) => self.release(usize::from(at)),
            Fault::WorkFails(at, failure) => self.work_fails(at, failure, protocol),
            Fault::Crash(at) => {
                self.cut_off(usize::from(at));
                self.tell(usize::from(at), Told::Nothing);
            }
            Fault::Pause(at) => self.attempts[usize::from(at)].paused = true,
            Fault::ClockJumpsForward => {
                for (fence, _) in self.leases().collect::<Vec<_>>() {
                    self.lease_ends(fence);
                }
            }
            Fault::ClockJumpsBack => {
                self.clock = 0;
                self.seen.jumped_back = true;
                // The queue counts on: it sends again what waits for a lease that now lasts longer.
                for message in &mut self.messages {
                    if matches!(message.wait, Wait::Lease(..)) {
                        message.wait = Wait::No;
                    }
                }
            }
            Fault::Evict => {
                self.write(None);
                self.lose();
            }
            Fault::FailOver(replica) => {
                self.record = self.behind[usize::from(replica)];
                self.behind = [if replica == 0 { self.behind[1] } else { None }, None];
                self.lose();
            }
        }
    }

    fn lose(&mut self) {
        self.seen.any_loss = true;
        self.seen.loss_pending = true;
    }

    /// States that differ in nothing that can still matter are made one.
    fn forget_what_no_longer_matters(&mut self) {
        if self.faults_left == 0 {
            self.behind = [None; 2];
        }
        let known = self.leases().fold(0, |known, (fence, _)| known | 1 << fence);
        self.ended &= known;
        for attempt in &mut self.attempts {
            if attempt.phase != Phase::Over {
                continue;
            }
            if attempt.on_the_wire == [false; 4] {
                *attempt = Attempt::new(Phase::Over);
                continue;
            }
            (attempt.paused, attempt.superseded, attempt.unrecorded) = (false, false, false);
        }
        for message in &mut self.messages {
            if message.place != Place::Queue || message.conflicts.is_none() {
                (message.conflicts, message.met, message.twice) = (None, 0, false);
            }
            if message.place != Place::Queue {
                (message.wait, message.latest, message.receives) = (Wait::No, None, 1);
            }
        }
    }

    // What is promised of every state.

    pub(super) fn nothing_is_deleted_without_its_effect(&self) -> bool {
        let deleted = self.messages.iter().filter(|message| message.place == Place::Deleted);
        deleted.into_iter().all(|message| self.seen.effects[usize::from(message.payload)] > 0)
    }

    pub(super) fn nothing_is_repeated_without_a_cause(&self, protocol: &Protocol) -> bool {
        let Seen { early, lost, cut_off, .. } = self.seen;
        // What is parked runs nothing, so only what the store has forgotten can be repeated.
        let causes = if protocol.park { lost } else { early + lost + cut_off };
        self.effects() <= 1 + causes
    }

    pub(super) fn keeps(&self, promise: Promise) -> bool {
        self.seen.broken.0 & 1 << promise as u8 == 0
    }

    // What has to be possible, or the model is empty.

    pub(super) fn all_is_done(&self) -> bool {
        self.messages.iter().all(|message| message.place == Place::Deleted)
    }

    pub(super) fn one_is_redriven_and_done(&self) -> bool {
        self.messages.iter().any(|message| message.id % IDS > 0 && message.place == Place::Deleted)
    }

    /// By its causes: early ends, losses, attempts cut off.
    pub(super) fn repeats_for(&self, causes: [u8; 3]) -> bool {
        [self.seen.early, self.seen.lost, self.seen.cut_off] == causes && self.effects() > 1
    }

    fn effects(&self) -> u8 {
        self.seen.effects.iter().sum()
    }
}

/// What an attempt tells the queue at its end.
#[derive(Clone, Copy)]
enum Told {
    Done,
    Conflict(u8, u8),
    Again,
    Nothing,
}

impl Attempt {
    fn new(phase: Phase) -> Self {
        Self {
            phase,
            message: 0,
            id: 0,
            payload: 0,
            claim: None,
            failure: CLEAN,
            on_the_wire: [false; 4],
            paused: false,
            superseded: false,
            unrecorded: false,
        }
    }

    /// The call that it waits on.
    fn asks(&self) -> Call {
        match self.phase {
            Phase::Completing(_) => Call::Complete,
            Phase::Failing(_) => Call::Fail,
            Phase::Releasing(_) => Call::Release,
            _ => Call::Acquire,
        }
    }

    fn waits_for(&self, call: Call) -> bool {
        match self.phase {
            Phase::Acquiring(None) | Phase::Completing(None) | Phase::Failing(None) | Phase::Releasing(None) => {
                self.asks() == call
            }
            _ => false,
        }
    }

    fn hears_of_its_claim(&self) -> bool {
        matches!(self.phase, Phase::Acquiring(Some(Answer::Acquired(_))))
    }

    fn is_recovery(&self) -> bool {
        self.claim.is_some_and(|claim| claim.recovery)
    }

    /// Whether an effect of it may come, or is to be recorded.
    fn is_at_it(&self) -> bool {
        match self.phase {
            Phase::Acquiring(_) | Phase::Working | Phase::Effected | Phase::Completing(_) => true,
            Phase::Failing(_) | Phase::Releasing(_) | Phase::Unborn | Phase::Over => false,
        }
    }

    /// An invocation is killed before its lease ends and its message is visible again, unless it
    /// was paused.
    fn lets_time_pass(&self) -> bool {
        self.paused || !self.is_alive()
    }

    fn is_alive(&self) -> bool {
        !matches!(self.phase, Phase::Unborn | Phase::Over)
    }
}
