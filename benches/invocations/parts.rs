//! The parts of the benchmark, which `--only` selects by name.

mod batches;
mod bodies;
mod cluster;
mod inbox;
mod memory;
mod round_trips;
mod slow_work;
mod starts;
mod webhook;

use benches::Fallible;

use crate::function::Function;
use crate::options::Options;
use crate::report::Report;

pub(crate) type Part = fn(&Options, &[Function], &mut Report) -> Fallible<()>;

/// In the order of the page: the cluster, which the template deploys, is the first.
pub(crate) const PARTS: [(&str, Part); 9] = [
    ("cluster", cluster::run),
    ("batches", batches::run),
    ("starts", starts::run),
    ("memory", memory::run),
    ("round-trips", round_trips::run),
    ("webhook", webhook::run),
    ("slow-work", slow_work::run),
    ("bodies", bodies::run),
    ("inbox", inbox::run),
];
