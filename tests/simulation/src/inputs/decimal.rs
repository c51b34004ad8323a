//! Decimal numbers, and how JSON writes them: <https://www.rfc-editor.org/rfc/rfc8259#section-6>.

use history::Rng;

/// Number of zeros up to which a key has no exponent: docs/envelopes.md.
const MAX_ZEROS: i64 = 20;

/// These digits times ten to the power of the exponent. The last digit is not 0, unless the number is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Decimal {
    is_negative: bool,
    digits: u64,
    exponent: i64,
}

impl Decimal {
    pub(super) fn of(rng: &mut Rng) -> Self {
        const DIGITS: [u64; 8] = [0, 1, 7, 10, 25, 100_001, 9_007_199_254_740_993, u64::MAX];
        const EXPONENTS: [i64; 19] = [0, 0, 0, 0, 1, 2, -1, -2, -4, -18, -19, -20, -21, -40, 19, 20, 21, 400, -400];
        let (mut digits, mut exponent) = (*rng.pick(&DIGITS), *rng.pick(&EXPONENTS));
        while digits != 0 && digits.is_multiple_of(10) {
            (digits, exponent) = (digits / 10, exponent + 1);
        }
        if digits == 0 {
            return Self { is_negative: false, digits, exponent: 0 };
        }
        Self { is_negative: rng.happens(300), digits, exponent }
    }

    /// The number as a key.
    pub(super) fn canonical(&self) -> String {
        let Self { is_negative, digits, exponent } = *self;
        let (sign, digits) = (if is_negative { "-" } else { "" }, digits.to_string());
        let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or_default());
        let point = i64::try_from(digits.len()).unwrap_or(i64::MAX) + exponent;
        match exponent {
            0..=MAX_ZEROS => format!("{sign}{digits}{}", zeros(exponent)),
            ..0 if point > 0 => {
                let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or_default());
                format!("{sign}{whole}.{fraction}")
            }
            ..0 if point >= -MAX_ZEROS => format!("{sign}0.{}{digits}", zeros(-point)),
            _ => format!("{sign}{digits}e{exponent}"),
        }
    }

    /// One of its texts.
    pub(super) fn written(&self, rng: &mut Rng) -> String {
        let Self { is_negative, digits, mut exponent } = *self;
        if digits == 0 {
            return (*rng.pick(&["0", "-0", "0.0", "0e7", "-0.00E-3", "0e+99"])).to_owned();
        }
        if rng.happens(300) {
            return self.canonical();
        }
        let sign = if is_negative { "-" } else { "" };
        let mut text = digits.to_string();
        // A whole number with many digits.
        if (MAX_ZEROS + 1..60).contains(&exponent) && rng.happens(300) {
            return format!("{sign}{text}{}", "0".repeat(usize::try_from(exponent).unwrap_or_default()));
        }
        for _ in 0..*rng.pick(&[0, 0, 1, 3, 30]) {
            text.push('0');
            exponent -= 1;
        }
        let mut fraction = String::new();
        if rng.happens(500) {
            let at = usize::try_from(rng.draw(0..text.len() as u64)).unwrap_or_default();
            exponent += i64::try_from(text.len() - at).unwrap_or_default();
            fraction = format!(".{}", text.split_off(at));
            if text.is_empty() {
                text.push('0');
                // Zeros after the point.
                for _ in 0..*rng.pick(&[0, 1, 25]) {
                    fraction.insert(1, '0');
                    exponent += 1;
                }
            }
        }
        let mark = *rng.pick(&["e", "E"]);
        match exponent {
            0 if rng.happens(800) => format!("{sign}{text}{fraction}"),
            0.. if rng.happens(500) => format!("{sign}{text}{fraction}{mark}+{exponent}"),
            _ => format!("{sign}{text}{fraction}{mark}{exponent}"),
        }
    }
}
