//! Decimal numbers of any length, exactly.

use std::io::Write as _;
use std::iter::repeat_n;

/// The most zeros that are written to have a number without an exponent.
const ZEROS: usize = 20;

/// A number as it is written in JSON.
pub(super) struct Number<'a> {
    sign: &'a [u8],
    whole: &'a [u8],
    fraction: &'a [u8],
    /// With its sign; empty where there is none.
    exponent: &'a [u8],
}

impl<'a> Number<'a> {
    /// The number that this text begins with, and the rest.
    pub(super) fn read(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
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

    /// Writes the canonical notation of this number into an empty buffer: equal numbers have the same one, and no
    /// others do. `None` where its exponent is beyond 128 bits.
    ///
    /// It is plain, as in `-1250` and `0.05`. Where that takes more than 20 zeros, it is the significant digits as
    /// a whole number and an exponent, as in `125e400`.
    pub(super) fn write(&self, notation: &mut Vec<u8>) -> Option<()> {
        let Self { sign, whole, fraction, exponent } = self;
        notation.extend_from_slice(sign);
        // Most numbers are canonical as they are.
        if fraction.is_empty() && exponent.is_empty() && whole.len() <= ZEROS && *whole != b"0" {
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
        // The number is its significant digits, as a whole number, times ten to this power.
        let exponent = exponent.checked_add(signed(notation.len() - significant) - signed(fraction.len()))?;
        notation.truncate(significant);
        // How many of the digits are before the decimal point.
        let point = exponent.checked_add(signed(significant - sign.len()))?;
        match (usize::try_from(exponent), usize::try_from(point)) {
            (Ok(zeros @ ..=ZEROS), _) => notation.extend(repeat_n(b'0', zeros)),
            (Err(_), Ok(point @ 1..)) => notation.insert(sign.len() + point, b'.'),
            (Err(_), _) if (-signed(ZEROS)..=0).contains(&point) => {
                let zeros = (point..0).map(|_| b'0');
                notation.splice(sign.len()..sign.len(), b"0.".iter().copied().chain(zeros));
            }
            // Writing to a Vec cannot fail.
            _far_from_the_point => drop(write!(notation, "e{exponent}")),
        }
        Some(())
    }
}

/// The digits that this text begins with, of which there is at least one, and the rest.
fn digits(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// No count of bytes is beyond 64 bits.
fn signed(count: usize) -> i128 {
    count as i128
}
