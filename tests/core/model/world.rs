//! The state of the model: queue, attempts, requests in flight and store. Each action is one step.

mod attempts;
mod choices;
mod faults;
mod properties;
mod queue;
mod store;

use harness::with;
use record_model::{Answer, Caller, Claim, Failure, Guard, Record, Scripts, State};
use stateright::Property;

pub(super) const ATTEMPTS: usize = 4;
const MESSAGES: usize = 2;

/// Number of messageIds of one message: its first, and another after a redrive.
const IDS: u8 = 2;

const CLEAN: Failure = Failure { uncertain: false, permanent: false };
const UNCERTAIN: Failure = Failure { uncertain: true, permanent: false };
const PERMANENT: Failure = Failure { uncertain: false, permanent: true };
const PARKED: Failure = Failure { uncertain: true, permanent: true };

/// The protocol to check, and the bounds of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protocol {
    pub(super) scripts: Scripts,
    /// Number of faults in one trace.
    pub(super) faults: u8,
    pub(super) max_receives: u8,
    /// Number of attempts in one trace, for both messages together.
    pub(super) attempts: usize,
    /// Whether recoveries are parked.
    pub(super) park: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    record: Option<Record>,
    /// The record before the last write and before the last two writes, which a replica may have.
    behind: [Option<Record>; 2],
    clock: u8,
    /// By fence: whether the lease has ended by the store's clock.
    ended: u16,
    messages: [Message; MESSAGES],
    attempts: [AcquireRequest; ATTEMPTS],
    faults_left: u8,
    ghost: Ghost,
}

/// Ghost state: facts that the protocol cannot observe and the rules refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Ghost {
    /// Number of effects, by payload.
    effects: [u8; MESSAGES],
    /// Claims that were taken over while their owner continued, because the lease ended early.
    early: u8,
    /// Losses of state before a later acquire.
    lost: u8,
    /// Attempts that ended, or did not know their outcome, between their effect and its record.
    cut_off: u8,
    /// Whether state was lost, and no acquire followed and no owner restored it.
    loss_pending: bool,
    any_loss: bool,
    jumped_back: bool,
    highest_fence: u8,
    last_owner: Option<u8>,
    broken: Broken,
}

/// Rules for single steps.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    CompletedStays,
    FenceGrows,
    StaleOwnerChangesNothing,
    NoConflictWithItself,
    ConflictsDeadLetterNothing,
    RunAfterEffectIsRecovery,
    PermanentFailureStays,
    ReleasedIsNotCounted,
}

/// The rules that were broken, as a bit set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Broken(u16);

impl Broken {
    fn set_if(&mut self, broken: bool, promise: Rule) {
        self.0 |= u16::from(broken) << promise as u8;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Message {
    payload: u8,
    id: u8,
    receives: u8,
    state: MessageState,
    wait: Wait,
    /// The attempt of its last receive, the only one with a current receipt handle.
    latest: Option<u8>,
    /// Number of conflicts, while every receive under this id ended in a conflict.
    conflicts: Option<u8>,
    /// By fence: the leases that it was in conflict with.
    leases_met: u16,
    delivered_twice: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum MessageState {
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
struct AcquireRequest {
    phase: Phase,
    message: u8,
    id: u8,
    payload: u8,
    claim: Option<Claim>,
    failure: Failure,
    requests: [bool; 4],
    paused: bool,
    /// Whether another attempt has claimed since, for a cause that is counted.
    superseded: bool,
    /// Whether its effect took place and is not recorded.
    unrecorded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    NotStarted,
    Acquiring(Option<Answer>),
    Working,
    Effected,
    Completing(Option<Answer>),
    Failing(Option<Answer>),
    /// Nothing ran: releases the claim, or the acquire without a reply.
    Releasing(Option<Answer>),
    Ended,
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
    ReceiveReply(u8),
    TakeEffect(u8),
    ReportDone(u8),
    LeaseEnds(u8),
    Fault(Fault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A delivery while the message is in flight, or after it was deleted.
    DeliverAgain(u8),
    /// The script runs, and the request may run again later.
    ExecuteTwice(u8, Call),
    /// The script runs and its reply is lost; the request is repeated.
    ExecuteAndLoseTheReply(u8, Call),
    /// No reply before the deadline. The request may still be in flight.
    TimeOut(u8),
    WorkFails(u8, Failure),
    /// The work does not start: it is unavailable, or no time is left.
    NothingRuns(u8),
    Crash(u8),
    /// The process is frozen and resumes after its deadline.
    Pause(u8),
    ClockJumpsForward,
    ClockJumpsBack,
    Evict,
    /// A failover to the replica without the last write, or without the last two.
    FailOver(u8),
}

impl stateright::Model for Protocol {
    type State = World;
    type Action = Action;

    /// Two messages with one key: with the same payload, or with different ones.
    fn init_states(&self) -> Vec<World> {
        [0, 1].map(|other_payload| World::new([0, other_payload], self.faults)).into()
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        // Whatever can happen before this reply is received can also happen right after it: a crash, a pause, the end
        // of the lease. So these replies are received first, which saves a sixth of the states.
        let claimed = (0..).zip(&world.attempts).find(|(_, attempt)| attempt.has_claim_reply());
        if let Some((at, _)) = claimed {
            actions.push(Action::ReceiveReply(at));
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
            Action::ReceiveReply(at) => world.receive_reply(at, self),
            Action::TakeEffect(at) => world.take_effect(at),
            Action::ReportDone(at) => world.report_done(at),
            Action::LeaseEnds(fence) => world.lease_ends(fence),
            Action::Fault(fault) => {
                world.faults_left -= 1;
                world.apply(fault, self);
            }
        }
        world.normalize();
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
            state: MessageState::Queue,
            wait: Wait::No,
            latest: None,
            conflicts: Some(0),
            leases_met: 0,
            delivered_twice: false,
        };
        Self {
            record: None,
            behind: [None; 2],
            clock: 0,
            ended: 0,
            messages: [message(0), message(1)],
            attempts: [AcquireRequest::new(Phase::NotStarted); ATTEMPTS],
            faults_left: faults,
            ghost: Ghost::default(),
        }
    }
}

/// What an attempt reports to the queue at its end.
#[derive(Clone, Copy)]
enum Disposition {
    Done,
    Conflict(u8, u8),
    Retry,
    None,
}

impl AcquireRequest {
    fn new(phase: Phase) -> Self {
        Self {
            phase,
            message: 0,
            id: 0,
            payload: 0,
            claim: None,
            failure: CLEAN,
            requests: [false; 4],
            paused: false,
            superseded: false,
            unrecorded: false,
        }
    }

    /// The call whose reply it waits for.
    fn call(&self) -> Call {
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
                self.call() == call
            }
            _ => false,
        }
    }

    fn has_claim_reply(&self) -> bool {
        matches!(self.phase, Phase::Acquiring(Some(Answer::Acquired(_))))
    }

    fn is_recovery(&self) -> bool {
        self.claim.is_some_and(|claim| claim.recovery)
    }

    /// Whether it may still take effect or record its effect.
    fn may_take_effect(&self) -> bool {
        match self.phase {
            Phase::Acquiring(_) | Phase::Working | Phase::Effected | Phase::Completing(_) => true,
            Phase::Failing(_) | Phase::Releasing(_) | Phase::NotStarted | Phase::Ended => false,
        }
    }

    /// Whether leases and visibility timeouts may end: an invocation ends before them, unless it was paused.
    fn lets_time_pass(&self) -> bool {
        self.paused || !self.is_alive()
    }

    fn is_alive(&self) -> bool {
        !matches!(self.phase, Phase::NotStarted | Phase::Ended)
    }
}
