//! What goes wrong for all owners.

use std::sync::Arc;
use std::time::Duration;

use harness::front::Front;
use history::inbox::Passwords;
use history::{Rng, monotonic_us};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use harness::torture::tally::lock;

use super::cleanup::Housekeeper;
use super::copies::Copier;
use super::kind::User;
use super::owner::Owner;
use super::servers::Servers;
use super::tally::Span;
use super::world::World;

/// Breaks a way to Redis now and then, until the returned task is dropped.
pub(crate) fn break_redis(world: &World, front: &Arc<Front>, port: u16, mut rng: Rng) -> JoinSet<()> {
    let (closed_port, front, mut tasks) = (world.closed_port, Arc::clone(front), JoinSet::new());
    tasks.spawn(async move {
        loop {
            sleep(rng.ms(10..60)).await;
            break_once(&front, (port, closed_port), &mut rng).await;
        }
    });
    tasks
}

async fn break_once(front: &Front, (port, closed_port): (u16, u16), rng: &mut Rng) {
    match rng.draw(0..6) {
        0 => front.cut(),
        1 => {
            front.drop_replies(true);
            sleep(rng.ms(10..60)).await;
            front.cut();
            front.drop_replies(false);
        }
        2 => {
            front.drop_requests(true);
            sleep(rng.ms(10..60)).await;
            front.cut();
            front.drop_requests(false);
        }
        3 => {
            front.delay_replies(rng.ms(5..60));
            sleep(rng.ms(20..60)).await;
            front.delay_replies(Duration::ZERO);
        }
        _ => {
            front.forward_to(closed_port);
            front.cut();
            sleep(rng.ms(100..250)).await;
            front.forward_to(port);
        }
    }
}

/// Everything else that can be made to fail.
pub(crate) struct Faults<'a> {
    pub(crate) servers: &'a mut Servers,
    pub(crate) world: &'a Arc<World>,
    pub(crate) owners: &'a [Arc<Owner>],
    pub(crate) passwords: &'a Passwords,
    pub(crate) housekeeper: &'a Housekeeper,
    pub(crate) copier: &'a Copier,
    pub(crate) number: u64,
}

impl Faults<'_> {
    /// One fault after another.
    pub(crate) async fn inject(&mut self, rng: &mut Rng) {
        self.number += 1;
        match self.number % 9 {
            0 => self.replace_password().await,
            1 => self.end_idle_sessions().await,
            2 => self.housekeeper.work_beside_a_lock(self.world).await,
            3 => self.make_sessions_read_only().await,
            4 => self.copier.copy_to_empty(self.world, rng).await,
            5 => self.restart(rng).await,
            6 => self.copier.copy(rng).await,
            7 => self.cut(),
            _ => self.world.losses.restart(&mut self.servers.redis).await,
        }
    }

    /// Closes all connections to the database.
    fn cut(&self) {
        let from_us = monotonic_us();
        self.owners.iter().for_each(|owner| owner.front.cut());
        self.world.tally.disturb(from_us);
    }

    async fn restart(&mut self, rng: &mut Rng) {
        let (from_us, postgres) = (monotonic_us(), &mut self.servers.postgres);
        let restart = async {
            block_in_place(|| postgres.kill());
            sleep(rng.ms(20..150)).await;
            block_in_place(|| postgres.restart());
        };
        self.world.operator.restart(restart).await;
        self.world.tally.disturb(from_us);
    }

    async fn replace_password(&self) {
        let (from_us, password) = (monotonic_us(), format!("password-{}", self.number));
        let user = User::Payer.name();
        self.world.operator.execute(&format!("ALTER ROLE {user} PASSWORD '{password}'")).await;
        self.passwords.replace(&password);
        self.world.tally.disturb(from_us);
    }

    /// A delivery whose session has ended meanwhile gets another one.
    async fn end_idle_sessions(&self) {
        let from_us = monotonic_us();
        let idle = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                    WHERE application_name LIKE 'owner-%' AND state = 'idle'";
        self.world.operator.rows(idle).await;
        lock(&self.world.tally.ended_idle).push(Span::since(from_us));
    }

    /// All sessions are read-only, but not those that begin after this.
    async fn make_sessions_read_only(&self) {
        let from_us = monotonic_us();
        let users = [User::App, User::Payer, User::Crowded].map(User::name);
        for user in users {
            self.world.operator.execute(&format!("ALTER ROLE {user} SET default_transaction_read_only = off")).await;
        }
        for statement in ["ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"] {
            self.world.operator.execute(statement).await;
        }
        sleep(Duration::from_millis(300)).await;
        let operator = &self.world.operator;
        // A new session can write.
        operator.reconnect().await;
        for statement in ["ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"] {
            operator.execute(statement).await;
        }
        // Until the server has read its settings again, new sessions would be read-only too.
        let can_write = "SELECT current_setting('default_transaction_read_only') = 'off'";
        for _ in 0..100 {
            operator.reconnect().await;
            if operator.until(can_write, Duration::from_millis(10)).await {
                break;
            }
        }
        for user in users {
            operator.execute(&format!("ALTER ROLE {user} RESET default_transaction_read_only")).await;
        }
        sleep(Duration::from_millis(50)).await;
        lock(&self.world.tally.read_only).push(Span::since(from_us));
    }
}
