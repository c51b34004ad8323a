//! Functions side by side: they take turns, so short that whatever else the machine does is the same to all.

use std::sync::Arc;
use std::time::Duration;

use crate::Fallible;
use crate::events::Events;
use crate::figures::{ms, number};
use crate::function::Function;
use crate::options::Options;
use crate::process::{Invocations, Process};
use crate::server::Server;
use crate::turn::Turn;

/// A function runs for so many times the measured time before it is measured: its connection, its
/// scripts and, where there is one, its compiler are then warm.
const WARM_UP: f64 = 2.0;

/// Fewer invocations make no median.
const LEAST_INVOCATIONS: usize = 5;

/// Of one function: a machine is slow for longer than that, and a hundred invocations of ten messages fit into it.
const TURN: Duration = Duration::from_millis(50);

/// Records in one measurement: with more the events themselves would fill the memory.
const MOST_RECORDS: usize = 200_000;

/// Bytes of all events in one measurement, for the same reason.
const MOST_BYTES: usize = 500_000_000;

/// What one function did in a round.
pub(crate) struct Round {
    /// Its turns with new messages.
    pub(crate) new: Vec<Turn>,
    /// Its turns with the same again.
    pub(crate) duplicates: Vec<Turn>,
    /// KiB.
    pub(crate) peak_memory: Option<f64>,
}

/// Start these functions, warm them up, and let them take turns for about so long as the options say, with new
/// messages and then with the same again. Gives the round of each.
pub(crate) fn round(
    functions: &[&Function],
    server: &mut Server,
    batch: usize,
    body: usize,
    options: &Options,
) -> Fallible<Vec<Round>> {
    server.flush()?;
    let settings = [("REDIS_URL", &*server.url()), ("BATCH_CONCURRENCY", &*batch.to_string())];
    let mut events = Events::new(batch, body);
    let player =
        |function: &&Function| Player::start(function, &settings, batch, options.seconds, |count| events.take(count));
    let mut players = functions.iter().map(player).collect::<Fallible<Vec<_>>>()?;
    server.flush()?;
    let new = take_turns(&mut players, server, options.seconds)?;
    for ((function, player), turns) in functions.iter().zip(&players).zip(&new) {
        let (left, expected) = (Turn::all(turns).left, player.messages());
        if left < expected {
            return Err(format!("{}: {expected} messages left {left} records in Redis", function.name).into());
        }
    }
    let duplicates = take_turns(&mut players, server, options.seconds)?;
    let rounds = players.iter().zip(new).zip(duplicates);
    let round = |((player, new), duplicates): ((&Player, _), _)| Round {
        new,
        duplicates,
        peak_memory: player.process.peak_memory(),
    };
    Ok(rounds.map(round).collect())
}

/// A function that is warm, and the events for its turns.
pub(crate) struct Player {
    process: Process,
    batch: usize,
    events: Vec<Arc<[u8]>>,
    /// Events that it was given in its warm-up.
    before: usize,
}

impl Player {
    /// Start a function that takes turns for about so many seconds, and warm it up.
    pub(crate) fn start(
        function: &Function,
        settings: &[(&str, &str)],
        batch: usize,
        seconds: f64,
        take: impl FnMut(usize) -> Vec<Arc<[u8]>>,
    ) -> Fallible<Self> {
        let mut process = Process::start(function, settings)?;
        let (events, before) = warm_up(&mut process, batch, seconds, take)?;
        Ok(Self { process, batch, events, before })
    }

    /// Messages in its turns.
    fn messages(&self) -> usize {
        self.events.len() * self.batch
    }

    /// Messages in its turns and in its warm-up.
    pub(crate) fn messages_in_all(&self) -> usize {
        self.messages() + self.before * self.batch
    }

    fn take_turn(&mut self, turn: usize, turns: usize, server: &mut Server) -> Fallible<Turn> {
        let Self { process, events, .. } = self;
        let events = &events[events.len() * turn / turns..events.len() * (turn + 1) / turns];
        let before = server.records()?;
        let (Invocations { times, wall, cpu }, load) = server.load_of(|| process.invoke(events))?;
        let left = server.records()?.saturating_sub(before);
        let records = number(events.len() * self.batch);
        Ok(Turn { times: times.into_iter().map(ms).collect(), wall, records, cpu, load, left })
    }
}

/// Let them take turns with their events. Gives the turns of each.
pub(crate) fn take_turns(players: &mut [Player], server: &mut Server, seconds: f64) -> Fallible<Vec<Vec<Turn>>> {
    // In each turn there is an event for each.
    let fewest = players.iter().map(|player| player.events.len()).min().unwrap_or(0);
    let turns = (1..fewest).find(|turns| TURN.as_secs_f64() * number(*turns) >= seconds).unwrap_or(fewest);
    let mut taken: Vec<Vec<Turn>> = players.iter().map(|_| Vec::new()).collect();
    for turn in 0..turns {
        for (player, taken) in players.iter_mut().zip(&mut taken) {
            taken.push(player.take_turn(turn, turns, server)?);
        }
    }
    Ok(taken)
}

/// Warm a function up, and measure it for about so many seconds: the invocations, and how many
/// messages it was given in all.
pub(crate) fn new_messages(
    process: &mut Process,
    batch: usize,
    body: usize,
    seconds: f64,
) -> Fallible<(Invocations, usize)> {
    let mut events = Events::new(batch, body);
    let (events, before) = warm_up(process, batch, seconds, |count| events.take(count))?;
    Ok((process.invoke(&events)?, (before + events.len()) * batch))
}

/// Warm a function up. Gives events for about so many seconds, and how many there were already.
fn warm_up(
    process: &mut Process,
    batch: usize,
    seconds: f64,
    mut take: impl FnMut(usize) -> Vec<Arc<[u8]>>,
) -> Fallible<(Vec<Arc<[u8]>>, usize)> {
    let (mut spent, mut count, mut before) = (0.0, 1, 0);
    let one = loop {
        let wall = process.invoke(&take(count))?.wall.as_secs_f64();
        before += count;
        spent += wall;
        if spent >= seconds * WARM_UP {
            break wall / number(count);
        }
        count *= 2;
    };
    let bytes = take(1)[0].len();
    let most = (MOST_RECORDS / batch).min(MOST_BYTES / bytes).max(LEAST_INVOCATIONS);
    let count = (LEAST_INVOCATIONS..most).find(|count| one * number(*count) > seconds).unwrap_or(most);
    Ok((take(count), before))
}
