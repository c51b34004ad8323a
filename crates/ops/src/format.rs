//! Formats values for text output. Text from messages is escaped, so that it cannot control a terminal.

use std::fmt::Write as _;
use std::time::Duration;

use idempotent_sqs::idempotency::Fingerprint;

/// One line for each name and its value, with the values aligned.
pub(crate) fn rows(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:width$}  {value}");
    }
    text
}

/// A table. Each column is as wide as its longest cell. Columns without text are left out.
pub(crate) fn columns<const N: usize>(lines: &[[String; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(widths).filter(|(_, width)| *width > 0);
        let cells: Vec<_> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// The text with unprintable characters, including line ends, escaped as in Rust.
pub(crate) fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' => escaped.push(c),
            c => escaped.extend(c.escape_debug()),
        }
    }
    escaped
}

/// A duration in its two largest units, as `13 d 23 h`.
pub(crate) fn duration(duration: Duration) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let seconds = duration.as_secs();
    let Some(first) = units.iter().position(|(length, _)| seconds >= *length) else {
        return format!("{} ms", duration.as_millis());
    };
    let (length, unit) = units[first];
    let whole = format!("{} {unit}", seconds / length);
    match units.get(first + 1).map(|(shorter, unit)| (seconds % length / shorter, unit)) {
        Some((rest, unit)) if rest > 0 => format!("{whole} {rest} {unit}"),
        Some(_) | None => whole,
    }
}

/// A number with thousands separators, as `1,000,000`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in its largest binary unit, as `12.4 MiB`.
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

/// The fingerprint, or `None` if the record has none.
pub(crate) fn fingerprint(fingerprint: Fingerprint) -> Option<String> {
    (fingerprint != Fingerprint::NONE).then(|| fingerprint.to_string())
}

/// Whole milliseconds, for JSON.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
