//! Values as people read them. What comes from elsewhere cannot steer a terminal.

use std::fmt::Write as _;
use std::time::Duration;

use idempotent_sqs::idempotency::Fingerprint;

/// Lines of a name and its value, the values in one column.
pub(crate) fn rows(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:width$}  {value}");
    }
    text
}

/// Lines of as many values as the first, each in a column as wide as it needs.
pub(crate) fn columns<const N: usize>(lines: &[[String; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for line in lines {
        let cells: Vec<_> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// The text, with what is not printable in it (also a line's end) as Rust writes it.
pub(crate) fn text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// In the two largest units that it has, as `13 d 23 h`.
pub(crate) fn span(time: Duration) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let seconds = time.as_secs();
    let Some(first) = units.iter().position(|(length, _)| seconds >= *length) else {
        return format!("{} ms", time.as_millis());
    };
    let (length, unit) = units[first];
    let whole = format!("{} {unit}", seconds / length);
    match units.get(first + 1).map(|(shorter, unit)| (seconds % length / shorter, unit)) {
        Some((rest, unit)) if rest > 0 => format!("{whole} {rest} {unit}"),
        Some(_) | None => whole,
    }
}

/// With thousands apart, as `1,000,000`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// As `12.4 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut tenths = number.saturating_mul(10);
    let mut unit = "bytes";
    for larger in units {
        if tenths < 10_240 {
            break;
        }
        (tenths, unit) = (tenths / 1_024, larger);
    }
    if unit == "bytes" { format!("{number} bytes") } else { format!("{}.{} {unit}", tenths / 10, tenths % 10) }
}

pub(crate) fn fingerprint(fingerprint: Fingerprint) -> Option<String> {
    (fingerprint != Fingerprint::NONE).then(|| fingerprint.to_string())
}

/// Whole milliseconds, as scripts take them.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
