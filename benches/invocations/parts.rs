//! What is measured, part by part.

mod batches;
mod bodies;
mod cluster;
mod inbox;
mod memory;
mod starts;
mod trips;
mod waiting;
mod webhook;

use crate::Fallible;
use crate::function::Function;
use crate::options::Options;
use crate::report::Report;

pub(crate) type Part = fn(&Options, &[Function], &mut Report) -> Fallible<()>;

pub(crate) const PARTS: [(&str, Part); 9] = [
    ("batches", batches::run),
    ("starts", starts::run),
    ("memory", memory::run),
    ("trips", trips::run),
    ("webhook", webhook::run),
    ("waiting", waiting::run),
    ("cluster", cluster::run),
    ("bodies", bodies::run),
    ("inbox", inbox::run),
];
