//! Medians, percentiles and units, and numbers as text.

use std::time::Duration;

/// The middle value; for an even count the mean of the two middle values. NaN without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let sorted = sorted(values);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

/// The smallest value that is at least as large as `percent` of all values. NaN without values.
pub fn percentile(percent: usize, values: impl IntoIterator<Item = f64>) -> f64 {
    let sorted = sorted(values);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// A count as a float. Counts in the benchmarks are far below 2^32.
pub fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::NAN, f64::from)
}

/// A duration in milliseconds.
pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Three significant digits, since no figure is more precise, with commas between thousands. `–` for NaN.
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    match value.abs() {
        v if v >= 999.5 => thousands(value),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    // Only the first three digits are significant.
    let rounded: String = digits.chars().enumerate().map(|(at, digit)| if at < 3 { digit } else { '0' }).collect();
    let mut grouped = String::new();
    for (at, digit) in rounded.chars().enumerate() {
        if at > 0 && (rounded.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
