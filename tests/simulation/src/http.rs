//! Clients that repeat HTTP requests to services with the layer, after the function has ended. Their connections to
//! Redis break.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use harness::lines;
use history::{History, Outside, Rng};
use http_history::{SERVICES, Seen, Tally, contend};
use tokio::time::sleep;

use crate::logins::Logins;
use crate::network;
use crate::plan::Plan;
use crate::redis::Cluster;

/// How long the clients contend.
const LASTS: Duration = Duration::from_millis(500);

/// What the clients saw, and what their services did.
pub struct HttpRun {
    pub seen: Seen,
    pub outside: Outside,
    /// The calls of the stores.
    pub history: History,
}

pub async fn send_requests(plan: &Plan, redis: &Cluster, logins: &Logins, directory: &Path) -> HttpRun {
    let directory = directory.join("http");
    fs::create_dir(&directory).expect("a directory can be created");
    let names: Vec<_> = (0..SERVICES).map(|number| format!("http{number}")).collect();
    let settings = |number: usize| {
        let mut settings = logins.settings(plan, redis.servers[0].name(), &names[number], "http");
        settings.timeout = plan.redis_timeout;
        settings
    };
    let inject_fault = async |rng: &mut Rng| {
        let (service, server) = (rng.pick(&names), rng.pick(&redis.servers).name());
        // Both tries of a call fail.
        let outage = 2 * plan.redis_timeout + rng.ms(10..300);
        match rng.draw(0..4) {
            _ if plan.is_quiet => {}
            0 => network::cut(service, server),
            1 => network::partition(service, server, rng.ms(10..150)),
            _ => network::partition(service, server, outage),
        }
        sleep(rng.ms(1..20)).await;
    };
    // Of the requests to works with their own records.
    lines::take();
    let rng = Rng::new(plan.seed ^ 0x4177);
    let (seen, outside) = contend(rng, settings, inject_fault, &directory, LASTS, Arc::new(Tally::default())).await;
    HttpRun { seen, outside, history: History::read(&directory).expect("the services recorded their calls") }
}
