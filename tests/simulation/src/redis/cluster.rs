//! Which server of a cluster serves a slot:
//! <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use history::Value;

use super::keyspace::Keyspace;
use super::resp::Reply;
use super::server::Server;
use crate::lock;
use crate::network::address;
use crate::trace::event;

const SLOTS: u16 = 16_384;

pub(super) const PORT: u16 = 6379;

/// The servers of a cluster.
pub struct Cluster {
    pub servers: Vec<Server>,
    slots: Arc<Mutex<Slots>>,
}

/// What the servers of a cluster agree on.
#[derive(Debug)]
pub(super) struct Slots {
    names: Vec<String>,
    /// The server of each slot.
    owners: Vec<usize>,
    /// The slots that are being moved, and their new servers.
    moving: BTreeMap<u16, usize>,
    /// Whether CLUSTER SLOTS names another server than the owner of each slot.
    names_wrong_servers: bool,
}

/// Whether these keys are of more than one slot.
pub(super) fn are_of_several_slots(keys: &[Vec<u8>]) -> bool {
    keys.windows(2).any(|pair| slot(&pair[0]) != slot(&pair[1]))
}

/// A server as a member of its cluster.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) slots: Arc<Mutex<Slots>>,
    pub(super) number: usize,
}

impl Member {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        lock(&self.slots)
    }

    /// The error if this server does not serve these keys. `asking`: whether the client was sent here during a move.
    pub(super) fn redirects(&self, keyspace: &Keyspace, keys: &[Vec<u8>], asking: bool, client: &str) -> Option<Reply> {
        let slots = self.lock();
        let slot = slot(keys.first()?);
        if are_of_several_slots(keys) {
            return Some(Reply::error("CROSSSLOT Keys in request don't hash to the same slot"));
        }
        let (owner, next) = (slots.owners[usize::from(slot)], slots.moving.get(&slot));
        let at = |server: usize| format!("{slot} {}:{PORT}", address(&slots.names[server], client));
        let missing = keys.iter().filter(|key| !keyspace.contains(key)).count();
        let try_again = || Some(Reply::error("TRYAGAIN Multiple keys request during rehashing of slot"));
        match next {
            _ if owner == self.number && (next.is_none() || missing == 0) => None,
            Some(next) if owner == self.number && missing == keys.len() => {
                Some(Reply::error(format!("ASK {}", at(*next))))
            }
            Some(_) if owner == self.number => try_again(),
            Some(next) if *next == self.number && asking => {
                if keys.len() > 1 && missing > 0 {
                    try_again()
                } else {
                    None
                }
            }
            _ => Some(Reply::error(format!("MOVED {}", at(owner)))),
        }
    }

    /// The reply to CLUSTER SLOTS.
    pub(super) fn ranges(&self, client: &str) -> Reply {
        let slots = self.lock();
        let ranges = slots.ranges();
        let range = |(first, last, owner): &(u16, u16, usize)| {
            let name = address(&slots.names[*owner], client);
            let node = vec![Reply::bulk(name), Reply::Integer(PORT.into()), Reply::bulk(format!("{owner:040}"))];
            Reply::Array(vec![Reply::Integer((*first).into()), Reply::Integer((*last).into()), Reply::Array(node)])
        };
        Reply::Array(ranges.iter().map(range).collect())
    }

    /// The reply to CLUSTER NODES.
    pub(super) fn nodes(&self, client: &str) -> Reply {
        let slots = self.lock();
        let line = |number: usize| slots.node(number, number == self.number, client) + "\n";
        Reply::bulk((0..slots.names.len()).map(line).collect::<String>())
    }
}

impl Slots {
    /// The line of a server in the reply to CLUSTER NODES, as that server has it or another one:
    /// <https://redis.io/docs/latest/commands/cluster-nodes/>.
    fn node(&self, number: usize, is_own: bool, client: &str) -> String {
        let name = address(&self.names[number], client);
        let myself = if is_own { "myself," } else { "" };
        let mut fields = vec![format!("{number:040} {name}:{PORT}@1{PORT} {myself}master - 0 0 {number} connected")];
        let own = self.ranges().into_iter().filter(|(.., owner)| *owner == number);
        fields.extend(
            own.map(|(first, last, _)| if first == last { first.to_string() } else { format!("{first}-{last}") }),
        );
        for (slot, to) in self.moving.iter().filter(|_| is_own) {
            let from = self.owners[usize::from(*slot)];
            if from == number {
                fields.push(format!("[{slot}->-{to:040}]"));
            } else if *to == number {
                fields.push(format!("[{slot}-<-{from:040}]"));
            }
        }
        fields.join(" ")
    }

    /// The first and the last slot of each range, and the server that clients are told.
    fn ranges(&self) -> Vec<(u16, u16, usize)> {
        let mut ranges: Vec<(u16, u16, usize)> = Vec::new();
        let named = |owner: &usize| if self.names_wrong_servers { (owner + 1) % self.names.len() } else { *owner };
        for (slot, owner) in (0..SLOTS).zip(self.owners.iter().map(named)) {
            match ranges.last_mut() {
                Some((_, last, of)) if *of == owner => *last = slot,
                _ => ranges.push((slot, slot, owner)),
            }
        }
        ranges
    }
}

impl Cluster {
    /// Starts servers with these names, which share the slots if there are several.
    pub fn start(names: &[&str]) -> Self {
        let owners = (0..SLOTS).map(|slot| usize::from(slot) * names.len() / usize::from(SLOTS)).collect();
        let names_of: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let slots = Slots { names: names_of, owners, moving: BTreeMap::new(), names_wrong_servers: false };
        let slots = Arc::new(Mutex::new(slots));
        // A single server is not in cluster mode: it accepts calls with keys of several slots.
        let member = |number| (names.len() > 1).then(|| Member { slots: Arc::clone(&slots), number });
        let servers = names.iter().enumerate().map(|(number, name)| Server::start_in(name, member(number)));
        Self { servers: servers.collect(), slots }
    }

    /// Servers that are no cluster.
    pub fn of(servers: Vec<Server>) -> Self {
        let names = servers.iter().map(|server| server.name().to_owned()).collect();
        let slots = Slots { names, owners: Vec::new(), moving: BTreeMap::new(), names_wrong_servers: false };
        Self { servers, slots: Arc::new(Mutex::new(slots)) }
    }

    /// From now on, clients are told another server for each slot, as of a cluster behind one address.
    pub fn name_wrong_servers(&self) {
        lock(&self.slots).names_wrong_servers = true;
    }

    /// The server of a slot.
    pub fn owner(&self, slot: u16) -> usize {
        lock(&self.slots).owners[usize::from(slot)]
    }

    /// The slots of the keys that are stored.
    pub fn used_slots(&self) -> Vec<u16> {
        let mut slots: Vec<_> =
            self.servers.iter().flat_map(|server| server.keys(|_| true)).map(|key| slot(&key)).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// The value of a key.
    pub fn value(&self, key: &[u8]) -> Option<Value> {
        self.servers.iter().find_map(|server| server.value(key))
    }

    /// Replaces the value of a key, as another program does. It is on the server that has the key, or its slot.
    pub fn set_value(&self, key: &[u8], value: Value) {
        let owner = lock(&self.slots).owners[usize::from(slot(key))];
        let holder = self.servers.iter().find(|server| server.value(key).is_some());
        holder.unwrap_or(&self.servers[owner]).set_value(key, value);
    }

    /// Begins to move a slot to another server.
    pub fn begin_move(&self, slot: u16, to: usize) {
        event(|| format!("FAULT slot {slot} is being moved to server {to}"));
        lock(&self.slots).moving.insert(slot, to);
    }

    /// Takes back the moves of slots that are still those of such a server.
    pub fn take_back_moves(&self, of_server: impl Fn(usize) -> bool) {
        let slots = lock(&self.slots).moving.clone();
        for (slot, to) in slots {
            let from = self.owner(slot);
            if !of_server(from) {
                continue;
            }
            event(|| format!("FAULT the move of slot {slot} is taken back"));
            for key in self.servers[to].keys(|key| self::slot(key) == slot) {
                self.servers[to].move_key(&key, &self.servers[from]);
            }
            lock(&self.slots).moving.remove(&slot);
        }
    }

    /// Moves the next key of the slot. Returns `false` if there was none, and the slot has moved.
    pub fn step_move(&self, slot: u16) -> bool {
        let (from, to) = {
            let slots = lock(&self.slots);
            (slots.owners[usize::from(slot)], slots.moving[&slot])
        };
        let keys = if from == to { Vec::new() } else { self.servers[from].keys(|key| self::slot(key) == slot) };
        if let Some(key) = keys.first() {
            event(|| format!("FAULT {} moves", String::from_utf8_lossy(key)));
            self.servers[from].move_key(key, &self.servers[to]);
            return true;
        }
        let mut slots = lock(&self.slots);
        slots.moving.remove(&slot);
        slots.owners[usize::from(slot)] = to;
        event(|| format!("FAULT slot {slot} is moved"));
        false
    }
}

/// The slot of a key: CRC16 of the key, or of its hash tag.
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let length = key[open + 1..].iter().position(|byte| *byte == b'}').filter(|length| *length > 0)?;
        Some(&key[open + 1..open + 1 + length])
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    });
    crc % SLOTS
}
