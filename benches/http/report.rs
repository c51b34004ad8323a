//! The figures as text.

use std::fmt::Write;

use benches::figures::{median, number, percentile, short};
use benches::table::Table;

use crate::endpoint::Kind;
use crate::{CASES, Case, MOST_CLIENTS, Measurement, Sample};

/// The published claim: requests per second and p99 in ms.
const CLAIMED_LUA: (f64, f64) = (3_500.0, 65.0);
const CLAIMED_WATCH: (f64, f64) = (1_500.0, 180.0);

/// All tables. `expires_fields`: whether the server has HEXPIRE.
pub(crate) fn text(measurements: &[Measurement], kinds: &[&Kind], expires_fields: bool) -> String {
    let mut text = format!("### The claim, at {MOST_CLIENTS} clients\n\n{}", claim(measurements, kinds).text());
    for case in &CASES {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n### {}\n\n{}", heading(case.title), figures(case, measurements, kinds).text());
    }
    if !expires_fields && kinds.iter().any(|kind| kind.name == "axum-idempotent") {
        text += "\nThis server does not have `HEXPIRE` (Redis 7.4), which the store of `axum-idempotent` sends: its records \
                 are written, but do not expire.\n";
    }
    text
}

fn heading(title: &str) -> String {
    let (first, rest) = title.split_at(1);
    first.to_uppercase() + rest
}

/// `lua` and `watch` beside the claim.
fn claim(measurements: &[Measurement], kinds: &[&Kind]) -> Table {
    let mut table = Table::new(&[
        "what",
        "`lua` requests/s",
        "`lua` p99 ms",
        "`watch` requests/s",
        "`watch` p99 ms",
        "requests/s, `watch` = 1",
    ]);
    let mut row = |what: &str, lua: (f64, f64), watch: (f64, f64), ratio: f64| {
        table.row([what.to_owned(), short(lua.0), short(lua.1), short(watch.0), short(watch.1), short(ratio)]);
    };
    row("the claim", CLAIMED_LUA, CLAIMED_WATCH, CLAIMED_LUA.0 / CLAIMED_WATCH.0);
    for Measurement { case, samples, .. } in measurements.iter().filter(|one| one.clients == MOST_CLIENTS) {
        let of = |name| kinds.iter().zip(samples).find(|(kind, _)| kind.name == name).map(|(_, samples)| &**samples);
        if let (Some(lua), Some(watch)) = (of("lua"), of("watch")) {
            let figures = |samples| (median_of(samples, rate), percentile(99, times(samples)));
            row(case.title, figures(lua), figures(watch), ratio(lua, watch));
        }
    }
    table
}

fn figures(case: &Case, measurements: &[Measurement], kinds: &[&Kind]) -> Table {
    let mut table = Table::new(&[
        "clients",
        "endpoint",
        "requests/s",
        "requests/s, floor = 1",
        "p50 ms",
        "p99 ms",
        "server CPU µs/request",
        "Redis CPU µs/request",
        "retries/request",
        "409 %",
        "handler runs per key",
    ]);
    for Measurement { clients, samples, .. } in measurements.iter().filter(|one| one.case.name == case.name) {
        for (kind, rounds) in kinds.iter().zip(samples) {
            let each = |figure: fn(&Sample) -> f64| short(median_of(rounds, |sample| figure(sample) / count(sample)));
            table.row([
                clients.to_string(),
                kind.name.to_owned(),
                short(median_of(rounds, rate)),
                short(ratio(rounds, &samples[0])),
                short(median(times(rounds))),
                short(percentile(99, times(rounds))),
                each(|sample| sample.cpu_us),
                each(|sample| sample.redis_us),
                each(|sample| sample.retries),
                each(|sample| 100.0 * number(sample.answers.conflicts)),
                short(median_of(rounds, |sample| sample.runs / number(sample.answers.keys))),
            ]);
        }
    }
    table
}

fn count(sample: &Sample) -> f64 {
    number(sample.answers.times.len())
}

fn rate(sample: &Sample) -> f64 {
    count(sample) / sample.answers.wall.as_secs_f64()
}

/// The requests of all rounds, ms.
fn times(rounds: &[Sample]) -> impl Iterator<Item = f64> {
    rounds.iter().flat_map(|sample| &sample.answers.times).copied()
}

fn median_of(rounds: &[Sample], figure: impl Fn(&Sample) -> f64) -> f64 {
    median(rounds.iter().map(figure))
}

/// Requests per second of one endpoint as a multiple of another's in the same round.
fn ratio(one: &[Sample], other: &[Sample]) -> f64 {
    median(one.iter().zip(other).map(|(one, other)| rate(one) / rate(other)))
}
