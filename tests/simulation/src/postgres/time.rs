//! Times and intervals as texts, in UTC, and their arithmetic.

use super::value::Interval;

/// µs since 1970 of the times that are later, or earlier, than all others.
pub(super) const INFINITY: i64 = i64::MAX;
pub(super) const MINUS_INFINITY: i64 = i64::MIN;

const DAY_US: i64 = 86_400_000_000;

/// From 4713 BC, as in PostgreSQL, to the year 294247, some years before its latest time.
const RANGE: std::ops::RangeInclusive<i64> = -210_866_803_200_000_000..=i64::MAX - 1;

/// The number of the day since 1970, by the Gregorian calendar.
fn day_of(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that a leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date_of(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (date, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (era * 400 + year + i64::from(month <= 2), month, date)
}

fn days_in(year: i64, month: i64) -> i64 {
    let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    day_of(next_year, next, 1) - day_of(year, month, 1)
}

/// This time and the interval, `times` 1 or −1. `None` if it is out of range.
pub(super) fn add(us: i64, interval: Interval, times: i64) -> Option<i64> {
    if us == INFINITY || us == MINUS_INFINITY {
        return Some(us);
    }
    let mut us = us;
    if interval.months != 0 {
        let (year, month, day) = date_of(us.div_euclid(DAY_US));
        let months = year * 12 + month - 1 + times * i64::from(interval.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        us = day_of(year, month, day.min(days_in(year, month)))
            .checked_mul(DAY_US)?
            .checked_add(us.rem_euclid(DAY_US))?;
    }
    us = us.checked_add(i64::from(interval.days).checked_mul(DAY_US)?.checked_mul(times)?)?;
    us = us.checked_add(interval.us.checked_mul(times)?)?;
    RANGE.contains(&us).then_some(us)
}

/// The time from one to another.
pub(super) fn difference(us: i64, from: i64) -> Option<Interval> {
    if [us, from].iter().any(|time| [INFINITY, MINUS_INFINITY].contains(time)) {
        return None;
    }
    let us = us.checked_sub(from)?;
    Some(Interval { months: 0, days: i32::try_from(us / DAY_US).ok()?, us: us % DAY_US })
}

pub(super) fn to_text(us: i64) -> String {
    match us {
        INFINITY => return "infinity".to_owned(),
        MINUS_INFINITY => return "-infinity".to_owned(),
        _ => {}
    }
    let (year, month, day) = date_of(us.div_euclid(DAY_US));
    format!("{year:04}-{month:02}-{day:02} {}+00", clock(us.rem_euclid(DAY_US)))
}

fn clock(us: i64) -> String {
    let (seconds, part) = (us / 1_000_000, us % 1_000_000);
    let text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if part == 0 { text } else { format!("{text}.{}", format!("{part:06}").trim_end_matches('0')) }
}

pub(super) fn parse(text: &str) -> Option<i64> {
    match text {
        "infinity" => return Some(INFINITY),
        "-infinity" => return Some(MINUS_INFINITY),
        _ => {}
    }
    let text = text.trim_end_matches("+00").trim_end_matches('Z').trim_end_matches(" UTC");
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00:00"));
    let mut date = date.split('-').map(str::parse);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    Some(day_of(year, month, day) * DAY_US + parse_clock(time)?)
}

fn parse_clock(text: &str) -> Option<i64> {
    let (hours, rest) = text.split_once(':')?;
    let (minutes, seconds) = rest.split_once(':').unwrap_or((rest, "0"));
    let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
    Some(minutes * 60_000_000 + seconds_us(seconds.parse().ok()?)?)
}

/// Seconds as µs.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
pub(super) fn seconds_us(seconds: f64) -> Option<i64> {
    let us = (seconds * 1e6).round_ties_even();
    (-9.2e18..9.2e18).contains(&us).then_some(us as i64)
}

/// An interval such as `30 minutes`.
pub(super) fn parse_interval(text: &str) -> Option<Interval> {
    let (mut interval, mut words) = (Interval::default(), text.split_whitespace());
    while let Some(word) = words.next() {
        if word.contains(':') {
            interval.us += parse_clock(word)?;
            continue;
        }
        let (number, unit): (i64, &str) = (word.parse().ok()?, words.next()?);
        let small = i32::try_from(number).ok();
        match unit.trim_end_matches('s') {
            "year" => interval.months += small? * 12,
            "month" | "mon" => interval.months += small?,
            "week" => interval.days += small? * 7,
            "day" => interval.days += small?,
            "hour" => interval.us += number * 3_600_000_000,
            "minute" | "min" => interval.us += number * 60_000_000,
            "second" | "sec" => interval.us += number * 1_000_000,
            "millisecond" => interval.us += number * 1_000,
            _ => return None,
        }
    }
    Some(interval)
}

pub(super) fn interval_text(Interval { months, days, us }: Interval) -> String {
    let many = |number: i32, unit: &str| {
        (number != 0).then(|| format!("{number} {unit}{}", if number == 1 { "" } else { "s" }))
    };
    let sign = if us < 0 { "-" } else { "" };
    let time = (us != 0 || (months, days) == (0, 0)).then(|| format!("{sign}{}", clock(us.abs())));
    let parts = [many(months / 12, "year"), many(months % 12, "mon"), many(days, "day"), time];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
