//! The consumer as a process, on a real RabbitMQ and a real Redis. If RabbitMQ is not installed, the tests say so and
//! are skipped.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]

mod broker;
mod consumer;
mod crashes;
mod dead_letters;
mod delays;
mod fixture;
mod once;
mod queues;
mod refusals;
