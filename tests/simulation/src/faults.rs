//! Injects the faults of a plan.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use history::{Jump, Loss, Rng, monotonic_us};
use tokio::time::{Instant, sleep};

use crate::function::{NAMESPACE, Process, Shared};
use crate::network::{self, Trigger};
use crate::plan::Fault;
use crate::receiver::{self, Receiver};
use crate::redis::Cluster;
use crate::trace::event;

pub struct Faults {
    pub rng: Rng,
    pub shared: Arc<Shared>,
    pub redis: Arc<Cluster>,
    pub receiver: Receiver,
    /// Number of faults so far.
    pub injected: usize,
    /// When Redis's clock was set.
    pub jumps: Vec<Jump>,
    /// When writes were lost, by key.
    pub losses: BTreeMap<String, Vec<Loss>>,
}

impl Faults {
    /// Injects faults for the time of the plan.
    pub async fn run(&mut self) {
        let ends = Instant::now() + self.shared.plan.lasts;
        let kinds = self.shared.plan.faults.clone();
        let mut lossy = 0;
        while Instant::now() < ends && !kinds.is_empty() {
            let pause = self.rng.draw(10..self.shared.plan.pause_ms);
            sleep(Duration::from_millis(pause)).await;
            let fault = *self.rng.pick(&kinds);
            // The checker explains only few lost writes of a key.
            if matches!(fault, Fault::FailOver | Fault::Flush) {
                lossy += 1;
                if lossy > 1 {
                    continue;
                }
            }
            self.injected += 1;
            self.inject(fault).await;
        }
    }

    async fn inject(&mut self, fault: Fault) {
        let rng = &mut self.rng;
        let processes: Vec<_> =
            self.shared.processes.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let Process { name: process, kill } = rng.pick(&processes);
        let server = rng.pick(&self.redis.servers).clone();
        let peer = if rng.happens(600) { server.name() } else { receiver::NAME };
        match fault {
            Fault::Cut if rng.happens(500) => network::arm(peer, Trigger::Cut(0)),
            Fault::Cut => network::cut(process, peer),
            Fault::Partition if rng.happens(600) => {
                // A process that knows the outcome of its work cannot record it, until its lease may have ended.
                let lasts = rng.ms(500..4500);
                network::arm(receiver::NAME, Trigger::Isolate(server.name().to_owned(), lasts));
            }
            Fault::Partition => network::partition(process, peer, rng.ms(100..5000)),
            Fault::Kill if rng.happens(500) => network::arm(process, Trigger::Kill(Arc::clone(kill))),
            Fault::Kill => {
                event(|| format!("FAULT {process} is killed"));
                kill.notify_one();
            }
            Fault::Freeze if rng.happens(300) => network::freeze(process, rng.ms(50..9000), rng.happens(500)),
            Fault::Freeze => {
                // Most of these end shortly before or after the deadline of an invocation.
                let timeout_ms = u64::try_from(self.shared.plan.function_timeout.as_millis()).unwrap_or(u64::MAX);
                network::arm(process, Trigger::Freeze(rng.ms(timeout_ms / 2..timeout_ms + 500), rng.happens(700)));
            }
            Fault::Stall => network::freeze(server.name(), rng.ms(50..3000), false),
            Fault::Restart => server.restart(rng.ms(10..2000)).await,
            Fault::LoseScripts => server.flush_scripts(),
            Fault::OutOfMemory => {
                server.set_full(true);
                sleep(rng.ms(100..3000)).await;
                server.set_full(false);
            }
            Fault::ReadOnly => {
                server.set_replica(true);
                sleep(rng.ms(100..2000)).await;
                server.set_replica(false);
            }
            Fault::Reshard => self.reshard().await,
            Fault::ReceiverDown => {
                event(|| "FAULT the receiver is down".to_owned());
                network::stop(receiver::NAME);
                sleep(rng.ms(100..3000)).await;
                self.receiver.listen();
            }
            Fault::FailOver => {
                let (lag, down) = (rng.ms(10..800), rng.ms(10..1500));
                self.lose(lag, server.lose(lag));
                server.restart(down).await;
            }
            Fault::Flush => {
                let keys: Vec<_> = self.redis.servers.iter().flat_map(|server| server.keys(|_| true)).collect();
                self.redis.servers.iter().for_each(crate::redis::Server::flush);
                self.lose(Duration::MAX, keys.into_iter().map(|key| (key, true)).collect());
            }
            Fault::ClockJump => {
                let jump_us = i64::try_from(rng.draw(0..12_000_000)).unwrap_or_default() - 6_000_000;
                let ahead_us = self.jumps.last().map_or(0, |last| last.ahead_us) + jump_us;
                self.jumps.push(Jump { at_us: monotonic_us(), ahead_us });
                self.redis.servers.iter().for_each(|server| server.set_clock(ahead_us));
            }
        }
    }

    /// Records that the writes of the last `lag` were lost, under these keys, and whether nothing is left under each.
    fn lose(&mut self, lag: Duration, keys: BTreeMap<Vec<u8>, bool>) {
        let at_us = monotonic_us();
        let lag_us = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        let of_function = |key: &[u8]| {
            let key = std::str::from_utf8(key).ok()?;
            Some(key.strip_prefix(NAMESPACE)?.strip_prefix(':')?.to_owned())
        };
        for (key, is_empty) in keys {
            let Some(key) = of_function(&key) else { continue };
            // A record that was moved to the server in this time has earlier writes.
            let since_us = if is_empty { 0 } else { at_us.saturating_sub(lag_us) };
            self.losses.entry(key).or_default().push(Loss { at_us, since_us });
        }
    }

    /// Moves some slots that are used, key by key.
    async fn reshard(&mut self) {
        let used = self.redis.used_slots();
        if used.is_empty() {
            return;
        }
        for _ in 0..self.rng.draw(1..4) {
            let slot = *self.rng.pick(&used);
            let to = self.rng.draw(0..self.redis.servers.len() as u64);
            self.redis.begin_move(slot, usize::try_from(to).unwrap_or_default());
            sleep(self.rng.ms(0..400)).await;
            while self.redis.step_move(slot) {
                sleep(self.rng.ms(0..200)).await;
            }
        }
    }
}
