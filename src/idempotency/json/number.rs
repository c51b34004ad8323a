//! Decimal numbers of any length, without rounding.

use std::io::Write as _;
use std::iter::repeat_n;

/// Largest number of zeros that are written to avoid an exponent.
const MAX_ZEROS: usize = 20;

/// The parts of a JSON number.
pub(super) struct Number<'a> {
    sign: &'a [u8],
    whole: &'a [u8],
    fraction: &'a [u8],
    /// Digits with an optional sign. Empty if there is no exponent.
    exponent: &'a [u8],
}

impl<'a> Number<'a> {
    /// Parses the number at the start of this text. Returns it and the rest of the text.
    pub(super) fn parse(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (sign, text) = text.split_at(usize::from(text.starts_with(b"-")));
        let (whole, text) = digits(text)?;
        if whole.len() > 1 && whole.starts_with(b"0") {
            return None;
        }
        let (fraction, text) = text.strip_prefix(b".").map_or(Some((&[][..], text)), digits)?;
        let (exponent, text) = match text.split_first() {
            Some((b'e' | b'E', text)) => {
                let (_, rest) = digits(text.strip_prefix(b"+").or(text.strip_prefix(b"-")).unwrap_or(text))?;
                text.split_at(text.len() - rest.len())
            }
            _ => (&[][..], text),
        };
        Some((Self { sign, whole, fraction, exponent }, text))
    }

    /// Writes the canonical notation of this number to `notation`, which must be empty. Two numbers have the same
    /// notation if and only if they are equal. Returns `None` if the exponent exceeds 128 bits.
    ///
    /// The notation has no exponent, as in `-1250` and `0.05`, unless that would need more than 20 additional zeros. It
    /// is then the significant digits as a whole number with an exponent, as in `125e400`.
    pub(super) fn write_canonical(&self, notation: &mut Vec<u8>) -> Option<()> {
        let Self { sign, whole, fraction, exponent } = self;
        notation.extend_from_slice(sign);
        // Fast path: most numbers are already canonical.
        if fraction.is_empty() && exponent.is_empty() && whole.len() <= MAX_ZEROS && *whole != b"0" {
            notation.extend_from_slice(whole);
            return Some(());
        }
        notation.extend(whole.iter().chain(*fraction).skip_while(|digit| **digit == b'0'));
        let significant = notation.iter().rposition(|digit| matches!(digit, b'1'..=b'9')).map_or(0, |last| last + 1);
        if significant == 0 {
            notation.clear();
            notation.push(b'0');
            return Some(());
        }
        let exponent = if exponent.is_empty() { 0 } else { str::from_utf8(exponent).ok()?.parse::<i128>().ok()? };
        // The number is the significant digits, as a whole number, times ten to the power of `exponent`.
        let exponent = exponent.checked_add(signed(notation.len() - significant) - signed(fraction.len()))?;
        notation.truncate(significant);
        // Number of digits before the decimal point. Negative for zeros directly after it.
        let point = exponent.checked_add(signed(significant - sign.len()))?;
        match (usize::try_from(exponent), usize::try_from(point)) {
            (Ok(zeros @ ..=MAX_ZEROS), _) => notation.extend(repeat_n(b'0', zeros)),
            (Err(_), Ok(point @ 1..)) => notation.insert(sign.len() + point, b'.'),
            (Err(_), _) if (-signed(MAX_ZEROS)..=0).contains(&point) => {
                let zeros = (point..0).map(|_| b'0');
                notation.splice(sign.len()..sign.len(), b"0.".iter().copied().chain(zeros));
            }
            // Writing to a Vec cannot fail.
            _many_zeros => drop(write!(notation, "e{exponent}")),
        }
        Some(())
    }
}

/// The digits at the start of this text, at least one, and the rest.
fn digits(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Cannot overflow: a number of bytes has at most 64 bits.
fn signed(count: usize) -> i128 {
    count as i128
}
